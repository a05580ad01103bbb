"""Every study on a protein model: a vocabulary of 25, of which 20 residues may be drawn.

A study answers with residues and never with English (no topics, no meaning, no words), or refuses
in one sentence. The model is tiny and random, with the alphabet of the antibody model.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import conftest
import glauber
from alphabets import RESIDUES, letters
from glauber.foundation.study import Result
from glauber.interfaces.explorer.explore import explore
from glauber.studies.landscape.labels import TOPICS
from published_weights import published

VH = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYY"
    "CSRWGGDGFYAMDYWGQGTLVTVSS"
)
PIECES = [VH[first : first + 12] for first in range(0, 96, 12)]
ONE = VH[96:108]
STUDIES = {name for group in glauber.STUDIES.values() for name in group}


@dataclass(frozen=True)
class At:
    """What a call may use."""

    model: Any
    run: glauber.Run  # four chains at temperature 1
    cold: glauber.Run  # one chain at 0.05
    folder: Path

    @property
    def name(self) -> str:
        return str(self.model.name)


# What each study answers; a pair is a call and the sentence that it refuses with.
Call = Callable[[At], Any]
ANSWERS: dict[str, Call] = {
    "sample": lambda at: glauber.sample(at.model, PIECES[:2], steps=4, temperature=[3.0, 0.05]),
    "resume": lambda at: glauber.resume(at.run),
    "extend": lambda at: glauber.extend(glauber.sample(at.model, ONE, steps=3), steps=5),
    "show": lambda at: glauber.show(at.run, rows=4),
    "export": lambda at: glauber.export(at.run, to="text", out=at.folder / "texts.txt"),
    "models": lambda at: glauber.models(at.name),
    "verify": lambda at: glauber.verify(at.run),
    "repair": lambda at: glauber.repair(at.run),
    "cite": lambda at: glauber.cite(at.run),
    "doctor": lambda at: glauber.doctor(quick=True),
    "rectangles": lambda at: glauber.rectangles(at.model, PIECES, count=8, length=10),
    "single_mask": lambda at: glauber.single_mask(
        at.model, PIECES, count=3, length=8, top=3, chains=3, steps=30
    ),
    "entropy_production": lambda at: glauber.entropy_production(at.run),
    "potential": lambda at: glauber.potential(at.run, states=6, neighbours=1),
    "score": lambda at: glauber.score(at.model, PIECES[:3]),
    "likelihood_bound": lambda at: glauber.likelihood_bound(
        at.model, PIECES[:3], samples=2, orders=2
    ),
    "influence": lambda at: glauber.influence(
        at.model, ONE, samples=1, replacements=2, chains=3, sweeps=1
    ),
    "couple": lambda at: glauber.couple(at.model, PIECES, pairs=3, steps=30, temperature=3.0),
    "phase": lambda at: glauber.phase(
        at.model, PIECES, temperatures=[0.05, 3.0], lengths=[4, 6], pairs=3, steps=20
    ),
    "semantic_drift": lambda at: glauber.semantic_drift(at.run, every=5),
    "coherence": lambda at: glauber.coherence(at.run, every=5),
    "diagnose": lambda at: glauber.diagnose(at.run),
    "unbiased": lambda at: glauber.unbiased(
        at.model, ONE[:6], pairs=3, temperature=20.0, steps=80, first=2, last=5, lag=2
    ),
    "scan_bias": lambda at: glauber.scan_bias(at.model, ONE, sites=[3], tokens=30),
    "margins": lambda at: glauber.margins(at.model, ONE, temperature=0.05),
    "drift": lambda at: glauber.drift(
        at.model, PIECES, token="K", count=2, levels=1, samples=6, length=10
    ),
    "traps": lambda at: glauber.traps(
        at.cold, window=20, stride=5, shortest=8, threshold=0.5
    ),
    "basins": lambda at: glauber.basins(at.run, every=2, lag=2, clusters=3),
    "persistence": lambda at: glauber.persistence(at.run, every=2),
    "prefixes": lambda at: glauber.prefixes(
        at.model, PIECES, prefixes=["EVQL", "QVQLK"], words="K,Y", chains=3, length=6, steps=40,
        every=2,
    ),
    "compare": lambda at: glauber.compare(
        [at.model, at.model], PIECES, chains=3, length=6, steps=20, rectangles=6, every=5
    ),
    "report": lambda at: glauber.report(at.run, out=at.folder / "report.html", listed=2),
    "generate": lambda at: glauber.generate(at.model, length="4-6", prefix="EVQ", chains=3),
    "infill": lambda at: glauber.infill(at.model, "EVQL[MASK:1-2]ESG[MASK]", chains=2),
    "parallel_cost": lambda at: glauber.parallel_cost(at.model, ONE, sites="1,2,5", samples=8),
    "calibrate": lambda at: glauber.calibrate(
        at.model, PIECES * 4, length=6, error=0.5, passes=1, samples=4, written=3
    ),
    "frontier": lambda at: glauber.frontier(
        at.model, PIECES, length=4, chains=3, orders="confidence"
    ),
    "correction": lambda at: glauber.correction(
        at.model, ONE, hide=3, correct=(0, 1), chains=4
    ),
    "mutate": lambda at: glauber.mutate(at.model, ONE, ["S1K", "S1K:R2Y"], orders=4),
    "scan_mutations": lambda at: glauber.scan_mutations(at.model, ONE),
    "design": lambda at: glauber.design(
        at.model, ONE, free="3-6", omit="C", max_mutations=2, designs=3, temperature=3.0
    ),
    "paper": lambda at: glauber.paper("A-fig4", PIECES, model=at.name, steps=20),
}  # fmt: skip

UNREAD = (
    r"^topics are read by a sentence embedding, and there is none for these texts "
    r"\(the model's tokens are single characters, not words\): give a scorer or an embedder"
)
NO_PASSAGES = "does not read the bundled English passages: give texts to start from.$"
NO_TRANSLATOR = r"^there is no vocabulary .*residues/vocabulary.model\.$"
REFUSALS: dict[str, list[tuple[Call, str]]] = {
    "topics": [
        (lambda at: glauber.topics(at.run), UNREAD),
        (lambda at: glauber.topics(at.cold), UNREAD),  # not that one chain is too few
    ],
    "persistence": [(lambda at: glauber.persistence(at.run, of="topics"), UNREAD)],
    "translate": [(lambda at: glauber.translate([ONE], model=at.name), NO_TRANSLATOR)],
    "train_translator": [
        (
            lambda at: glauber.train_translator(_lines(at.folder), out=at.folder / "trained"),
            "^line 1 of .* has no source and target with a tab.$",
        )
    ],
    "evaluate_translator": [
        (lambda at: glauber.evaluate_translator(model=at.name, limit=2), NO_TRANSLATOR)
    ],
    "time_translator": [
        (lambda at: glauber.time_translator(model=at.name, limit=2), NO_TRANSLATOR)
    ],
    "sample": [(lambda at: glauber.sample(at.model, steps=2), NO_PASSAGES)],
    "couple": [
        (lambda at: glauber.couple(at.model, [ONE, ONE], pairs=2), "^all texts are the same, so"),
        (lambda at: glauber.couple(at.model, ONE), "^a pair needs two texts, but 1 was given"),
    ],
    "phase": [
        (
            lambda at: glauber.phase(at.model, [VH, VH[:4] + VH[9:]], lengths=[4], pairs=2),
            "^all texts are the same, so two chains would have met before the first step",
        )
    ],
    "quoted_traps": [
        (lambda at: glauber.quoted_traps(at.model), "^the quoted traps are English sentences, but")
    ],
    "prefixes": [(lambda at: glauber.prefixes(at.model, VH), "^the prefix has 'l' at")],
    "drift": [
        (lambda at: glauber.drift(at.model, PIECES, token="the", count=2), "'the' is not a single")
    ],
    "paper": [
        (lambda at: glauber.paper("A-table2", PIECES, model=at.name), "'!' is not a single token"),
        (lambda at: glauber.paper("A-fig5", model=at.name), NO_PASSAGES),
    ],
    "infill": [(lambda at: glauber.infill(at.model, "EVQL[MASK]J"), "'J' at character")],
}  # fmt: skip
for _name in ("rectangles", "single_mask", "calibrate"):
    REFUSALS[_name] = [(lambda at, _study=_name: getattr(glauber, _study)(at.model), NO_PASSAGES)]

# English, blanks between residues, tokens that are no residue, numbers that are none.
NEVER = [
    *(rf"\b{topic}\b" for topic in TOPICS),
    r"\bmeanings?\b", r"sentence embeddings of", r"\bwords? of\b", r"    words  ",
    r"\b(?:[A-Z] ){4}", r"\[UNK\]", r"\[MASK\]", r"\bnan\b", r"##", r"MiniLM",
]  # fmt: skip


def _lines(folder: Path) -> Path:
    """A file of sequences, which are no pairs of sentences."""
    path = folder / "sequences.txt"
    path.write_text("\n".join(PIECES) + "\n")
    return path


def _save_protein_model(folder: Path) -> None:
    torch.manual_seed(7)
    config = transformers.BertConfig(**conftest.SIZES | {"vocab_size": 25})
    model = transformers.BertForMaskedLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.16)
    model.save_pretrained(folder)
    letters(RESIDUES).save_pretrained(folder)


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "residues"
    _save_protein_model(folder)
    model = glauber.load(str(folder), device="cpu")
    runs = tmp_path_factory.mktemp("runs")
    run = glauber.sample(model, PIECES[:4], steps=120, seed=1, out=runs / "run")
    cold = glauber.sample(model, ONE, steps=60, temperature=0.05, seed=1, out=runs / "cold")
    return model, run, cold


@pytest.fixture
def at(ground, tmp_path):
    return At(*ground, tmp_path)


def test_every_study_is_walked():
    assert set(ANSWERS) | set(REFUSALS) == STUDIES


def wrong(found: Result) -> list[str]:
    """What a protein's answer must not say."""
    titles = [str(figure.layout.title.text) for figure in found.figures().values()]
    said = "\n".join([str(found), json.dumps(found.to_dict()), *titles])
    said = said.replace(str(found.signature), "")
    said = re.sub(r'"input": "[^"]*"', "", said)  # a text with blanks, as it was given
    return [pattern for pattern in NEVER if re.search(pattern, said)]


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_is_about_residues(name, at):
    found = ANSWERS[name](at)
    print(found)
    assert wrong(found) == []
    assert len(found.frame().columns)


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for name, all_ in REFUSALS.items() for place in range(len(all_))],
)
def test_a_refusal_is_one_sentence(name, place, at):
    call, sentence = REFUSALS[name][place]
    with pytest.raises(glauber.GlauberError, match=sentence) as refused:
        call(at)
    assert "\n" not in str(refused.value) and str(refused.value).endswith(".")


def test_a_basin_is_read_by_the_residues_at_its_sites(at):
    found = ANSWERS["basins"](at)
    said = [word for basin in found.basins for word in basin.words]
    assert said and all(re.fullmatch(r"(\d|1[01]):[A-Z]", word) for word in said)


def test_what_changed_stands_under_its_site(at):
    first, *rows = glauber.show(at.run, rows=4).lines()
    assert first == "small letters changed since the row above"
    texts = [row.split()[-1] for row in rows]
    assert [text.upper() for text in texts] == [
        one.text for one in glauber.show(at.run, rows=4).snapshots
    ]
    for above, below in pairwise(texts):
        changed = {site for site, letter in enumerate(below) if letter.islower()}
        assert changed == {s for s in range(12) if above.upper()[s] != below.upper()[s]}


def test_texts_that_begin_alike_are_no_pair(at):
    family = [VH[:4] + piece for piece in (PIECES[1], PIECES[1][::-1])] + [VH, VH + "A"]
    found = glauber.couple(at.model, family, pairs=6, length=6, steps=1)
    assert all(left != right for left, right in found.texts)


class Potts:
    """A rule of one's own over 25 letters: a joint law in which neighbours like to be equal."""

    name, vocab_size = "potts", 25
    vocabulary = (*RESIDUES, *"BJOUX")

    def scores(self, tokens, sites):
        padded = torch.nn.functional.pad(tokens.scatter(1, sites, -1), (1, 1), value=-1)
        beside = torch.stack([padded.gather(1, sites), padded.gather(1, sites + 2)], dim=-1)
        equal = beside[..., None] == torch.arange(self.vocab_size)
        return equal.sum(dim=2).double() + torch.linspace(0, 1, self.vocab_size).double()


OWN = {
    "sample": lambda rule, run: run,
    "show": lambda rule, run: glauber.show(run, rows=3),
    "semantic_drift": lambda rule, run: glauber.semantic_drift(run, every=10),
    "coherence": lambda rule, run: glauber.coherence(run, every=10, model=rule),
    "basins": lambda rule, run: glauber.basins(run, every=2, lag=2, clusters=3),
    "rectangles": lambda rule, run: glauber.rectangles(rule, PIECES, count=6, length=8),
    "couple": lambda rule, run: glauber.couple(rule, PIECES, pairs=3, steps=60),
    "margins": lambda rule, run: glauber.margins(rule, ONE, temperature=0.05),
    "mutate": lambda rule, run: glauber.mutate(rule, ONE, ["S1K:R2Y"]),
    "prefixes": lambda rule, run: glauber.prefixes(
        rule, PIECES, prefixes=["EVQL", "QVQLK"], words="K", chains=3, length=6, steps=20, every=2
    ),
    "generate": lambda rule, run: glauber.generate(rule, length=6, chains=2),
}


def test_a_rule_of_ones_own_over_25_letters(tmp_path):
    rule = Potts()
    run = glauber.sample(rule, PIECES[:4], steps=120, seed=2, out=tmp_path / "run")
    for name, call in OWN.items():
        found = call(rule, run)
        assert wrong(found) == [], name
    assert glauber.rectangles(rule, PIECES, count=6, length=8).mean.value < 1e-9
    with pytest.raises(glauber.GlauberError, match=UNREAD):
        glauber.topics(run)


def test_the_explorer_answers_in_residues(at):
    found = explore(at.run, browser=False)
    living = {"trails": [{"model": at.name, "text": ONE}]}
    try:
        answers = found.answers
        for source in ("run", living):
            film = answers("film", {"source": source, "first": 0, "count": 3})
            assert set(film["words"].values()) <= set(RESIDUES)
            asked = {"source": source, "chain": 0, "step": 1, "site": 2}
            top = answers("conditional", asked)["top"]
            assert 0 < len(top) <= 20 and {one["text"] for one in top} <= set(RESIDUES)
        filled = answers("fill", {"model": at.name, "text": "EVQL[MASK]ES"})
        assert "EVQL" in json.dumps(filled) and "E V Q" not in json.dumps(filled)
        why = _searched(answers, "topics")["why"]
        assert re.search(UNREAD.lstrip("^"), why)
        assert not re.search(r"[a-z]{12}", json.dumps(_searched(answers, "basins")["bands"]))
    finally:
        found.stop()


def _searched(answers, kind):
    """What a search in the background finds, once it has ended."""
    found = answers("bands", {"kind": kind})
    while found["state"] == "working":
        found = answers("bands", {"kind": kind})
    return found


@pytest.mark.weights
@pytest.mark.download
def test_the_antibody_model_is_walked(tmp_path):
    """A few studies with the real weights: trastuzumab's CDR-H3."""
    published("antibody", tmp_path / "antibody")
    model = glauber.load(str(tmp_path / "antibody"), device="cpu")
    pieces = [VH[92:104], VH[94:106]]
    run = glauber.sample(model, pieces, steps=10, seed=1, out=tmp_path / "run")
    cold = glauber.sample(model, pieces[0], steps=6, temperature=0.05, out=tmp_path / "cold")
    answers = [
        run,
        glauber.show(run, rows=3),
        glauber.semantic_drift(run, every=5),
        glauber.rectangles(model, pieces, count=2, length=8),
        glauber.couple(model, pieces, pairs=1, steps=4, temperature=3.0),
        glauber.infill(model, "EVQLVESGG[MASK]LVQ"),
        glauber.mutate(model, pieces[0], ["V1G"]),
    ]
    for found in answers:
        assert wrong(found) == [], found
    assert "EVQLVESGGGLVQ" in str(answers[5])
    with pytest.raises(glauber.GlauberError, match=UNREAD):
        glauber.topics(cold)
