"""What is said of each trap, against the run's texts and the model asked one site at a time."""

import json
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

import glauber
from conftest import VOCABULARY, make_model, make_tokenizer
from crafted_run import crafted_run
from glauber.foundation.errors import GlauberError
from glauber.foundation.study import entries_of, plain
from glauber.interfaces.plots.metastability import plot_gaps_against_duration, plot_trap_timeline
from glauber.models.base import log_probs
from glauber.sampling.reopened import reopen
from glauber.sampling.sample import sample
from glauber.studies.metastability.episodes import Episode
from glauber.studies.metastability.margins import margins_of, neighbourhood_of
from glauber.studies.metastability.regimes import regime
from glauber.studies.metastability.traps import PUBLISHED, TrapSearch

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
def conditionals(run):
    return reopen(run).conditionals


def states_of(run, chain):
    return [tuple(tokens[chain].tolist()) for _, tokens in run.states()]


@pytest.fixture(scope="module")
def catalogue(run, conditionals):
    return TrapSearch(run, conditionals).hamming(radius=1, shortest=30)


def test_representatives_and_escapes_are_those_of_the_path(run, conditionals, catalogue):
    assert len(catalogue.traps) > 5
    paths = {chain: states_of(run, chain) for chain in range(5)}
    escapes = 0
    for trap in catalogue.traps:
        path, episode = paths[trap.chain], trap
        inside = path[episode.first : episode.last + 1]
        counts = Counter(inside)
        state = tuple(trap.tokens.tolist())
        assert counts[state] == max(counts.values())
        assert trap.share_in_text == pytest.approx(counts[state] / episode.duration)
        assert trap.text == run.vocabulary.decode(state)
        if not trap.ended:
            assert trap.escape is None and episode.last == run.steps
            continue
        escapes += 1
        last, state = episode.last + 1, path[episode.last]  # the step that ends the trap
        (site,) = [i for i in range(len(state)) if path[last][i] != state[i]]
        escape = trap.escape
        assert (escape.step, escape.site) == (last, site - run.first_site)
        assert [escape.old, escape.new] == [
            run.vocabulary.spell(token) for token in (state[site], path[last][site])
        ]
        row = log_probs(
            conditionals, torch.tensor([state]), torch.tensor([[site]]), temperature=TEMPERATURE
        )[0, 0]
        assert escape.probability == pytest.approx(float(row[path[last][site]].exp()), rel=1e-3)
        left = margins_of(conditionals, torch.tensor(state), torch.from_numpy(run.free[trap.chain]))
        assert escape.at_weakest == (left.sites[int(left.gaps.argmin())] == site)
    assert escapes > 3


def test_gaps_bounds_and_holding_times_are_those_of_the_model(run, conditionals, catalogue):
    for trap in catalogue.traps:
        free = np.flatnonzero(run.free[trap.chain])
        gaps, leaving = [], []
        for site in free:
            asked = torch.from_numpy(trap.tokens)[None], torch.tensor([[site]])
            scores = conditionals.scores(*asked)[0, 0]
            own = int(trap.tokens[site])
            rest = scores.clone()
            rest[own] = -torch.inf
            gaps.append(float(scores[own] - rest.max()))
            leaving.append(1 - float(torch.softmax(scores.double() / TEMPERATURE, 0)[own]))
        assert trap.mean_gap == pytest.approx(np.mean(gaps), abs=1e-4)
        assert trap.min_gap == pytest.approx(min(gaps), abs=1e-4)
        assert trap.weakest.site == free[int(np.argmin(gaps))] - run.first_site
        assert trap.perfect == (min(gaps) > 0)
        assert trap.margins.holding_time == pytest.approx(1 / np.mean(leaving), rel=1e-3)


def somers_by_hand(catalogue, gaps):
    """Pairs of different families whose shorter one ended; a text counts once in all."""
    family = {i: number for number, each in enumerate(catalogue.families) for i in each}
    times = Counter(trap.text for trap in catalogue.traps)
    total = agree = pairs = 0
    for i, short in enumerate(catalogue.traps):
        for j, long in enumerate(catalogue.traps):
            known = short.duration < long.duration and short.ended
            if known and family[i] != family[j]:
                weight = 1 / times[short.text] / times[long.text]
                total, pairs = total + weight, pairs + 1
                agree += weight * np.sign(gaps[j] - gaps[i])
    return agree / total, pairs


def test_the_summary(catalogue):
    catalogue = replace(catalogue, reach=0)  # of so short texts all would be one family
    told, ranks = catalogue, catalogue.ranks
    durations = [trap.duration for trap in catalogue.traps]
    assert told.n_traps == len(durations)
    assert 0 < told.n_perfect == sum(trap.min_gap > 0 for trap in catalogue.traps) < told.n_traps
    assert told.mean_duration.value == pytest.approx(np.mean(durations))
    assert (told.shortest, told.longest) == (min(durations), max(durations))
    assert told.share == pytest.approx(sum(durations) / (5 * 501))
    for found, gaps in (
        (ranks.by_mean_gap, [trap.mean_gap for trap in catalogue.traps]),
        (ranks.by_min_gap, [trap.min_gap for trap in catalogue.traps]),
    ):
        value, pairs = somers_by_hand(catalogue, gaps)
        assert found.value == pytest.approx(value) and found.n_pairs == pairs
        assert found.n_families == len(catalogue.families)
    apart = ranks.by_mean_gap.value - ranks.by_min_gap.value
    assert ranks.difference.value == pytest.approx(apart)
    low, high = ranks.difference.interval
    assert -2 <= low <= apart <= high <= 2
    assert (ranks.better is None) == (low <= 0 <= high)
    low, high = told.mean_duration.interval
    assert 30 <= low <= told.mean_duration.value <= high
    expected = sum(t.observed.steps / t.margins.holding_time for t in catalogue.traps)
    left = sum(trap.observed.departures for trap in catalogue.traps)
    assert told.seen_to_exact.value == pytest.approx(expected / left)
    assert sorted(chain(*catalogue.families)) == list(range(len(durations)))


@pytest.mark.parametrize(("embedder", "threshold"), [("tokens", 0.25), (embed, 0.05)])
def test_the_rolling_escape_and_entry_are_those_of_the_texts(
    run, conditionals, embedder, threshold
):
    """The last step that goes beyond the threshold after the last snapshot that is nearer."""
    stride, window = 10, 40
    how = dict(window=window, stride=stride, threshold=threshold, shortest=30)
    found = TrapSearch(run, conditionals).rolling(embedder, **how)
    paths = {chain: np.array(states_of(run, chain)) for chain in range(5)}

    def distance(chain, tokens, others):
        if embedder == "tokens":
            return (others != tokens)[:, run.free[chain]].mean(axis=1)
        texts = [run.vocabulary.decode(row) for row in [tokens, *others]]
        vectors = embed(texts)
        return 1 - vectors[1:] @ vectors[0]

    escapes = entries = 0
    for trap in found.traps:
        path, chain = paths[trap.chain], trap.chain
        end = min(trap.last + 1 + window, run.steps)
        looks = range(trap.first, end + 1, stride)
        near = [t for t in looks if distance(chain, trap.tokens, path[[t]])[0] <= threshold]
        if not trap.ended or not near or near[-1] == looks[-1]:
            assert trap.escape is None
        else:
            escapes += 1
            inside = range(near[-1], near[-1] + stride + 1)
            step = 1 + max(
                t for t in inside if distance(chain, trap.tokens, path[[t]])[0] <= threshold
            )
            assert trap.escape.step == step
            (site,) = np.flatnonzero(path[step] != path[step - 1])
            assert trap.escape.site == site - run.first_site
            assert trap.escape.new == run.vocabulary.spell(path[step][site])
        if trap.first < window:
            assert trap.entry is None
            continue
        entries += 1
        far = distance(chain, path[0], path[[trap.first - window, trap.first, trap.first + window]])
        growth = trap.entry.growth_before, trap.entry.growth_after
        assert growth == pytest.approx(np.diff(far), abs=1e-6)
        ahead = [trap.first + stride * (1 + k) for k in range(window // stride)]
        assert trap.entry.drift_at == pytest.approx(
            distance(chain, path[trap.first], path[ahead]).mean(), abs=1e-6
        )
        assert trap.entry.drift_at < threshold
    assert escapes > 3 and entries > 3


def test_durations_by_type_and_by_family(catalogue):
    for each in catalogue.by_type:
        own = [t for t in catalogue.traps if t.perfect == (each.type == "perfect")]
        assert each.n_traps == len(own)
        assert each.mean.value == pytest.approx(np.mean([t.duration for t in own]))
        assert (each.shortest, each.longest) == (
            min(t.duration for t in own),
            max(t.duration for t in own),
        )
    assert {each.type for each in catalogue.by_type} == {"perfect", "approximate"}
    for family in catalogue.family_durations:
        by_chain = Counter()
        for i in family.traps:
            by_chain[catalogue.traps[i].chain] += catalogue.traps[i].duration
        assert family.steps == sum(by_chain.values()) and family.n_chains == len(by_chain)
        assert family.most_steps == max(by_chain.values())
    assert catalogue.family_durations[0].most_traps > 1
    assert f"{catalogue.family_durations[0].steps:,} steps together" in "\n".join(
        catalogue.lines(show=1)
    )


def test_the_moves_rank_with_durations_too(catalogue):
    catalogue = replace(catalogue, reach=0)
    value, _ = somers_by_hand(catalogue, [trap.escape_moves for trap in catalogue.traps])
    assert catalogue.ranks.by_escape_moves.value == pytest.approx(value)


def test_the_neighbourhood_of_a_trap_is_that_of_its_text(run, conditionals):
    (found,) = glauber.traps(run, detector="hamming", shortest=30, neighbours=4).catalogues
    model = glauber.load(run.spec.model, dtype="float64").conditionals()
    for trap in found.traps[:3]:
        state = torch.from_numpy(trap.tokens), torch.from_numpy(run.free[trap.chain])
        own = neighbourhood_of(model, *state, temperature=TEMPERATURE, neighbours=4)
        assert trap.neighbourhood.log_exit_time == pytest.approx(own.log_exit_time)
        assert own.log_exit_time > np.log(trap.holding_time)
    assert "with the texts one token away" in "\n".join(found.traps[0].lines())


def test_a_token_that_is_never_drawn_is_no_representative(conditionals, tmp_path):
    """[UNK] stands in a start until its site is redrawn."""
    start = [VOCABULARY.index(word) for word in ["the", "[UNK]", "sat", "on", "it", "."]]
    sites, tokens = np.full((1, 40), 2), np.full((1, 40), start[2])
    sites[0, 29:], tokens[0, 29:] = 1, VOCABULARY.index("cat")
    run = crafted_run(tmp_path / "run", [start], sites, tokens)
    search = TrapSearch(run, conditionals)
    traps, (left_out,) = search.find_traps([Episode(0, 0, 29, ended=True)])
    assert not traps and "never drawn" in left_out.reason
    assert left_out.line().startswith("not counted: chain 0, from step 0, 30 steps: ")
    (trap,), none = search.find_traps([Episode(0, 0, 30, ended=True)])
    assert not none
    found = TrapSearch(run, conditionals).hamming(radius=0, shortest=20)
    assert not found.traps
    assert left_out.line() in list(found.lines(show=5))
    (skipped,) = map(entries_of, found.skipped)
    reason = {"reason": left_out.reason, "duration": 30, "duration_kind": "exact"}
    assert skipped == {"chain": 0, "first": 0, "last": 29, "ended": True} | reason
    assert trap.tokens.tolist() == [start[0], VOCABULARY.index("cat"), *start[2:]]


def test_other_kernels_are_refused(tiny_folder, conditionals):
    for options in ({"scan": "sweep"}, {"scan": "block:2"}, {"fill": "greedy"}):
        other = sample(str(tiny_folder), ["the cat sat on it ."], steps=5, **options)
        with pytest.raises(GlauberError, match="one random site a step"):
            TrapSearch(other, conditionals).hamming()
        with pytest.raises(GlauberError, match="one random site a step"):
            TrapSearch(other, conditionals).rolling(embed, window=4, stride=1)


def test_the_pictures(catalogue):
    bars = plot_trap_timeline(catalogue).data
    assert sum(len(bar.x) for bar in bars) == len(catalogue.traps)
    firsts = {trap.first for trap in catalogue.traps}
    assert {first for bar in bars for first in bar.base} == firsts
    assert all(bar.customdata[0].count("chain") == 1 for bar in bars if bar.x)
    means, mins = plot_gaps_against_duration(catalogue).data
    assert np.allclose(means.x, [trap.mean_gap for trap in catalogue.traps])
    assert list(mins.y) == [trap.duration for trap in catalogue.traps]
    empty = replace(catalogue, traps=())
    assert empty.mean_duration is None and empty.families == []
    plot_trap_timeline(empty), plot_gaps_against_duration(empty)


def test_the_study(run, catalogue, tmp_path):
    found = glauber.traps(run.folder, shortest=30, window=40, stride=10, embedder=embed)
    answer = found.to_dict()
    assert answer == json.loads(json.dumps(answer, allow_nan=False))
    rolling, hamming = answer["catalogues"]
    assert rolling["detector"] == "rolling" and rolling["settings"]["window"] == 40
    assert "embed" in rolling["distance"]
    assert len(hamming["traps"]) == len(catalogue.traps) == hamming["n_traps"]
    assert [t["text"] for t in hamming["traps"]] == [t.text for t in catalogue.traps]
    assert all(t["kind"] == "exact" for t in hamming["traps"])
    assert {t["duration_kind"] for t in hamming["traps"]} == {"exact", "lower bound"}
    assert {t["duration_kind"] for t in rolling["traps"]} <= {"estimate", "lower bound"}
    rows = found.frame()
    assert len(rows) == len(rolling["traps"]) + len(hamming["traps"])
    assert list(found.figures()) == [
        "rolling-timeline", "rolling-gaps", "hamming-timeline", "hamming-gaps"
    ]  # fmt: skip
    exact = glauber.traps(run, detector="hamming", shortest=30, show=2)
    said = str(exact)
    assert "hamming detector" in said and "rolling detector" not in said
    assert f"{len(catalogue.traps)} traps, {catalogue.n_perfect} perfect" in said
    assert said.count(", from step") == 2 and f"and {len(catalogue.traps) - 2} shorter" in said


def test_a_run_too_short_for_the_traps_asked_for_says_how_long_they_were(run, catalogue):
    longest = max(trap.duration for trap in catalogue.traps)
    said = str(glauber.traps(run, detector="hamming", shortest=1000))
    assert "No trap of 1,000 steps or more" in said and "moved on" not in said
    assert "more than 501 steps cannot be seen in a run of 500 steps" in said
    assert f"{longest:,} steps, in chain" in said
    # Of 51 snapshots 10 steps apart the last 4 have no whole window: 47 of them count as strides.
    rolling = glauber.traps(
        run, detector="rolling", window=40, stride=10, shortest=480, embedder=embed
    )
    assert "more than 470 steps cannot be seen" in str(rolling)
    seen = glauber.traps(run, detector="hamming", shortest=501)
    assert "cannot be seen" not in str(seen)


INT8 = pytest.param("int8", marks=pytest.mark.int8)


@pytest.mark.parametrize("dtype", [INT8, "bfloat16", "float32"])
def test_gaps_are_those_of_float64_whatever_a_run_was_drawn_in(tiny_folder, tmp_path, dtype):
    texts = ["the cat sat on the mat ."] * 2
    how = dict(steps=300, temperature=TEMPERATURE, dtype=dtype, out=tmp_path / "run")
    run = sample(str(tiny_folder), texts, **how)
    found = glauber.traps(run, detector="hamming", shortest=20)
    (catalogue,) = found.catalogues
    assert catalogue.traps and (f"drawn in {dtype}" in str(found)) == (dtype != "float32")
    assert all("same weights in float64" in note for note in found.notes)
    model = glauber.load(str(tiny_folder), dtype="float64").conditionals()
    for trap in catalogue.traps:
        free = torch.from_numpy(run.free[trap.chain])
        own = margins_of(model, torch.from_numpy(trap.tokens), free, temperature=TEMPERATURE)
        np.testing.assert_allclose(trap.margins.gaps, own.gaps, atol=1e-12)
        assert trap.margins.kind == "exact"
    rough = reopen(run).conditionals
    if dtype == "bfloat16":
        (trap, *_) = TrapSearch(run, rough).hamming(shortest=20).traps
        assert trap.kind == "estimate" and "exact" not in str(trap.lines())


def test_the_published_count_stands_beside_the_published_model_only(run, monkeypatch):
    found = glauber.traps(run, detector="hamming", shortest=30)
    assert found.published is None and "published" not in str(found)
    assert found.to_dict()["published"] is None
    monkeypatch.setitem(PUBLISHED, "model", Path(run.spec.model).name)
    same = glauber.traps(run, detector="hamming", shortest=30)
    assert same.published == PUBLISHED and "published for this model: 17 traps" in str(same)


def test_each_chain_is_held_at_its_own_temperature(tiny_folder, tmp_path):
    heats = [0.1, 0.2, 0.4]
    texts, out = ["the cat sat on the mat ."] * 3, tmp_path / "run"
    run = sample(str(tiny_folder), texts, steps=300, temperature=heats, out=out)
    found = glauber.traps(run, detector="hamming", shortest=5)
    (catalogue,) = found.catalogues
    assert "temperatures 0.1 to 0.4" in str(found)
    assert found.to_dict()["catalogues"][0]["temperatures"] == heats
    assert {trap.chain for trap in catalogue.traps} == {0, 1, 2}
    model = glauber.load(str(tiny_folder), dtype="float64").conditionals()
    for trap in catalogue.traps:
        free = torch.from_numpy(run.free[trap.chain])
        own = heats[trap.chain]
        held = margins_of(model, torch.from_numpy(trap.tokens), free, temperature=own)
        assert trap.margins.temperature == own
        assert trap.margins.holding_time == pytest.approx(held.holding_time)
    with pytest.raises(GlauberError, match="one temperature"):
        regime(run, embed)


def test_tokens_that_a_run_forbids_have_no_part_in_its_gaps(tiny_folder, tmp_path):
    how = dict(steps=120, temperature=TEMPERATURE, forbid=["dog", "bird"], out=tmp_path / "run")
    run = sample(str(tiny_folder), ["the cat sat on the mat ."], **how)
    (found,) = glauber.traps(run, detector="hamming", shortest=2).catalogues
    every = glauber.load(str(tiny_folder)).vocabulary.proposable().sum()
    assert found.traps and {trap.margins.n_tokens for trap in found.traps} == {int(every) - 2}


def test_a_run_without_the_name_of_its_model_takes_the_model(tmp_path):
    model = glauber.MaskedLM(make_model(), make_tokenizer())
    run = sample(model, ["the cat sat on the mat ."], steps=60, out=tmp_path / "run")
    with pytest.raises(GlauberError, match="without a name"):
        glauber.traps(run, detector="hamming", shortest=2)
    assert glauber.traps(run, detector="hamming", shortest=2, model=model).catalogues[0].traps
    with pytest.raises(GlauberError, match="is not the model that made"):
        glauber.traps(run, detector="hamming", shortest=2, model="bundled:english")


def test_a_bound_that_says_nothing_is_called_vacuous(catalogue):
    for trap in catalogue.traps:
        bound = trap.margins.escape_bound
        if bound is None:
            assert "not a perfect trap" in trap.bound_says
        else:
            assert ("vacuous" in trap.bound_says) == (bound >= 1)
    loose = next(trap for trap in catalogue.traps if trap.perfect)
    warm = replace(loose, margins=replace(loose.margins, temperature=10.0))
    assert warm.margins.escape_bound > 1 and "vacuous" in warm.bound_says
    assert "vacuous" in warm.lines()[3]


def test_sites_are_numbered_for_people(tiny_folder, tmp_path):
    """From 0 without [CLS] and the prefix: as `freeze` counts them."""
    texts, out = ["the cat sat on the mat ."] * 2, tmp_path / "run"
    run = sample(
        str(tiny_folder), texts, steps=300, temperature=TEMPERATURE, prefix="a big dog", out=out
    )
    (found,) = glauber.traps(run, detector="hamming", shortest=10).catalogues
    sites = range(run.free[0].sum())
    assert found.traps and run.free[0, :4].sum() == 0
    for trap, row in zip(found.traps, map(plain, map(entries_of, found.traps)), strict=True):
        number = row["weakest"]["site"]
        assert number == trap.weakest.site and number in sites
        assert run.vocabulary.spell(trap.tokens[4 + number]) == row["weakest"]["token"]
        assert f"site {number} (exact)" in trap.lines()[2]
        if trap.escape is not None:
            assert row["escape"]["site"] == trap.escape.site in sites
    assert any(trap.escape is not None for trap in found.traps)


def test_bad_input_is_one_sentence(run, tiny_folder, tmp_path):
    empty = sample(str(tiny_folder), ["the cat sat"], steps=0, out=tmp_path / "empty")
    for folder, asked, why in (
        (run, {"window": 700}, "500 steps, but the window is 700"),
        (run, {"detector": "eyes"}, "both, rolling, hamming"),
        (run, {"detector": "hamming", "radius": -1}, "at least 0"),
        (run, {"threshold": float("nan")}, "above 0 and at most 2"),
        (run, {"threshold": 1.5, "embedder": "tokens"}, "share of sites that differ is at most 1"),
        (run, {"reach": -1}, "at least 0"),
        (run, {"window": 100.5}, "whole number"),
        (run, {"shortest": 10**30}, "is not possible"),
        (run, {"shortest": 0}, "at least 1"),
        (empty, {}, "no steps yet"),
        (empty, {"detector": "hamming"}, "no steps yet"),
        (tmp_path / "nowhere", {}, "nowhere"),
    ):
        with pytest.raises(GlauberError, match=why):
            glauber.traps(folder, **asked)
