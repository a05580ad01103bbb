"""Writing and filling in: the same texts however they are made, and nothing else is touched."""

import inspect
import math
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glauber
from conftest import make_model
from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.models.base import log_probs
from glauber.models.masked_lm import MaskedLM
from glauber.models.own import symbols
from glauber.models.table import Joint, Table
from glauber.runs.folder_log import FolderLog
from glauber.runs.log import Events
from glauber.sampling import generate as studied
from run_bytes import contents

# A stored generation with all that a resumption has to bring back.
STORED: dict[str, Any] = {
    "length": "4-6", "prefix": "the", "suffix": ".", "chains": 5, "count": "cosine",
    "remask": "conf", "correct": 1, "correct_between": True, "temperature": 0.8, "seed": 3,
}  # fmt: skip
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> MaskedLM:
    return glauber.load(str(tiny_folder), device="cpu")


@pytest.fixture(scope="module")
def antibody() -> MaskedLM:
    """A tiny model of residues, its letters without blanks between them."""
    import transformers

    backend = symbols(list(RESIDUES), 20).tokenizer
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=22, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=40, max_position_embeddings=40,
    )  # fmt: skip
    return MaskedLM(transformers.BertForMaskedLM(config), backend, name="residues")


@pytest.mark.parametrize(
    "how",
    [
        {"length": "3-4", "chains": 64, "passes": 2},
        {"length": 5, "chains": 8, "count": "threshold:0.5", "correct": 1, "block": 3},
        STORED | {"chains": 8, "length": "3-5"},
    ],
)
def test_texts_do_not_depend_on_the_batch(model: MaskedLM, how: dict[str, Any]) -> None:
    made = [glauber.generate(model, **how, batch_size=size) for size in (None, 1, 7, 64)]
    assert len({tuple(one.texts) for one in made}) == 1
    for one in made[1:]:
        np.testing.assert_array_equal(one.written.log_probs, made[0].written.log_probs)
        np.testing.assert_array_equal(one.n_revised, made[0].n_revised)


def test_a_stored_generation_is_read_again_as_it_was(model: MaskedLM, tmp_path: Path) -> None:
    whole = glauber.generate(model, **STORED, out=tmp_path / "run")
    kept = contents(tmp_path / "run")
    again = glauber.generate(model, **STORED, out=tmp_path / "run")
    assert again.texts == whole.texts == glauber.generate(model, **STORED).texts
    np.testing.assert_array_equal(again.written.log_probs, whole.written.log_probs)
    assert again.run is not None and again.run.finished
    assert contents(tmp_path / "run") == kept


@pytest.mark.parametrize(("temperature", "remask"), [(0, "planned:1"), (0.8, "conf")])
def test_a_stopped_generation_goes_on_to_the_same_bytes(
    model: MaskedLM,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    temperature: float,
    remask: str,
) -> None:
    how = STORED | {"temperature": temperature, "remask": remask}
    whole = glauber.generate(model, **how, out=tmp_path / "whole")
    append = FolderLog.append

    def interrupted(log: FolderLog, events: Events) -> None:
        append(log, {name: values[:, : 3 - log.steps] for name, values in events.items()})
        if log.steps == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(FolderLog, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        glauber.generate(model, **how, out=tmp_path / "run")
    monkeypatch.undo()
    assert glauber.Run(tmp_path / "run").steps == 3
    assert glauber.generate(model, **how, out=tmp_path / "run").texts == whole.texts
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_folder_is_resumed_by_its_own_call_only(model: MaskedLM, tmp_path: Path) -> None:
    glauber.generate(model, length=4, out=tmp_path / "run")
    with pytest.raises(GlauberError, match="its seed differ"):
        glauber.generate(model, length=4, seed=1, out=tmp_path / "run")
    with pytest.raises(GlauberError, match="unmasking differ"):
        glauber.generate(model, length=5, prefix="", passes=None, out=tmp_path / "run")


def test_passes_that_do_nothing_are_kept_too(
    model: MaskedLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tokens in sixty passes leave whole segments of the log empty."""
    monkeypatch.setattr("glauber.runs.log.SEGMENT_EVENTS", 16)
    how: dict[str, Any] = {"length": 2, "chains": 2, "passes": 60, "remask": "cap:0"}
    found = glauber.generate(model, **how, out=tmp_path / "run")
    assert found.run is not None and found.run.steps == 60 and found.passes.tolist() == [60, 60]
    assert found.texts == glauber.generate(model, **how).texts
    assert glauber.generate(model, **how, out=tmp_path / "run").texts == found.texts
    assert found.run.text(0, 59).endswith("[MASK]") or found.run.text(0, 59).startswith("[MASK]")


def test_prefix_suffix_and_lengths(model: MaskedLM) -> None:
    found = glauber.generate(
        model, length="3-6", prefix="the cat", suffix="the mat .", chains=40, temperature=2.0
    )
    pieces = model.vocabulary.pieces
    for row, text in zip(found.written.tokens, found.texts, strict=True):
        there = row[row >= 0].tolist()
        inner = there[3:-4]
        assert there[:3] == [2, *pieces("the cat")] and there[-4:] == [*pieces("the mat ."), 3]
        assert model.hidden_token not in there and not {0, 1, 2, 3, 5, 6} & set(inner)
        assert text.startswith("the cat")
    assert set(found.tokens.tolist()) == {3, 4, 5, 6}  # each missed with probability 1e-5


@pytest.mark.parametrize("temperature", [0, 0.3, 1, 3])
@pytest.mark.parametrize("chains", [1, 2, 8])
def test_what_stands_around_blanks_is_never_touched(
    model: MaskedLM, temperature: float, chains: int
) -> None:
    text = "the [MASK] sat [MASK:2] the [MASK:1-2] ."
    found = glauber.infill(
        model, text, chains=chains, temperature=temperature, correct=1, remask="rescale:0.5"
    )
    assert len(found.texts) == 2 * chains
    assert found.blanks is not None
    for row, lengths in zip(found.written.tokens, found.blanks.lengths, strict=True):
        expanded = text.replace("[MASK:2]", "[MASK] [MASK]").replace(
            "[MASK:1-2]", " ".join(["[MASK]"] * lengths[2])
        )
        wanted = [2, *model.vocabulary.pieces(expanded), 3]
        there = row[row >= 0].tolist()
        assert len(there) == len(wanted) and 4 not in there
        assert all(a == b or b == 4 for a, b in zip(there, wanted, strict=True))


def test_log_probabilities_are_those_of_the_path(model: MaskedLM) -> None:
    """One token a pass from left to right, worked out again with the plain conditionals."""
    found = glauber.generate(model, length=6, order="left-to-right", chains=3, temperature=0.7)
    for row, said in zip(found.written.tokens, found.log_probs, strict=True):
        tokens = torch.from_numpy(row)[None]
        total = 0.0
        for site in range(1, 7):
            hidden = torch.arange(site, 7)[None]
            law = log_probs(model.conditionals(), tokens, hidden, temperature=0.7)
            total += float(law[0, 0, tokens[0, site]])
        assert said == pytest.approx(total, abs=1e-4)
    assert found.passes.tolist() == [6, 6, 6] and found.n_revised.tolist() == [0, 0, 0]


def test_passes_and_revised_tokens_are_those_of_the_events(model: MaskedLM, tmp_path: Path) -> None:
    """Two tokens a pass, swept after each pass, counted again by following the stored events."""
    how = {"length": 5, "count": 2, "chains": 6, "temperature": 0.9, "correct": 1}
    found = glauber.generate(model, **how, out=tmp_path / "run")
    assert found.passes.tolist() == [3] * 6
    run = found.run
    assert run is not None
    events = [run.read(name) for name in ("site", "token")]  # (chains, passes, slots)
    length, revised = run.tokens(0).shape[1], np.zeros(6, int)
    for chain, now in enumerate(run.tokens(0).copy()):
        for step in range(run.steps):
            for slot, (site, token) in enumerate(
                zip(*(e[chain, step] for e in events), strict=True)
            ):
                if site >= 0:
                    revised[chain] += slot >= length and now[site] != token
                    now[site] = token
    assert found.n_revised.tolist() == revised.tolist() and revised.sum() > 0
    swept = (events[0][:, :, length:] >= 0).sum(axis=(1, 2))
    assert (swept > revised).any()  # a redraw that leaves the token is no revision


def test_lengths_are_ranked_by_their_scores(model: MaskedLM) -> None:
    found = glauber.infill(model, "the [MASK:1-3] sat", temperature=0)
    frame = found.frame()
    assert sorted(frame["blanks"]) == ["1", "2", "3"]
    assert frame["rank"].tolist() == [1, 2, 3]
    assert frame["score"].is_monotonic_decreasing
    assert (frame["log_prob"] < 0).all()  # at temperature 0, of the model's own law
    np.testing.assert_allclose(frame["log_prob_per_token"], frame["log_prob"] / frame["tokens"])


def test_a_joint_and_a_table_and_a_rule_of_ones_own() -> None:
    joint = Joint.random(3, 3, seed=1)
    n = 6000
    found = glauber.generate(joint, length=3, chains=n, order="random")
    places = (found.written.tokens * np.array([9, 3, 1])).sum(axis=1)
    wanted = n * joint.probabilities().numpy()
    far = ((np.bincount(places, minlength=27) - wanted) ** 2 / wanted).sum()
    assert far < 54.05  # the 0.999 quantile of chi-square with 26 degrees of freedom
    law = np.log(joint.probabilities().numpy())
    np.testing.assert_allclose(found.log_probs, law[places], atol=1e-5)
    table = glauber.generate(Table.random(3, 3, seed=1), length=3, chains=2, temperature=3)
    assert all(set(text) <= {"0", "1", "2"} for text in table.texts)
    filled = glauber.infill(Own(), "b[MASK]a[MASK]", temperature=0.3)
    assert filled.texts[0][0] == "b" and filled.texts[0][2] == "a" and len(filled.texts[0]) == 4


class Own:
    """The next letter is likelier the further it is in the alphabet."""

    vocab_size, name, vocabulary = 3, "letters", ("a", "b", "c")

    def scores(self, tokens: torch.Tensor, sites: torch.Tensor) -> torch.Tensor:
        return torch.arange(3.0).expand(*sites.shape, 3)


def test_proteins_have_blanks_inside_the_sequence(antibody: MaskedLM) -> None:
    found = glauber.infill(antibody, "EVQLV[MASK][MASK:2]GG", chains=4)
    for text in found.texts:
        assert len(text) == 10 and text.startswith("EVQLV") and text.endswith("GG")
        assert set(text) <= set(RESIDUES)
    with pytest.raises(GlauberError, match="'1' at character 2, which is not in the vocabulary"):
        glauber.infill(antibody, "E1[MASK]")
    with pytest.warns(GlauberWarning, match="text 2 has '1' at character 10"):
        glauber.infill(antibody, ["E[MASK]", "E[MASK]VV1"])


def test_a_generation_is_shown_and_no_chain(model: MaskedLM, tmp_path: Path, glauber: Any) -> None:
    out = tmp_path / "run"
    package = sys.modules["glauber"]
    made = package.generate(model, length=4, prefix="the", chains=3, seed=5, out=out)
    code, said, _ = glauber("show", out)
    lines = said.splitlines()
    assert code == 0 and lines[0].split() == ["0", "the", *["[MASK]"] * 4]
    assert lines[4].replace("*", "").split()[0] == "4" and "[MASK]" not in lines[4]
    assert made.run.text(0) == made.texts[0]
    made.run.verify()
    assert len(made.run.frame(events=True)) == 12
    readers = []
    for name, home in {n: h for g in package.STUDIES.values() for n, h in g.items()}.items():
        study = getattr(import_module(f"glauber.{home}"), name)
        if "run" in inspect.signature(study).parameters:
            readers.append(name)
            if name in ("show", "export", "cite", "verify", "repair"):
                continue
            more = {"steps": 9} if name == "extend" else {}
            with pytest.raises(GlauberError, match="is a generation and no chain"):
                study(out, **more)
    assert {"traps", "diagnose", "topics", "report", "resume", "entropy_production"} <= {*readers}
    for to in ("text", "jsonl"):
        assert package.export(out, to=to, out=tmp_path / to).out.is_file()


BAD = [
    ({"length": 0}, "the length is 0"),
    ({"length": "9-4"}, "from the shorter one up"),
    ({"length": "many"}, "must be a number or such as 12-30"),
    ({"count": "entropy-bound:-1"}, "gamma"),
    ({"count": 10**30}, "more than"),
    ({"passes": 25}, "25 passes are more than the 24 hidden tokens"),
    ({"passes": 10**6, "remask": "conf"}, "more than 100,000 is not possible"),
    ({"passes": 9, "block": 8}, "9 passes are more than the 8 hidden tokens of a block"),
    ({"passes": 4, "count": "2"}, "has no number of passes"),
    ({"order": "backwards"}, "the order is backwards"),
    ({"temperature": -0.5}, "must be at least 0 and finite"),
    ({"temperature": math.nan}, "must be at least 0 and finite"),
    ({"top_p": 0.0}, "top-p"),
    ({"correct_between": True}, "nothing to correct"),
    ({"chains": 0}, "chains is 0"),
    ({"batch_size": 0}, "batch size"),
]
BAD_BLANKS = [
    ("the cat sat", "no blank"),
    ("the [MASK:0] sat", "length 0"),
    ("the [MASK:x] sat", r"is no blank: write \[MASK\]"),
    ("the [MASK:3-1] sat", "upside down"),
    ("[MASK:1-9] and [MASK:1-9]", "81 combinations"),
    (None, "a text with blanks is needed"),
]


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a model is a mistake here."""

    def refused(*given: Any, **more: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("glauber.sampling.generate.load", refused)


@pytest.mark.parametrize(("given", "said"), BAD, ids=lambda one: str(one)[:40])
def test_bad_input_is_refused_before_a_model_is_loaded(
    no_model: None, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(GlauberError, match=said):
        glauber.generate("no-such-model", **given)


@pytest.mark.parametrize(("text", "said"), BAD_BLANKS)
def test_bad_blanks_are_refused_before_a_model_is_loaded(
    no_model: None, text: str, said: str
) -> None:
    with pytest.raises(GlauberError, match=said):
        glauber.infill("no-such-model", text)


def test_bad_input_that_only_a_model_shows(model: MaskedLM) -> None:
    with pytest.raises(GlauberError, match="reads at most 38"):
        glauber.generate(model, prefix="the cat sat on", length=35)
    with pytest.raises(GlauberError, match="the suffix has"):
        glauber.generate(model, suffix="the € .")
    with pytest.raises(GlauberError, match="3 passes are more than the 2 hidden tokens"):
        glauber.infill(model, "[MASK] and [MASK]", passes=3)
    unmasked = glauber.load(Joint.random(3, 4, seed=1))
    unmasked.hidden_token = None
    with pytest.raises(GlauberError, match="autoregressive and has no mask"):
        glauber.generate(unmasked)


def test_two_masks_of_a_tokenizer_are_blanks(tmp_path: Path) -> None:
    """The model's own mask token is a blank too."""
    import transformers

    from conftest import make_tokenizer

    tokenizer = make_tokenizer()
    backend = tokenizer.backend_tokenizer
    backend.add_special_tokens(["<mask>"])
    own = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, mask_token="<mask>", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", pad_token="[PAD]",
    )  # fmt: skip
    built = make_model("bert")
    built.resize_token_embeddings(len(own))
    found = glauber.infill(MaskedLM(built, own, name="own"), "the <mask> sat on [MASK:2] .")
    assert found.blanks is not None and found.blanks.lengths == ((1, 2),)
    assert studied.read_lengths("12-30") == (12, 30)


def test_a_mask_token_may_have_any_spelling(tiny_folder: Path, tmp_path: Path) -> None:
    """XLM's mask token is <special1>."""
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    for path in folder.glob("*token*.json"):
        path.write_text(path.read_text().replace("[MASK]", "<special1>"))
    expected = glauber.infill(str(tiny_folder), "the [MASK] sat .", device="cpu").texts
    for blank in ("<special1>", "[MASK]"):
        assert glauber.infill(str(folder), f"the {blank} sat .", device="cpu").texts == expected
