"""A page carries a run as it was: its states, and what was found in which steps."""

import base64
import gzip
import json
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from conftest import TEXTS
from glauber import sample
from glauber.interfaces.report import watch
from glauber.interfaces.report.watch import first_seen, no_bands, topic_bands, watch_data
from glauber.runs.run import text_span
from glauber.runs.snapshots import snapshots
from glauber.studies.landscape.scorers import TopicScores


@pytest.fixture(scope="module")
def run(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return sample(
        str(tiny_folder), TEXTS, chains=3, length=4, steps=60, temperature=0.4, out=folder
    )


def unpacked(page):
    return json.loads(gzip.decompress(base64.b64decode(page.packed)))


def values(column):
    kinds = {"int32": "<i4", "float32": "<f4"}
    return np.frombuffer(base64.b64decode(column["data"]), kinds[column["dtype"]])


@pytest.mark.parametrize(("most", "every"), [(60_000, 1), (70, 5)])
def test_the_film_gives_back_every_state(run, monkeypatch, most, every):
    monkeypatch.setattr(watch, "EVENTS", most)
    page = watch_data(run, {"traps": no_bands("none")}, chain=2)
    held = unpacked(page)
    film = held["film"]
    assert film["every"] == held["run"]["every"] >= every and held["chain"] == 2
    assert ("one state in" in page.note) == (film["every"] > 1)
    spans = [text_span(run.vocabulary, *one) for one in zip(run.tokens(0), run.free, strict=True)]
    state = [np.array(row) for row in film["begin"]]
    columns = [values(film[name]) for name in ("frame", "chain", "site", "token")]
    events = list(zip(*columns, strict=True))
    for frame in range(film["count"] + 1):
        for when, chain, site, token in events:
            if when == frame:
                state[chain][site] = token
        whole = run.tokens(frame * film["every"])
        for chain, (first, last) in enumerate(spans):
            np.testing.assert_array_equal(state[chain], whole[chain, first:last])


def test_figures_of_an_event_keep_three_digits(run):
    film = unpacked(watch_data(run, {}, chain=0))["film"]
    order = np.lexsort((values(film["chain"]), values(film["frame"])))
    exact = run.read("log_prob_new")[:, :, 0].T.ravel()
    np.testing.assert_allclose(values(film["log_prob"])[order], exact, rtol=1e-3)


def test_a_trap_leads_to_the_first_step_with_its_text(run):
    """The representative is taken from the run itself: the text that stood longest in chain 1."""
    states = [run.tokens(step)[1] for step in range(61)]
    keys = [state.tobytes() for state in states]
    longest = max(set(keys[10:]), key=keys[10:].count)
    trap = SimpleNamespace(
        chain=1,
        first=10,
        last=60,
        tokens=np.frombuffer(longest, states[0].dtype),
    )
    assert first_seen(run, trap) == 10 + keys[10:].index(longest)


def test_topics_are_stretches_of_the_highest_score(run):
    read = snapshots(run, every=4)
    scores = np.random.default_rng(0).dirichlet(np.ones(3), (3, len(read)))
    topics = TopicScores(read.steps, scores, ("a", "b", "c"), "none", 4)
    bands = list(topic_bands(topics, read))
    for chain in range(3):
        own = [band for band in bands if band["chain"] == chain]
        assert own[0]["first"] == 0 and own[-1]["last"] == run.steps
        assert all(a["last"] + 1 == b["first"] for a, b in pairwise(own))
        for place, step in enumerate(read.steps):
            (band,) = [one for one in own if one["first"] <= step <= one["last"]]
            assert band["name"] == "abc"[scores[chain, place].argmax()]
            if band["first"] == step:
                assert band["text"] == run.text(chain, int(step))
