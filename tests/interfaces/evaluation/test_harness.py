"""lm-evaluation-harness with masked models: against plain transformers, enumeration and `score`."""

import importlib
import json
import logging
import sys
from itertools import combinations, permutations
from pathlib import Path

import lm_eval
import numpy as np
import pytest
import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.api.registry import model_registry
from lm_eval.tasks import TaskManager

import conftest
import glauber
import tiny_diffusion
from glauber.foundation import extras
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.interfaces.evaluation import HarnessLM
from glauber.models.causal_lm import CausalLM
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table
from glauber.studies.proteins.weights import residue_tokenizer

TASKS = Path(__file__).parents[3] / "examples" / "harness"
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
PAIRS = [
    ("the cat sat on", " the mat ."),
    ("a big dog", " ran under the old tree and it flew"),
    ("", "they will be in the sky"),
    ("the bird", "s flewing over it ."),
    ("is it red or", " blue"),
    ("", "cat"),
]
SCORES = ("pll", "within-word", "bound")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """lm_eval asks pip and git about this machine at the end of each evaluation: seconds."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)


@pytest.fixture(scope="module")
def model():
    return MaskedLM(conftest.make_model("bert").double(), conftest.make_tokenizer(), name="tiny")


def asked(pairs, kind="loglikelihood"):
    return [Instance(kind, {}, tuple(pair), 0) for pair in pairs]


def values(lm, pairs):
    return [value for value, _ in lm.loglikelihood(asked(pairs))]


def law(model, tokens, hidden, site):
    """Log-probabilities at a site by transformers, with masks at the hidden ones."""
    masked = [model.hidden_token if i in hidden else token for i, token in enumerate(tokens)]
    return torch.log_softmax(model.model(torch.tensor([masked])).logits[0, site], dim=0)


def read(model, context, text):
    """Tokens and the sites of the text behind its context, which no token has letters of both."""
    tokens = model.vocabulary.tokenizer(context + text)["input_ids"]
    own = len(model.vocabulary.pieces(context + text)) - len(model.vocabulary.pieces(context))
    return tokens, list(range(len(tokens) - 1 - own, len(tokens) - 1))


def test_pll_is_that_of_plain_transformers(model):
    lm = HarnessLM(model, score="pll")
    for (context, text), value in zip(PAIRS, values(lm, PAIRS), strict=True):
        tokens, sites = read(model, context, text)
        expected = sum(float(law(model, tokens, {i}, i)[tokens[i]]) for i in sites)
        assert value == pytest.approx(expected, abs=1e-9)
    assert {one.kind for one in lm.answers["loglikelihood"]} == {"exact"}
    assert [one.tokens for one in lm.answers["loglikelihood"]] == [3, 8, 6, 6, 1, 1]


def written(model, context, n):
    """What filling n hidden tokens behind a context greedily from left to right writes."""
    pieces = [*model.vocabulary.pieces(context), *[model.hidden_token] * n]
    tokens = [2, *pieces, 3]
    for site in range(len(tokens) - 1 - n, len(tokens) - 1):
        tokens[site] = int(law(model, tokens, {site}, site).argmax())
    return tokens[len(tokens) - 1 - n : -1]


def test_greedy_is_what_filling_from_left_to_right_writes(model):
    lm = HarnessLM(model)
    best = written(model, "the cat sat on", 3)
    names = model.vocabulary.tokenizer.convert_ids_to_tokens(best)
    text = "".join(one[2:] if one.startswith("##") else f" {one}" for one in names)
    assert read(model, "the cat sat on", text)[0][-4:-1] == best  # else the test says nothing
    other = " the" if not text.endswith(" the") else " a"
    pairs = [("the cat sat on", text), ("the cat sat on", text.rsplit(" ", 1)[0] + other)]
    assert [greedy for _, greedy in lm.loglikelihood(asked(pairs))] == [True, False]


def test_greedy_of_a_rule_of_ones_own_is_that_of_its_table():
    table, lm = Table.random(2, 4, seed=5), HarnessLM(Table.random(2, 4, seed=5), batch_size=5)
    hidden, best = table.vocab_size, {}
    for first in (0, 1):
        row = [first, hidden, hidden, hidden]
        for site in (1, 2, 3):
            row[site] = int(table.entries[site][tuple(row)].argmax())
        best[first] = row[1:]
    texts = [f"{n:03b}" for n in range(8)]
    found = lm.loglikelihood(asked([(str(first), text) for first in best for text in texts]))
    due = [list(map(int, text)) == best[first] for first in best for text in texts]
    assert [greedy for _, greedy in found] == due and sum(due) == 2


def test_the_bound_is_that_over_all_hidden_sets(model):
    lm = HarnessLM(model, score="bound", samples=200, seed=3)
    pairs = [PAIRS[0], ("the cat", " sat on the old mat .")]
    few, many = zip(pairs, values(lm, pairs), lm.answers["loglikelihood"], strict=True)
    for (context, text), value, answer in (few, many):
        tokens, sites = read(model, context, text)
        said = {
            (site, hidden): float(law(model, tokens, hidden, site)[tokens[site]])
            for k in range(1, len(sites) + 1)
            for hidden in map(frozenset, combinations(sites, k))
            for site in hidden
        }
        along = [
            sum(said[site, frozenset(order[j:])] for j, site in enumerate(order))
            for order in permutations(sites)
        ]
        if answer.kind == "exact":
            assert value == pytest.approx(np.mean(along), abs=1e-9) and len(sites) == 3
        else:
            assert abs(value - np.mean(along)) < 4 * answer.standard_error and len(sites) == 6
        assert np.mean(along) < np.log(np.mean(np.exp(along)))  # a bound from below


def test_the_bound_of_a_joint_law_is_its_conditional_log_likelihood():
    few, many = Joint.random(3, 5, seed=1), Joint.random(2, 8, seed=2, strength=2.0)
    for joint, context, text in (
        (few, "01", "210"),
        (many, "1", "0110100"),
        (many, "", "01101001"),
    ):
        weights = joint.log_weights[tuple(map(int, context))]
        truth = float(weights[tuple(map(int, text))] - weights.flatten().logsumexp(0))
        lm = HarnessLM(joint, score="bound", samples=100, seed=1)
        (value,) = values(lm, [(context, text)])
        (answer,) = lm.answers["loglikelihood"]
        error = answer.standard_error or 0.0
        assert abs(value - truth) <= 4 * error + 1e-10
        assert (answer.kind == "exact") == (len(text) <= 5)
        tokens = torch.tensor([list(map(int, context + text))])
        sites = torch.arange(len(context), tokens.shape[1])
        each = [joint.scores(tokens, site[None, None])[0, 0, tokens[0, site]] for site in sites]
        assert values(HarnessLM(joint), [(context, text)]) == pytest.approx([float(sum(each))])


def test_without_a_joint_law_the_bound_is_below_the_mixture_over_orders():
    table = Table.random(2, 6, seed=4, strength=1.5)
    (value,) = values(HarnessLM(table, score="bound"), [("01", "1010")])
    found = glauber.likelihood_bound(table, ["1010"], given="01").texts[0]
    assert found.exact and len(found.log_probs) == 24 and found.log_probs.std() > 0.1
    assert value == pytest.approx(found.log_probs.mean()) and value < found.log_mean


def test_the_numbers_are_those_of_score(model):
    contexts, texts = zip(*PAIRS, strict=True)
    scores = glauber.score(model, texts, given=contexts).scores
    assert values(HarnessLM(model), PAIRS) == [one.original for one in scores]
    within = values(HarnessLM(model, score="within-word"), PAIRS)
    assert within == [one.within_word for one in scores]
    assert within[3] != scores[3].original and scores[3].pieces[:2] == ["##s", "flew"]
    found = glauber.likelihood_bound(model, texts, given=contexts, samples=3, seed=5)
    lm = HarnessLM(model, score="bound", samples=3, seed=5)
    assert values(lm, PAIRS) == [-one.bound.value for one in found.texts]
    errors = [one.standard_error for one in lm.answers["loglikelihood"]]
    assert errors == [one.bound.standard_error for one in found.texts] and errors[1] > 0
    whole = [context + text for context, text in PAIRS if len(text) > 3]
    rolled = HarnessLM(model).loglikelihood_rolling(asked([(text,) for text in whole]))
    assert rolled == [one.original for one in glauber.score(model, whole).scores]


@pytest.mark.parametrize("score", SCORES)
def test_neither_batch_nor_order_changes_a_bit(tiny_folder, score):
    how = {"score": score, "samples": 3}
    together = HarnessLM(str(tiny_folder), **how).loglikelihood(asked(PAIRS))
    texts = [(context + text,) for context, text in PAIRS]
    rolled = HarnessLM(str(tiny_folder), **how).loglikelihood_rolling(asked(texts))
    for size in (1, 3):
        lm = HarnessLM(str(tiny_folder), batch_size=size, **how)
        assert lm.loglikelihood(asked(PAIRS)) == together
        assert lm.loglikelihood(asked(PAIRS[::-1]))[::-1] == together
        assert lm.loglikelihood_rolling(asked(texts[::-1]))[::-1] == rolled
    if score == "bound":
        other = HarnessLM(str(tiny_folder), seed=1, **how).loglikelihood(asked(PAIRS))
        assert other[1] != together[1] and other[0] == together[0]  # the first one is exact


def test_tokens_at_the_boundary(model):
    lm = HarnessLM(model)

    def tokens(context, text):
        lm.loglikelihood(asked([(context, text)]))
        return lm.answers["loglikelihood"][0].tokens

    assert tokens("the cat", "s sat") == 2  # ##s is the text's
    assert tokens("the bi", "rd flew") == 2  # bird has letters of both, and is the text's
    assert tokens("the ", "bird flew") == tokens("the", " bird flew") == 2
    assert values(lm, [("the ", "bird")]) == values(lm, [("the", " bird")])
    with pytest.warns(GlauberWarning, match="1 of 1 text without tokens: the score is 0"):
        assert lm.loglikelihood(asked([("the bird", " ")])) == [(0.0, True)]
    with pytest.warns(GlauberWarning, match="read as unknown tokens in text 2"):
        found = values(lm, [("the", " cat"), ("the", " zebra")])
    assert found[1] == pytest.approx(float(law(model, [2, 8, 1, 3], {2}, 2)[1]))
    assert lm.loglikelihood([]) == []
    with pytest.raises(GlauberError, match="text 1 has 'z' at character"):
        glauber.score(model, " zebra", given="the")


def test_long_contexts_are_cut_from_the_left_and_long_texts_refused(model):
    lm, long = HarnessLM(model), "the cat sat on a mat and " * 10
    with pytest.warns(GlauberWarning, match="at most 36 tokens: the context of 1 text is cut"):
        cut, kept = values(lm, [(long, " it was red"), ("the", " it was red")])
    last = model.vocabulary.decode(model.vocabulary.pieces(long)[-33:])
    assert cut == values(lm, [(last, " it was red")])[0] != kept
    with pytest.raises(GlauberError, match="text 1 has 70 tokens of its own, but tiny reads at"):
        lm.loglikelihood(asked([("the", " " + long)]))


def test_whole_texts_are_cut_into_windows(model):
    text = "the cat sat on a mat and a dog ran under the old tree . " * 6
    pieces = model.vocabulary.pieces(text)
    assert len(pieces) == 90
    expected = 0.0
    for first, scored in ((0, 0), (36, 36), (54, 72)):  # the last window is as long
        row = [2, *pieces[first : first + 36], 3]
        sites = range(1 + scored - first, 37)
        expected += sum(float(law(model, row, {site}, site)[row[site]]) for site in sites)
    assert HarnessLM(model).loglikelihood_rolling(asked([(text,)])) == pytest.approx([expected])
    bound = HarnessLM(model, score="bound", samples=8)
    (value,) = bound.loglikelihood_rolling(asked([(text,)]))
    (answer,) = bound.answers["loglikelihood_rolling"]
    assert value == answer.value < 0 < answer.standard_error and answer.tokens == 90
    with pytest.warns(GlauberWarning, match="without tokens"):
        assert bound.loglikelihood_rolling(asked([("",)])) == [0.0]


@pytest.fixture(scope="module", params=[True, False], ids=["opened by the tokenizer", "not"])
def causal(request):
    torch.manual_seed(3)
    config = transformers.GPT2Config(
        vocab_size=len(conftest.VOCABULARY), n_embd=32, n_layer=2, n_head=2, n_positions=40,
        bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    tokenizer = conftest.make_tokenizer()
    tokenizer.bos_token = "[CLS]"
    if not request.param:
        tokenizer.backend_tokenizer.post_processor = None
    return CausalLM(transformers.GPT2LMHeadModel(config).double(), tokenizer, name="control")


def test_an_autoregressive_model_is_exact(causal):
    lm = HarnessLM(causal)
    found = lm.loglikelihood(asked(PAIRS))
    for (context, text), (value, greedy) in zip(PAIRS, found, strict=True):
        before = len(causal.vocabulary.pieces(context))
        row = [2, *causal.vocabulary.pieces(context + text)]
        laws = causal.model(torch.tensor([row])).logits[0].log_softmax(-1)
        each = [float(laws[t - 1, row[t]]) for t in range(1 + before, len(row))]
        best = [int(laws[t - 1].argmax()) == row[t] for t in range(1 + before, len(row))]
        assert value == pytest.approx(sum(each), abs=1e-10) and greedy == all(best)
    assert HarnessLM(causal, batch_size=1).loglikelihood(asked(PAIRS[::-1]))[::-1] == found
    tokens, _ = causal.vocabulary.encode([PAIRS[2][1]])
    if len(causal.vocabulary.text.boundary_tokens[1]) == 0:
        assert found[2][0] == pytest.approx(float(causal.log_joint(tokens)), abs=1e-10)
    with pytest.raises(GlauberError, match="is autoregressive: its log-likelihood is exact"):
        HarnessLM(causal, score="pll")
    with pytest.raises(GlauberError, match="let lm_eval's own"):
        lm.generate_until(asked([("the", {})], "generate_until"))


def test_without_an_opening_token_a_text_needs_a_context(causal):
    tokenizer = conftest.make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    lm = HarnessLM(CausalLM(causal.model, tokenizer, name="unopened"))
    row = causal.vocabulary.pieces("the cat sat on")
    laws = causal.model(torch.tensor([row])).logits[0].log_softmax(-1)
    expected = float(laws[1, row[2]] + laws[2, row[3]])
    assert values(lm, [("the cat", " sat on")]) == pytest.approx([expected], abs=1e-10)
    with pytest.raises(GlauberError, match="unopened has no opening token: a text without a"):
        lm.loglikelihood(asked([("", "the cat")]))


def test_writing_fills_from_left_to_right_and_stops(model):
    lm = HarnessLM(model, max_gen_toks=4)
    allowed = model.vocabulary.proposable()
    texts = []
    for context in ("the cat sat", "a bird"):
        tokens = [2, *model.vocabulary.pieces(context), *[model.hidden_token] * 4, 3]
        for site in range(len(tokens) - 5, len(tokens) - 1):
            tokens[site] = int(law(model, tokens, {site}, site).where(allowed, -torch.inf).argmax())
        texts.append(model.vocabulary.decode(tokens[-5:-1]))
    requests = asked([("the cat sat", {"until": []}), ("a bird", {})], "generate_until")
    assert lm.generate_until(requests) == texts
    assert lm.generate_until(requests[1:]) == texts[1:]
    word = texts[0].split()[-1]
    (cut,) = lm.generate_until(asked([("the cat sat", {"until": [word]})], "generate_until"))
    assert cut == texts[0].split(word)[0] != texts[0]
    for how, message in (({"do_sample": True}, "greedily"), ({"max_gen_toks": 99}, "at most 36")):
        with pytest.raises(GlauberError, match=message):
            lm.generate_until(asked([("the", how)], "generate_until"))


def test_a_diffusion_lm_is_a_model_too(tmp_path):
    tiny_diffusion.mdlm(tmp_path / "mdlm")
    opened = glauber.load(str(tmp_path / "mdlm"))
    text = " ".join(tiny_diffusion.WORDS[1:8])
    for score in ("pll", "bound"):
        lm = HarnessLM(opened, score=score, samples=2)
        if score == "bound":
            (likelihood,) = glauber.likelihood_bound(opened, text, given="", samples=2).texts
            expected = -likelihood.bound.value
        else:
            expected = glauber.score(opened, text, given="").scores[0].original
        assert values(lm, [("", text)]) == [expected]


@pytest.fixture(scope="module")
def protein():
    torch.manual_seed(3)
    words = [*conftest.SPECIAL, *RESIDUES]
    config = transformers.BertConfig(**conftest.SIZES | {"vocab_size": len(words)})
    names = {one: f"[{one.upper()}]" for one in ("pad", "unk", "cls", "sep", "mask")}
    found = transformers.BertForMaskedLM(config).eval().double()
    return MaskedLM(found, residue_tokenizer(words, names, 38), name="residues")


def task(folder, name, rows, **more):
    """A multiple-choice task of rows with text, choices and label, as YAML and a local file."""
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / f"{name}.py").write_text(
        "import json, pathlib, datasets\n"
        "def docs(**_):\n"
        f"    lines = pathlib.Path({str(folder / name)!r} + '.jsonl').read_text().splitlines()\n"
        "    return {'test': datasets.Dataset.from_list([json.loads(one) for one in lines])}\n"
    )
    config = {
        "task": name, "output_type": "multiple_choice", "test_split": "test",
        "doc_to_text": "{{text}}", "doc_to_target": "{{label}}", "doc_to_choice": "{{choices}}",
        "num_fewshot": 0, "metric_list": [{"metric": "acc"}], **more,
    }  # fmt: skip
    lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in config.items())
    (folder / f"{name}.yaml").write_text(f"custom_dataset: !function {name}.docs\n{lines}\n")
    return TaskManager(include_path=str(folder), include_defaults=False)


def test_a_protein_task(protein, tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        {"text": "".join(rng.choice(list(RESIDUES), 12)), "label": 0,
         "choices": ["".join(rng.choice(list(RESIDUES), n)) for n in (4, 4)]}
        for _ in range(5)
    ]  # fmt: skip
    manager = task(tmp_path, "loops", rows, target_delimiter="")
    lm = HarnessLM(protein, score="bound")
    results = lm_eval.simple_evaluate(lm, tasks=["loops"], task_manager=manager, bootstrap_iters=0)
    pairs = [(row["text"], choice) for row in rows for choice in row["choices"]]
    contexts, texts = zip(*pairs, strict=True)
    found = glauber.likelihood_bound(protein, texts, given=contexts).texts
    assert all(one.exact and one.tokens == 4 for one in found)
    best = [found[2 * i].bound.value < found[2 * i + 1].bound.value for i in range(5)]
    assert results["results"]["loops"]["acc,none"] == np.mean(best)
    with pytest.warns(GlauberWarning, match="blanks were removed"):
        spaced = values(lm, [(context, f" {text}") for context, text in pairs])
    assert spaced == values(lm, pairs)


@pytest.mark.weights
def test_the_minimal_pairs_of_the_bundled_model():
    manager = TaskManager(include_path=str(TASKS), include_defaults=False)
    lm = HarnessLM("bundled:english")
    names = ["glauber_minimal_pairs", "glauber_last_words"]
    results = lm_eval.simple_evaluate(lm, tasks=names, task_manager=manager, limit=2)
    for name in names:
        samples = results["samples"][name]
        arguments = [tuple(one) for sample in samples for one in sample["arguments"]]
        said = [float(answer[0]) for sample in samples for answer in sample["filtered_resps"]]
        contexts, texts = zip(*arguments, strict=True)
        scores = glauber.score(lm.model, texts, given=contexts, variant="original").scores
        assert said == [one.original for one in scores]
        right = [int(np.argmax(np.array(said).reshape(2, -1)[i]) == s["target"])
                 for i, s in enumerate(samples)]  # fmt: skip
        assert results["results"][name]["acc,none"] == np.mean(right)
        assert results["results"][name]["acc_stderr,none"] is not None
    assert "no log-likelihood" in results["config"]["loglikelihood_is"]
    assert "score:pll" in results["config"]["signature"]
    lines = (TASKS / "minimal_pairs.jsonl").read_text().splitlines()
    assert len(lines) == len({json.loads(line)["good"] for line in lines}) == 20


def test_what_a_figure_is_stands_beside_it(model, caplog):
    lm = HarnessLM(model, score="bound", samples=4)
    with caplog.at_level(logging.INFO, logger="lm_eval"):
        lm.loglikelihood(asked(PAIRS))
    told = lm.get_model_info()
    assert "lower bound" in told["loglikelihood_is"] and "samples:4|seed:0" in told["signature"]
    assert (told["loglikelihoods"], told["loglikelihoods_estimated"]) == (6, 3)
    errors = [one.standard_error for one in lm.answers["loglikelihood"]]
    mean = np.mean([one for one in errors if one is not None])
    assert told["mean_standard_error_of_an_estimate"] == pytest.approx(mean)


def test_lm_eval_makes_it_from_its_arguments(tiny_folder):
    made = model_registry.get("glauber").create_from_arg_string(
        f"pretrained={tiny_folder},score=bound,samples=4",
        {"batch_size": 1, "max_batch_size": None, "device": "cuda:0"},
    )
    assert made.score.name == "bound" and made.score.samples == 4
    assert made.score.batch_size is None and made.model.device.type == "cpu"
    assert HarnessLM(str(tiny_folder), batch_size="auto").score.batch_size is None
    for how, message in (
        ({"score": "pl"}, "did you mean pll"),
        ({"score": "exact"}, "is masked and has no exact"),
        ({"samples": 0}, "number of samples"),
        ({"batch_size": "many"}, "must be a number or auto"),
        ({"order": "random"}, "the order is random"),
        ({"dtype": "int8"}, "int8"),
    ):
        with pytest.raises(GlauberError, match=message):
            HarnessLM(str(tiny_folder), **how)


def test_the_command_hands_over_to_that_of_lm_eval(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [""])
    command = importlib.import_module("glauber.interfaces.evaluation.__main__")
    theirs, seen = importlib.import_module("lm_eval.__main__"), []
    monkeypatch.setattr(theirs, "cli_evaluate", lambda: seen.append("glauber" in model_registry))
    command.main()
    assert seen == [True]
    monkeypatch.setattr(sys, "argv", ["", "--include_path", "no/such/folder"])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert "there is no folder no/such/folder" in capsys.readouterr().err and len(seen) == 1
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert "needs lm_eval: pip install 'glauber[harness]'." in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "glauber.interfaces.evaluation.harness")
    with pytest.raises(GlauberError, match="lm-evaluation-harness needs lm_eval"):
        _ = importlib.import_module("glauber.interfaces.evaluation").HarnessLM


def test_given_is_checked_before_a_model_is_loaded():
    for how, message in (
        ({"given": ["a", "b"]}, "one context for all 1 text"),
        ({"given": "a", "length": 3}, "leave out length and freeze"),
        ({"given": "a", "freeze": "0"}, "leave out length and freeze"),
    ):
        with pytest.raises(GlauberError, match=message):
            glauber.score("/nowhere", "a text", **how)
