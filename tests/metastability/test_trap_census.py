"""What is said of each trap, against the run's texts and the model asked one site at a time."""

import json
from collections import Counter
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from conftest import VOCABULARY
from glauber.conditionals.base import log_probs
from glauber.errors import GlauberError
from glauber.figures.metastability import plot_gaps_against_duration, plot_trap_timeline
from glauber.metastability.catalogue import hamming_traps, rank_with, rolling_traps
from glauber.metastability.episodes import Episode, sojourns
from glauber.metastability.trap_census import census
from glauber.runs.embedding import Embedder
from glauber.runs.export import trajectory
from glauber.sampling.sample import reopen, sample

TEMPERATURE = 0.1


def embed(texts):
    counts = [[text.split().count(word) for word in VOCABULARY] + [0.1] for text in texts]
    stacked = np.array(counts, np.float32)
    return stacked / np.linalg.norm(stacked, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def run(tiny_folder, tmp_path_factory):
    texts = ["the cat sat on the mat .", "a big dog ran under it"]
    out = tmp_path_factory.mktemp("traps") / "run"
    return sample(str(tiny_folder), texts, steps=500, chains=5, temperature=TEMPERATURE, out=out)


@pytest.fixture(scope="module")
def laws(run):
    return reopen(run).laws


def states_of(run, chain):
    return [tuple(tokens[chain].tolist()) for _, tokens in trajectory(run)]


@pytest.fixture(scope="module")
def catalogue(run, laws):
    return hamming_traps(run, laws, radius=1, shortest=30)


def test_representatives_and_escapes_are_those_of_the_path(run, laws, catalogue):
    assert len(catalogue.traps) > 5
    paths = {chain: states_of(run, chain) for chain in range(5)}
    escapes = 0
    for trap in catalogue.traps:
        path, episode = paths[trap.episode.chain], trap.episode
        inside = path[episode.first : episode.last + 1]
        counts = Counter(inside)
        state = tuple(trap.tokens.tolist())
        assert counts[state] == max(counts.values())
        assert trap.share == pytest.approx(counts[state] / episode.duration)
        assert trap.text == run.vocabulary.decode(state)
        last = max(t for t in range(episode.first, episode.last + 1) if path[t] == state)
        while last <= run.steps and path[last] == state:
            last += 1
        if last > run.steps:
            assert trap.escape is None
            continue
        escapes += 1
        (site,) = [i for i in range(len(state)) if path[last][i] != state[i]]
        escape = trap.escape
        assert (escape.step, escape.site) == (last, site)
        assert (escape.old, escape.new) == (state[site], path[last][site])
        row = log_probs(
            laws, torch.tensor([state]), torch.tensor([[site]]), temperature=TEMPERATURE
        )[0, 0]
        assert escape.probability == pytest.approx(float(row[escape.new].exp()), rel=1e-3)
    assert escapes > 3


def test_gaps_bounds_and_holding_times_are_those_of_the_model(run, laws, catalogue):
    for trap in catalogue.traps:
        free = np.flatnonzero(run.free[trap.episode.chain])
        gaps, leaving = [], []
        for site in free:
            scores = laws.scores(torch.from_numpy(trap.tokens)[None], torch.tensor([[site]]))[0, 0]
            own = int(trap.tokens[site])
            rest = scores.clone()
            rest[own] = -torch.inf
            gaps.append(float(scores[own] - rest.max()))
            leaving.append(1 - float(torch.softmax(scores.double() / TEMPERATURE, 0)[own]))
        assert trap.mean_gap == pytest.approx(np.mean(gaps), abs=1e-4)
        assert trap.min_gap == pytest.approx(min(gaps), abs=1e-4)
        assert trap.weakest == free[int(np.argmin(gaps))]
        assert trap.perfect == (min(gaps) > 0)
        assert trap.margins.holding_time == pytest.approx(1 / np.mean(leaving), rel=1e-3)


def test_the_summary(catalogue):
    told = catalogue.summary()
    durations = [trap.duration for trap in catalogue.traps]
    assert told.n_traps == len(durations)
    assert 0 < told.n_perfect == sum(trap.min_gap > 0 for trap in catalogue.traps) < told.n_traps
    assert told.mean_duration == pytest.approx(np.mean(durations))
    assert (told.shortest, told.longest) == (min(durations), max(durations))
    assert told.share == pytest.approx(sum(durations) / (5 * 501))
    for found, gaps in (
        (told.by_mean_gap, [trap.mean_gap for trap in catalogue.traps]),
        (told.by_min_gap, [trap.min_gap for trap in catalogue.traps]),
    ):
        assert found.value == pytest.approx(spearmanr(durations, gaps).statistic)
    better = "mean gap" if told.by_mean_gap.value >= told.by_min_gap.value else "min gap"
    assert told.better_predictor == better
    assert sorted(chain(*catalogue.families)) == list(range(len(durations)))
    assert rank_with([1, 2, 3], [3, 1, 2]) is None and rank_with([1] * 5, range(5)) is None


def test_a_token_that_is_never_drawn_is_no_representative(tiny_folder, laws):
    """[UNK] stands in the start until its site is redrawn."""
    run = sample(str(tiny_folder), ["the xyzzy sat on it ."], steps=200, temperature=TEMPERATURE)
    path, paths = states_of(run, 0), list(sojourns(run))
    gone = next(step for step, state in enumerate(path) if 1 not in state)
    assert VOCABULARY[1] == "[UNK]" and gone > 0
    assert census(run, laws, [Episode(0, 0, gone - 1, ended=True)], paths) == []
    (trap,) = census(run, laws, [Episode(0, 0, gone, ended=True)], paths)
    assert tuple(trap.tokens.tolist()) == path[gone]


def test_other_kernels_are_refused(tiny_folder, laws):
    for options in ({"scan": "sweep"}, {"scan": "block:2"}, {"fill": "greedy"}):
        other = sample(str(tiny_folder), ["the cat sat on it ."], steps=5, **options)
        with pytest.raises(GlauberError, match="one random site a step"):
            hamming_traps(other, laws)
        with pytest.raises(GlauberError, match="one random site a step"):
            rolling_traps(other, laws, embed, window=4, stride=1)


def test_the_pictures(catalogue):
    bars = plot_trap_timeline(catalogue).data
    assert sum(len(bar.x) for bar in bars) == len(catalogue.traps)
    firsts = {trap.episode.first for trap in catalogue.traps}
    assert {first for bar in bars for first in bar.base} == firsts
    assert all(bar.customdata[0].count("chain") == 1 for bar in bars if bar.x)
    means, mins = plot_gaps_against_duration(catalogue).data
    assert np.allclose(means.x, [trap.mean_gap for trap in catalogue.traps])
    assert list(mins.y) == [trap.duration for trap in catalogue.traps]
    empty = replace(catalogue, traps=())
    assert empty.summary().mean_duration is None and empty.families == []
    plot_trap_timeline(empty), plot_gaps_against_duration(empty)


def test_the_command(glauber, run, tmp_path, monkeypatch, catalogue):
    loaded = lambda *_, **__: Embedder("words", embed)  # noqa: E731
    monkeypatch.setattr("glauber.runs.embedding.load_embedder", loaded)
    picture = tmp_path / "traps.html"
    words = ("traps", run.folder, "--shortest", 30, "--window", 40, "--stride", 10)
    code, out, err = glauber(*words, "--json", "--out", picture)
    told = json.loads(out)
    assert (code, err) == (0, "") and picture.read_text().count("plotly-graph-div") >= 4
    rolling, hamming = told["catalogues"]
    assert rolling["detector"] == "rolling" and rolling["settings"]["window"] == 40
    assert len(hamming["traps"]) == len(catalogue.traps) == hamming["summary"]["n_traps"]
    assert [t["text"] for t in hamming["traps"]] == [t.text for t in catalogue.traps]
    assert all(t["holding_time"]["kind"] == "exact" for t in hamming["traps"])
    assert {t["duration"]["kind"] for t in hamming["traps"]} == {"exact", "lower bound"}
    assert {t["duration"]["kind"] for t in rolling["traps"]} <= {"estimate", "lower bound"}
    code, out, _ = glauber(*words, "--detector", "hamming", "--show", 2)
    assert code == 0 and "hamming detector" in out and "rolling detector" not in out
    assert f"{len(catalogue.traps)} traps, {catalogue.summary().n_perfect} perfect" in out
    code, out, _ = glauber(*words, "--detector", "hamming", "--shortest", 601)
    assert (code == 0 and "at least 601" in out) or "No trap of 601 steps" in out


def test_bad_input_is_one_sentence(glauber, run, tiny_folder, tmp_path):
    empty = sample(str(tiny_folder), ["the cat sat"], steps=0, out=tmp_path / "empty")
    for words, why in (
        ((run.folder, "--window", 700), "500 steps, but the window is 700"),
        ((run.folder, "--detector", "eyes"), "rolling, hamming or both"),
        ((run.folder, "--detector", "hamming", "--radius", -1), "negative"),
        ((empty.folder,), "no steps yet"),
        ((empty.folder, "--detector", "hamming"), "no steps yet"),
    ):
        code, out, err = glauber("traps", *words, "--json")
        assert (code, out) == (2, "") and err.count("\n") == 1 and why in err
