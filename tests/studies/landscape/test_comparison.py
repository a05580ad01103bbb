"""Two tiny models from the same starts, each figure against the study that makes it."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

import tiny_diffusion
from conftest import TEXTS, VOCABULARY, make_model, make_tokenizer
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.statistics import Estimate, mean_over_chains
from glauber.interfaces.plots.landscape import (
    comparison_table,
    plot_comparison,
    plot_topics_by_model,
)
from glauber.models.causal_lm import CausalLM
from glauber.models.masked_lm import MaskedLM
from glauber.sampling.sample import sample
from glauber.studies.compatibility.entropy_production import entropy_production
from glauber.studies.compatibility.rectangles import rectangles
from glauber.studies.landscape.comparison import ModelRow, _shared_texts, _with_differences, compare
from glauber.studies.landscape.kinds import digits, non_words, other_letters, repetitions, symbols
from glauber.studies.landscape.prefixes import prefixes
from glauber.studies.landscape.scorers import Scorer


def score(texts):
    share = np.array([text.count("t") / max(1, len(text)) for text in texts])
    return np.stack([share, 1 - share], axis=1)


SCORER = Scorer("letters", ("t", "other"), score)


@pytest.fixture(scope="module")
def other_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "other"
    make_model("distilbert").save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def compared(tiny_folder, other_folder):
    return compare(
        [str(tiny_folder), MaskedLM.load(str(other_folder))],
        TEXTS,
        scorer=SCORER,
        chains=6,
        length=5,
        steps=60,
        seed=4,
        rectangles=12,
        top=10,
        every=20,
        shortest=10,
    )


def test_without_the_extra_tokens_leave_topics_out(tiny_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    model = MaskedLM.load(str(tiny_folder))
    few = {"chains": 3, "length": 4, "steps": 6, "every": 2}
    asked = [
        lambda **how: compare([model, model], TEXTS, rectangles=2, top=5, **few, **how),
        lambda **how: prefixes(model, TEXTS, prefixes=["the cat"], **few, **how),
    ]
    for study in asked:
        with pytest.raises(GlauberError, match="leave topics out by giving tokens"):
            study()
    rows = asked[0](embedder="tokens").models
    assert all(row.topics is None and row.notes[0].startswith("topics: ") for row in rows)
    assert asked[1](embedder="tokens").note.startswith("Topics are left out")


def test_each_figure_is_that_of_its_study(compared, tiny_folder):
    first, second = compared.models
    model = MaskedLM.load(str(tiny_folder))
    found = rectangles(model, TEXTS[:6], length=5, count=12, seed=4, top=10)
    assert first.delta.value == pytest.approx(float(found.delta.mean()))
    run = sample(model, TEXTS, steps=60, chains=6, length=5, seed=4)
    assert first.changed.value == pytest.approx(float(run.read("changed").any(axis=2).mean()))
    ends = score([run.text(chain) for chain in range(6)])
    assert first.topics_end["t"].value == pytest.approx(ends[:, 0].mean())
    assert first.texts == tuple(run.text(chain) for chain in range(3))
    assert (
        set(first.traps) == {"found", "perfect", "share of steps"} and "steps:60" in first.signature
    )
    # The same starts, another model: equal at 0, not after it.
    assert first.topics_start == second.topics_start
    assert first.topics_end != second.topics_end
    assert first.delta.value != second.delta.value


def test_models_are_compared_start_by_start(compared, tiny_folder, other_folder):
    """Each paired difference against the runs and rectangles of both models, made by hand."""
    first, second = compared.models
    assert first.less_first is None
    folders = (other_folder, tiny_folder)
    runs = [sample(str(one), TEXTS, steps=60, chains=6, length=5, seed=4) for one in folders]
    changed = [run.read("changed").any(axis=2).mean(axis=1) for run in runs]
    ends = [score([run.text(chain) for chain in range(6)])[:, 0] for run in runs]
    rates = [[chain.rate.value for chain in entropy_production(run).chains] for run in runs]
    drawn = [rectangles(str(one), TEXTS[:6], length=5, count=12, seed=4, top=10) for one in folders]
    expected = {
        "steps that changed": changed[0] - changed[1],
        "entropy production": np.subtract(*rates),
        "t at the end": ends[0] - ends[1],
    }
    for name, differences in expected.items():
        paired = second.less_first[name]
        assert paired.value == pytest.approx(differences.mean(), abs=1e-6)
        assert paired.n_chains == 6 and paired.interval[0] < paired.value < paired.interval[1]
        assert paired.standard_error == pytest.approx(
            differences.std(ddof=1) / np.sqrt(6), rel=1e-4, abs=1e-9
        )
    delta = second.less_first["mean rectangle Delta"]
    assert delta.value == pytest.approx(float(drawn[0].delta.mean() - drawn[1].delta.mean()))
    reached = mean_over_chains(changed[0] - changed[1], bounds=(-1, 1), student=True)
    assert second.less_first["steps that changed"].interval == pytest.approx(reached.interval)


def test_the_paired_differences_are_told_everywhere(compared):
    second = compared.models[1]
    paired = second.less_first["steps that changed"]
    record = compared.to_dict()["models"][1]["less_first"]["steps that changed"]
    assert record["value"] == paired.value and tuple(record["interval"]) == paired.interval
    frame = compared.frame()
    assert np.isnan(frame["changed_less_first"][0])
    columns = ["changed_less_first", "changed_less_first_low", "changed_less_first_high"]
    assert frame.loc[1, columns].tolist() == pytest.approx([paired.value, *paired.interval])
    for name in ("delta", "entropy_production"):
        assert np.isfinite(frame.loc[1, f"{name}_less_first"])
    told = str(compared)
    assert f"{second.model} less {compared.models[0].model}, start by start" in told
    low, high = paired.interval
    assert f"steps that changed  {paired.value:+.1%} ({low:+.1%} to {high:+.1%})" in told


def test_a_shared_spread_of_starts_cancels_in_the_paired_difference():
    """Two models whose starts differ a lot and which differ little: told by pairs, not apart."""
    rng = np.random.default_rng(3)
    start = rng.normal(size=12)
    rows = [
        ModelRow(
            model=name,
            delta=Estimate(0.0, None),
            certified=1.0,
            deltas=np.repeat(start + shift, 3) + 0.05 * rng.normal(size=36),
            passages=np.repeat(np.arange(12), 3),
            signature="",
            seconds=0.0,
            changed_by_chain=start / 10 + shift + 0.01 * rng.normal(size=12),
        )
        for name, shift in (("first", 0.0), ("second", 0.2))
    ]
    apart = [mean_over_chains(row.changed_by_chain).interval for row in rows]
    assert apart[0][1] - apart[0][0] > 0.1
    _, second = _with_differences(rows)
    for name in ("mean rectangle Delta", "steps that changed"):
        low, high = second.less_first[name].interval
        assert low < 0.2 < high and high - low < 0.1
    scarce = replace(rows[1], deltas=rows[1].deltas[:30], passages=rows[1].passages[:30])
    _, fewer = _with_differences([rows[0], scarce])  # other rectangles: by common passages
    assert fewer.less_first["mean rectangle Delta"].n_chains == 10
    assert fewer.less_first["mean rectangle Delta"].value == pytest.approx(0.2, abs=0.06)


def test_a_text_too_short_for_one_model_is_left_out_for_all():
    class Spelling:
        """Counts letters, or words."""

        def __init__(self, letters):
            self.letters = letters

        def strange(self, text):
            return None

        def pieces(self, text):
            return list(text) if self.letters else text.split()

    models = [
        SimpleNamespace(vocabulary=Spelling(letters), name=f"model {number}")
        for number, letters in enumerate((True, False), start=1)
    ]
    texts = ["abcdefghij", "a b c", "one two three four", "a b c d e"]
    with pytest.warns(GlauberWarning, match="text 1 has fewer than 4 tokens of model 2"):
        assert list(_shared_texts(models, texts, 4)) == ["one two three four", "a b c d e"]
    with pytest.raises(GlauberError, match="none of 4 texts can be used: text 2 has fewer than 9"):
        _shared_texts(models, texts, 9)


def test_the_pictures_hold_the_figures(compared):
    dots = plot_comparison(compared.models).data
    assert [trace.x[0] for trace in dots] == pytest.approx(
        [
            compared.models[0].delta.value,
            compared.models[0].entropy_production.rate.value,
            compared.models[0].changed.value,
        ]
    )
    assert all((np.array(trace.error_x.array) >= 0).all() for trace in dots)
    bars = plot_topics_by_model(compared.models).data
    assert np.allclose(sum(np.array(bar.x) for bar in bars), 1)
    table = comparison_table(compared.models).data[0]
    assert list(table.header.values[:2]) == ["model", "mean rectangle Delta"]
    assert table.cells.values[1][0] == compared.models[0].cells()["mean rectangle Delta"]


def test_one_model_and_one_chain_are_refused(tiny_folder):
    with pytest.raises(GlauberError, match="at least two models"):
        compare([str(tiny_folder)])
    with pytest.raises(GlauberError, match="named once"):
        compare(["a", "a"])
    with pytest.raises(GlauberError, match="chains is 1, but it must be at least 2"):
        compare(["a", "b"], chains=1)


def test_a_wrong_name_shows_before_the_first_model_runs(tiny_folder, monkeypatch):
    monkeypatch.setattr(
        "glauber.studies.landscape.comparison.sample", lambda *_, **__: pytest.fail("ran")
    )
    monkeypatch.setattr(
        "glauber.studies.landscape.comparison.rectangle_study", lambda *_, **__: 1 / 0
    )
    with pytest.raises(GlauberError, match="nobody/nothing"):
        compare([str(tiny_folder), "nobody/nothing"], TEXTS, chains=4, length=5)


def test_shares_stay_between_nothing_and_all(tiny_folder, other_folder):
    found = compare(
        [str(tiny_folder), str(other_folder)], TEXTS, chains=3, length=4, steps=40, seed=1,
        rectangles=4, top=5, scorer=SCORER, temperature=0.2,
    )  # fmt: skip
    for row in found.models:
        for mean in (row.changed, *row.topics_end.values()):
            assert 0 <= mean.interval[0] <= mean.value <= mean.interval[1] <= 1


def test_two_objects_of_one_name_are_told_apart(tiny_folder):
    models = [MaskedLM.load(str(tiny_folder)) for _ in range(2)]
    found = compare(models, TEXTS, chains=4, length=4, steps=40, rectangles=4, top=5, scorer=SCORER)
    assert [row.model[-4:] for row in found.models] == [" (1)", " (2)"]
    assert found.models[0].changed == found.models[1].changed


def test_an_autoregressive_control_has_rectangles_alone(tiny_folder):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(VOCABULARY), n_embd=16, n_layer=1, n_head=2, n_positions=40
    )
    tokenizer = make_tokenizer()
    tokenizer.bos_token = "[CLS]"
    control = CausalLM(transformers.GPT2LMHeadModel(config).eval(), tokenizer, name="control")
    found = compare(
        [str(tiny_folder), control], TEXTS, chains=4, length=4, steps=40, rectangles=4, top=5,
        scorer=SCORER,
    )  # fmt: skip
    masked, causal = found.models
    assert causal.changed is None and "no chain was run" in causal.notes[0]
    assert len(causal.deltas) == 4 and masked.changed is not None
    assert found.figures() and len(found.frame()) == 2
    assert "left out" in str(found)


def test_a_masked_and_a_diffusion_model_side_by_side(tmp_path, tiny_folder):
    """One call: chains, traps, topics and what the texts contain, from the same starts."""
    diffusion = str(tiny_diffusion.mdlm(tmp_path / "mdlm")[0])
    texts = [
        "the cat sat on the mat",
        "a dog ran under the tree",
        "we will be in it",
        "a bird flew on",
    ]
    sizes = dict(chains=4, length=4, steps=40, rectangles=4, top=5)
    found = compare([str(tiny_folder), diffusion], texts, scorer=SCORER, every=20, **sizes)
    masked, other = found.models
    for row in (masked, other):
        assert row.traps is not None and row.topics_end is not None and not row.notes
        assert row.entropy_production.rate.value > 0
    assert "t at the end" in other.less_first
    assert other.kinds["repetitions"].value == pytest.approx(
        np.mean([repetitions(text) for text in ends_of(diffusion, texts)])
    )
    assert {"symbols", "digits", "repetitions"} <= set(found.frame().columns)


def ends_of(model, texts):
    run = sample(model, texts, chains=4, length=4, steps=40)
    return [run.text(chain) for chain in range(4)]


@pytest.mark.parametrize(
    ("text", "measure", "share"),
    [
        ("if (x[0]) { y(); }", symbols, 9 / 14),
        ("plain text, and more.", symbols, 0),
        ("été à Rome", other_letters, 3 / 8),
        ("in 1987 the 3rd man", digits, 2 / 5),
        ("yes - no . !!", non_words, 3 / 5),
        ("The dog and the dog", repetitions, 2 / 5),
        ("", repetitions, 0),
        ("  ", symbols, 0),
    ],
)
def test_kinds_of_text_by_hand(text, measure, share):
    assert measure(text) == pytest.approx(share)
