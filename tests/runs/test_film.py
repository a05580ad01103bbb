"""A film, played by a few independent lines, is the run itself at every frame."""

import base64
import json
import math
import random
import struct

import numpy as np
import pytest
import torch

import glauber
from conftest import TEXTS
from crafted_run import crafted_run
from glauber.foundation.errors import GlauberError
from glauber.runs import folder_log
from glauber.runs.film import column, film, whole_film
from glauber.runs.run import Run
from resealed import committed_to

SEGMENT_STEPS = 16  # so that a short run has several segments
AROUND = {-1, 0, 2, 3}  # padding, [PAD], [CLS] and [SEP] of the tiny vocabulary


class Letters:
    """A rule over amino acids: each site has its own scores, whatever stands elsewhere."""

    vocabulary = tuple("ACDEFGHIKLMNPQRSTVWY")
    vocab_size = 20
    name = "letters"

    def scores(self, tokens, sites, candidates=None):
        table = torch.randn(12, 20, generator=torch.Generator().manual_seed(0))
        found = table[sites]
        return found if candidates is None else found.gather(-1, candidates)


PROTEINS = ["ACDEFGHIKLMN", "MNPQRSTVWYAC"]
OF_LETTERS = {
    "one chain": dict(chains=1),
    "two, hot and very cold": dict(chains=2, temperature=[30.0, 0.001]),
    "blocks": dict(chains=2, scan="block:3"),
    "everywhere": dict(chains=2, scan="everywhere"),
    "rejected": dict(chains=2, scan="adaptive:entropy", temperature=3.0),
}
OF_WORDS = {
    "eight of all lengths": dict(chains=8, temperature=0.7),
    "prefix and frozen sites": dict(chains=3, prefix="a dog .", freeze="0,2", temperature=2.0),
}
KINDS = [*OF_LETTERS, *OF_WORDS, "generation"]
STEPS = 69


@pytest.fixture(scope="module")
def runs(tiny_folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("films")
    model, letters = glauber.load(str(tiny_folder)), glauber.load(Letters())

    def made(rule, texts, name, how):
        folder = place / name.replace(" ", "-")
        return glauber.sample(rule, texts, steps=STEPS, seed=1, out=folder, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_log, "default_segment_steps", lambda n_chains, n_slots: SEGMENT_STEPS)
        found = {name: made(letters, PROTEINS, name, how) for name, how in OF_LETTERS.items()}
        found |= {name: made(model, TEXTS, name, how) for name, how in OF_WORDS.items()}
        found["generation"] = glauber.generate(
            model, length="5-9", prefix="the", suffix=".", chains=3, passes=20,
            remask="cap:0.3", correct=1, out=place / "generation",
        ).run  # fmt: skip
    return found


def decoded(one):
    raw = base64.b64decode(one["data"])
    letter = {"int32": "i", "float32": "f", "uint8": "B"}[one["dtype"]]
    return list(struct.unpack(f"<{len(raw) // struct.calcsize(letter)}{letter}", raw))


def visits_of(run):
    """After each step, for each chain: position -> (that step, log-probability, entropy)."""
    fields = [run.read(name) for name in ("site", "token", "log_prob_new", "entropy")]
    masks = set(run.tokens(0)[run.free].tolist()) if run.spec.unmasking else set()
    known = [{} for _ in range(run.n_chains)]
    yield known
    for step in range(run.steps):
        for chain, slot in np.ndindex(run.n_chains, fields[0].shape[2]):
            site, token, *figures = (field[chain, step, slot].item() for field in fields)
            if site >= 0:
                known[chain][site] = (step, *((math.nan,) * 2 if token in masks else figures))
        yield known


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def check(run, given):
    """Plays a film and compares every frame with what the run says."""
    reel = json.loads(json.dumps(given.to_dict(), allow_nan=False))
    first, every, count = reel["first"], reel["every"], reel["count"]
    columns = {
        name: decoded(reel[name])
        for name in ("frame", "chain", "site", "token", "log_prob", "entropy")
    }
    frames = columns["frame"]
    assert frames == sorted(frames) and all(1 <= f <= count for f in frames)
    where = list(zip(frames, columns["chain"], columns["site"], strict=True))
    assert len(set(where)) == len(where)
    began = run.tokens(0)
    spans, texts, sure = [], [], []
    for place, chain in enumerate(reel["chains"]):
        shown = [i for i, token in enumerate(began[chain].tolist()) if token not in AROUND]
        if run.spec.model == "letters":
            shown = list(range(len(began[chain])))
        spans.append((min(shown), max(shown) + 1))
        texts.append(list(reel["begin"][place]))
        sure.append(decoded(reel["begin_log_prob"][place]))
        assert len(texts[-1]) == len(sure[-1]) == reel["lengths"][place] == len(shown)
        held = [i - shown[0] for i in shown if not run.free[chain, i]]
        assert reel["frozen"][place] == held
    oldest = (max(0, first - 1) // SEGMENT_STEPS - 1) * SEGMENT_STEPS
    moments = {first + f * every: f for f in range(count + 1)}
    for step, visits in enumerate(visits_of(run)):
        if step not in moments:
            continue
        for f, chain, site, token, log_prob, entropy in zip(*columns.values(), strict=True):
            if f == moments[step]:
                texts[chain][site], sure[chain][site] = token, log_prob
                visit = visits[reel["chains"][chain]][spans[chain][0] + site]
                assert same(entropy, visit[2])
        tokens = run.tokens(step)
        for place, chain in enumerate(reel["chains"]):
            low, high = spans[place]
            assert texts[place] == tokens[chain, low:high].tolist()
            for position in range(low, high):
                visit = visits[chain].get(position, (-1, math.nan, math.nan))
                if visit[0] >= oldest or visit[0] < 0:
                    assert same(sure[place][position - low], visit[1])
    assert set(reel["words"]) >= {str(t) for text in texts for t in text}
    assert set(reel["words"]) >= {str(t) for t in columns["token"]}
    assert reel["end"] == run.steps


@pytest.mark.parametrize("kind", KINDS)
def test_a_film_is_the_run(runs, kind):
    run, draw = runs[kind], random.Random(kind)
    for _ in range(3):
        first, every = draw.randint(0, run.steps), draw.choice([1, 2, 3, 7, 20, 40])
        count = draw.randint(0, 6)
        chains = draw.sample(range(run.n_chains), draw.randint(1, run.n_chains))
        found = film(run, first=first, count=count, every=every, chains=chains)
        assert found.chains == tuple(chains) and found.first == first and found.every == every
        assert found.count == min(count, (run.steps - first) // every)
        check(run, found)


def test_every_step_across_segments_and_at_the_ends(runs):
    run = runs["two, hot and very cold"]
    check(run, film(run, first=SEGMENT_STEPS - 2, count=5))
    check(run, film(run, first=2 * SEGMENT_STEPS, count=2))
    assert film(run, first=run.steps, count=9).count == 0
    beyond = film(run, first=run.steps - 3, count=10**9)
    assert beyond.count == 3 and beyond.end == run.steps
    check(run, beyond)


def test_a_whole_film_keeps_to_its_budget(runs):
    run = runs["eight of all lengths"]
    for most, every in ((10**6, 1), (300, None)):
        found = whole_film(run, most_events=most)
        assert len(found.frame) <= most and found.first == 0
        assert every is None or found.every == every
        assert found.count == run.steps // found.every
        check(run, found)
    assert whole_film(run, most_events=300, chains=[2]).every == 1
    assert whole_film(run, most_events=1).count <= 1  # as thin as it gets


def test_a_run_that_has_not_moved_has_a_film_of_its_start(tmp_path):
    folder = crafted_run(tmp_path / "run", [[7, 8, 9]], [[0]], [[8]]).folder
    committed_to(folder, 0)
    run = Run(folder)
    for found in (film(run, first=0, count=5), whole_film(run)):
        assert found.count == 0 and len(found.frame) == 0
        assert [row.tolist() for row in found.begin] == [[7, 8, 9]]
        assert np.isnan(found.begin_log_prob[0]).all()


def test_masks_are_seen_and_spelled(runs):
    found = film(runs["generation"], first=0, count=1)
    assert any(4 in row.tolist() for row in found.begin) and found.words["4"].strip() == "[MASK]"


def test_nothing_is_read_twice_and_memory_is_bounded(runs, monkeypatch):
    run, files = Run(runs["blocks"].folder), []
    read_file = folder_log.read_file

    def counted(folder, name):
        files.append(name)
        return read_file(folder, name)

    monkeypatch.setattr(folder_log, "read_file", counted)
    film(run, first=3, count=8)
    film(run, first=5, count=3)
    assert sorted(files) == sorted(set(files)) and "events/00000001.parquet" not in files
    film(run, first=0, count=run.steps)
    files.clear()
    film(run.newest(), first=0, count=run.steps)
    assert files in ([], ["run.json"])
    monkeypatch.setattr(folder_log, "CACHED_BYTES", 1)
    fresh = Run(run.folder)
    film(fresh, first=0, count=run.steps)
    assert len(fresh.log._tables) == 1


@pytest.mark.parametrize(
    "asked",
    [
        dict(first=-1, count=1),
        dict(first=STEPS + 1, count=1),
        dict(first=0, count=-1),
        dict(first=0, count=1, every=0),
        dict(first=0, count=1, chains=[]),
        dict(first=0, count=1, chains=[0, 0]),
        dict(first=0, count=1, chains=[9]),
        dict(first="0", count=1),
    ],
)
def test_what_is_no_film_is_refused(runs, asked):
    with pytest.raises(GlauberError):
        film(runs["blocks"], **asked)


def test_columns_are_little_endian():
    assert column(np.array([1, -2]))["data"] == base64.b64encode(struct.pack("<2i", 1, -2)).decode()
    assert column(np.array([True, False])) == {"dtype": "uint8", "data": "AQA="}
    assert decoded(column(np.array([0.5, np.nan])))[0] == 0.5
