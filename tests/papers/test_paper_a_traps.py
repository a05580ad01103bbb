"""The pieces on traps and quotations: each claim is its number recomputed by hand."""

from dataclasses import replace
from itertools import pairwise
from math import log
from types import SimpleNamespace

import numpy as np
import pytest

import glauber
from conftest import TEXTS
from glauber import paper, sample
from glauber.papers import paper_a_traps
from glauber.papers.paper_a_traps import MECHANISMS, QUOTES
from glauber.papers.piece import Answers
from glauber.studies.metastability import quoted_traps as quotes
from glauber.studies.metastability.quoted_traps import Quotation
from glauber.studies.metastability.traps import TrapSearch
from tiny_nli import make_nli


def _values(**values):
    return SimpleNamespace(values=values, **values)


@pytest.fixture(scope="module")
def catalogue(tiny_folder):
    """Of the rolling detector, with few enough edits in a family for several of them."""
    run = sample(str(tiny_folder), TEXTS, steps=600, chains=6, temperature=0.1)
    model = glauber.load(str(tiny_folder), dtype="float64").conditionals()
    search = TrapSearch(run, model, neighbours=4)
    how = dict(window=40, stride=10, threshold=0.25, shortest=30, reach=1)
    return search.rolling("tokens", **how)


def claims_of(catalogue, starts=(0.1, 0.2, 0.3)):
    answers = Answers(rolling=catalogue, starts=list(starts), settings=_values(chains=6))
    return [entry.claim(answers) for entry in MECHANISMS.claims]


def test_each_claim_is_its_number(catalogue):
    traps = catalogue.traps
    assert len(traps) > 8
    lasting, locked, family, loose, slows, rare, coherent, reinforced, depth, moves = (
        claim.quantity for claim in claims_of(catalogue)
    )
    weak = [trap for trap in traps if not trap.perfect]
    firm = [trap for trap in traps if trap.perfect]
    assert lasting.value == pytest.approx(np.mean([trap.duration <= 1200 for trap in weak]))
    ratios = [trap.neighbourhood.log_exit_time - log(trap.holding_time) for trap in weak]
    assert locked.value == pytest.approx(np.mean(ratios)) and min(ratios) > 0
    parts = [trap.margins.log_looseness for trap in firm]
    assert loose.value == pytest.approx(np.mean([a / (a + b) for a, b in parts]))
    entries = [trap.entry for trap in traps if trap.entry is not None]
    slowing = [entry.growth_before - entry.growth_after for entry in entries]
    assert slows.value == pytest.approx(np.mean(slowing)) and len(entries) < len(traps)
    left = [trap.escape for trap in traps if trap.escape is not None]
    assert rare.value == pytest.approx(np.mean([escape.probability < 0.1 for escape in left]))
    contrast = np.mean([t.coherence for t in firm]) - np.mean([t.coherence for t in weak])
    assert coherent.value == pytest.approx(contrast) and coherent.interval is not None
    by_chain = [
        np.mean([trap.neighbourhood.reinforcement for trap in weak if trap.chain == chain])
        for chain in sorted({trap.chain for trap in weak})
    ]
    assert reinforced.value == pytest.approx(np.mean(by_chain) - 0.2)
    assert depth.value == catalogue.ranks.by_min_gap.value
    assert moves.value == catalogue.ranks.by_escape_moves.value
    # The longest time that one chain spent in several traps of one family.
    longest = 0
    for members in catalogue.families:
        for chain in range(6):
            own = [traps[i].duration for i in members if traps[i].chain == chain]
            longest = max(longest, sum(own) if members_of_chain(traps, members) > 1 else 0)
    assert family.value is None or family.value == pytest.approx(longest / 600)


def members_of_chain(traps, members):
    """The most traps of these that one chain has."""
    chains = [traps[i].chain for i in members]
    return max(map(chains.count, chains))


def test_without_traps_nothing_can_be_told(catalogue):
    words = {claim.verdict.word for claim in claims_of(replace(catalogue, traps=()))}
    assert words == {"cannot tell"}


def test_the_piece_shares_its_chains_with_table_5(monkeypatch, tiny_folder, tmp_path):
    options = dict(model=str(tiny_folder), length=5, chains=3, steps=400, embedder="tokens")
    from glauber.papers import paper_a

    for module, name in ((paper_a, "A-table5"), (paper_a_traps, "A-traps")):
        piece = module.PIECES[name]
        small = piece.small | options | {"temperature": 0.05}
        small |= {"neighbours": 3} if name == "A-traps" else {}
        monkeypatch.setitem(module.PIECES, name, replace(piece, small=small))
    first = paper("A-table5", TEXTS, out=tmp_path)
    made = paper("A-traps", TEXTS, out=tmp_path)
    assert len(list((tmp_path / "chains").glob("[!.]*"))) == 1
    rolling = [row for row in first.rows if row.get("detector") == "rolling"]
    durations = [row["duration"] for row in rolling if "duration" in row]
    assert [row["duration"] for row in made.rows if "chain" in row] == durations
    assert {row["type"] for row in made.rows if "n_traps" in row} <= {"perfect", "approximate"}
    assert len(made.claims) == len(MECHANISMS.claims) and "3 most probable texts" in made.how


def test_the_claims_on_quotations(monkeypatch, tiny_folder):
    texts = (
        Quotation("theme song", TEXTS[0], "here", "perfect", 650, 5.44, 0.56),
        Quotation("scoring", "a bird and the cat .", "here", "approximate", 1200, 4.12),
        Quotation("sense", TEXTS[1], "here", meaning="coherent"),
        Quotation("nonsense", "the the the the", "here", meaning="nonsensical"),
    )
    monkeypatch.setattr(quotes, "QUOTED", texts)
    monkeypatch.setattr(quotes, "FACTS", tuple(pairwise(TEXTS[:4])))
    made = paper("A-quotes", model=str(tiny_folder), temperature=0.3)
    song, weak, coherent, nonsense, facts = made.claims  # no numbers of BERT's on another model
    gaps = [glauber.margins(str(tiny_folder), quote.text).margins for quote in texts]
    assert song.quantity.value == pytest.approx(gaps[0].margin, abs=1e-9)
    assert weak.quantity.value is None  # neither word is in this text
    assert coherent.quantity.value == float(gaps[2].perfect)
    assert nonsense.quantity.value == float(not gaps[3].perfect)
    assert facts.quantity.n == 3 and facts.quantity.unit == "pairs"
    assert [row["trap"] for row in made.rows[:4]] == [quote.name for quote in texts]
    assert made.rows[0]["published_mean_gap"] == 5.44

    study = glauber.quoted_traps(str(tiny_folder))
    answers = Answers(study=study, settings=_values(model=paper_a_traps.BERT))
    named = [entry.claim(answers) for entry in QUOTES.claims(answers)]
    assert [claim.published for claim in named if isinstance(claim.published, float)] == [
        0.56,
        5.44,
        0.56,
        4.12,
    ]
    assert named[1].quantity.value == pytest.approx(gaps[0].mean_gap, abs=1e-9)
    assert named[4].quantity.value == pytest.approx(gaps[1].mean_gap, abs=1e-9)


def test_both_words_of_the_scoring_sentence_must_be_weak(monkeypatch, tiny_folder):
    quote = Quotation("scoring", TEXTS[0], "here")
    monkeypatch.setattr(quotes, "QUOTED", (quote,))
    study = glauber.quoted_traps(str(tiny_folder))
    held = study.trap("scoring")
    named = replace(held, tokens=["while", "would", *held.tokens[2:]])
    study = replace(study, traps=[replace(study.traps[0], ours=named)])
    answers = Answers(study=study, settings=_values(model="another"))
    weak = next(iter(QUOTES.claims(answers))).claim(answers)
    assert weak.quantity.value == pytest.approx(max(held.margins.gaps[:2]))


def test_the_piece_on_persistence_ranks_stays(monkeypatch, tiny_folder, tmp_path):
    piece = paper_a_traps.PERSISTENCE
    options = dict(model=str(tiny_folder), length=5, chains=5, steps=200, embedder="tokens")
    small = piece.small | options | {"temperature": 0.5, "scorer": str(make_nli(tmp_path / "nli"))}
    monkeypatch.setitem(paper_a_traps.PIECES, "A-persistence", replace(piece, small=small))
    made = paper("A-persistence", TEXTS, out=tmp_path / "papers")
    (chains,) = (tmp_path / "papers" / "chains").glob("[!.]*")
    found = glauber.persistence(chains, embedder="tokens")
    margins, moves = made.claims[:2]
    assert margins.quantity.value == pytest.approx(found.ranks.by_min_gap.value)
    assert moves.quantity.value == pytest.approx(found.ranks.by_escape_moves.value)
    assert (margins.region.low, moves.region.high) == (0.0, 0.0)
    own = [stay for stay in found.stays if stay.label == "basin 0"]
    row = next(row for row in made.rows if row["label"] == "basin 0")
    assert row["stays"] == len(own)
    assert row["duration"] == pytest.approx(np.mean([stay.duration for stay in own]))
    assert len(made.claims) == 4 and "by topics" in made.claims[2].sentence
