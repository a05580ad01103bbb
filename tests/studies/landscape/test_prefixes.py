"""Contrasts of prefixes on a tiny model, each figure worked out again by hand."""

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from conftest import TEXTS
from glauber import GlauberError, prefixes, sample
from glauber.models.masked_lm import MaskedLM
from glauber.runs.run import Run
from glauber.studies.landscape.prefixes import _first_steps, _pairs
from glauber.studies.landscape.scorers import Scorer, TopicScores

LABELS = ("the", "a", "other")
READ: list[str] = []


def share(texts):
    READ.extend(texts)
    split = [text.split() for text in texts]
    counts = np.array(
        [[words.count("the"), words.count("a"), 1 + len(words)] for words in split], float
    )
    return counts / counts.sum(axis=1, keepdims=True)


SCORER = Scorer("share", LABELS, share)
SIZES = dict(chains=6, length=5, steps=40, seed=2, every=10, scorer=SCORER)


def by_hand(run, chain, step):
    return share([run.vocabulary.decode(run.tokens(step)[chain][run.free[chain]])])[0]


@pytest.fixture(scope="module")
def model(tiny_folder):
    return MaskedLM.load(str(tiny_folder))


ASKED = ["the red cat", "we will be"]


@pytest.fixture(scope="module")
def pair(model, tmp_path_factory):
    """The study of a pair of prefixes, its runs and their folder."""
    folder = tmp_path_factory.mktemp("pair") / "runs"
    READ.clear()
    found = prefixes(
        model, TEXTS, prefixes=ASKED, words=["cat", "dog"], site=1, folder=folder, **SIZES
    )
    return found, [Run(one) for one in sorted(folder.iterdir())], folder


def test_a_contrast_is_the_difference_between_partners(pair):
    found, runs, _ = pair
    assert not any(text.startswith(tuple(ASKED)) for text in READ)
    (one,) = found.contrasts
    assert (one.first, one.second) == tuple(ASKED) and found.n_snapshots == 2
    assert [run.spec.prefix for run in runs] == ASKED
    late = [
        np.mean([[by_hand(run, chain, step) for chain in range(6)] for step in (30, 40)], axis=0)
        for run in runs
    ]
    apart = late[0] - late[1]  # (chains, labels)
    # Three labels and two words in one contrast: each interval errs with a fifth of 5%.
    factor = student.ppf(1 - 0.05 / 5 / 2, 5)
    for place, label in enumerate(LABELS):
        mine, other, difference = one.topics[label]
        assert mine.value == pytest.approx(late[0][:, place].mean())
        assert other.value == pytest.approx(late[1][:, place].mean())
        assert difference.value == pytest.approx(apart[:, place].mean())
        reach = factor * apart[:, place].std(ddof=1) / np.sqrt(6)
        expected = (difference.value - reach, difference.value + reach)
        low, high = np.clip(expected, -1, 1)  # Student's; never wider than what is given
        assert -1 <= difference.interval[0] <= low + 1e-12
        assert high - 1e-12 <= difference.interval[1] <= 1
    assert "5 figures (Bonferroni)" in found.correction
    assert one.texts[0][0].startswith("the red cat") and one.texts[1][0].startswith("we will be")


def test_the_other_way_round_is_the_same_with_the_sign_turned(model, pair):
    (one,) = pair[0].contrasts
    (other,) = prefixes(model, TEXTS, prefixes=ASKED[::-1], **SIZES).contrasts
    for label in LABELS:
        assert one.topics[label][2].value == pytest.approx(-other.topics[label][2].value)
    assert [word.word for word in one.more] == [word.word for word in other.less]
    assert [word.word for word in one.less] == [word.word for word in other.more]


def test_a_single_prefix_is_compared_with_none(model):
    found = prefixes(model, TEXTS, prefixes=["the red cat"], **SIZES)
    (one,) = found.contrasts
    assert (one.first, one.second) == ("the red cat", "") and one.names[1] == "no prefix"
    plain = sample(model, TEXTS, steps=40, chains=6, length=5, seed=2)
    late = np.mean([[by_hand(plain, c, s) for c in range(6)] for s in (30, 40)], axis=0)
    assert one.topics["the"][1].value == pytest.approx(late[:, 0].mean())
    assert _pairs(["a", "b", "c"], "each-other") == [("a", "b"), ("a", "c"), ("b", "c")]
    assert _pairs(["a", "b", "c"], None) == [("a", ""), ("b", ""), ("c", "")]


def test_the_probability_of_words_at_a_site(model, pair):
    found, runs, _ = pair
    names = {model.vocabulary.spell(token): token for token in range(model.vocab_size)}
    conditionals = model.conditionals()
    means = []
    for run in runs:
        chances = []
        for chain in range(6):
            site = np.nonzero(run.free[chain])[0][1]
            rows = torch.tensor(np.stack([run.tokens(step)[chain] for step in (30, 40)]))
            scores = conditionals.scores(rows, torch.full((2, 1), int(site)))[:, 0].double()
            chances.append(scores.softmax(dim=1)[:, [names["cat"], names["dog"]]].mean(dim=0))
        means.append(torch.stack(chances).mean(dim=0))
    (one,) = found.contrasts
    for place, word in enumerate(("cat", "dog")):
        mine, other, apart = one.probabilities[word]
        assert mine.value == pytest.approx(float(means[0][place]), rel=1e-5)
        assert other.value == pytest.approx(float(means[1][place]), rel=1e-5)
        assert apart.value == pytest.approx(mine.value - other.value)
        assert 0 <= mine.interval[0] <= mine.interval[1] <= 1


def test_a_folder_is_resumed_and_a_wrong_one_refused(model, pair):
    first, _, folder = pair
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("run.json")}
    again = prefixes(
        model, TEXTS, prefixes=ASKED, words=["cat", "dog"], site=1, folder=folder, **SIZES
    )
    assert first.to_dict() == again.to_dict() and len(times) == 2
    assert times == {path: path.stat().st_mtime_ns for path in folder.rglob("run.json")}
    with pytest.raises(GlauberError, match="has the seed 2, not 3"):
        prefixes(model, TEXTS, prefixes=ASKED, folder=folder, **(SIZES | {"seed": 3}))


def test_a_prefix_that_does_not_fit_is_refused_before_the_first_run(model, tmp_path):
    with pytest.raises(GlauberError, match="at most"):
        prefixes(model, TEXTS, prefixes=["the", "the cat " * 30], folder=tmp_path / "runs", **SIZES)
    assert not (tmp_path / "runs").exists()


def test_bad_input(model):
    for wrong, why in (
        (dict(prefixes=["the", " "]), "prefix is empty"),
        (dict(prefixes=["the", "the"]), "given twice"),
        (dict(prefixes=["the"], chains=1), "chains is 1, but it must be at least 2"),
        (dict(prefixes=["the"], against="each-other"), "one prefix only"),
        (dict(prefixes=["the"], against="nothing"), "must be one of none, each-other"),
        (dict(prefixes=["the"], every=0), "at least 1"),
        (dict(prefixes=["the"], temperature=0.0), "temperature is 0"),
        (dict(prefixes=["the"], chains=10**12), "more than 1,000,000 is not possible"),
        (dict(prefixes=["the"], words=["cats"]), r"'cats' is 2 tokens .*cat, ##s"),
        (dict(prefixes=["the"], words=["cat"], site=5), "site is 5"),
    ):
        with pytest.raises(GlauberError, match=why):
            prefixes(model, TEXTS, **(SIZES | wrong))


def test_what_it_prints_and_serialises(pair):
    found = pair[0]
    told = str(found)
    assert "words of the red cat:" in told and "words of we will be:" in told
    assert "P(cat)" in told and "-0.000" not in told
    assert set(found.frame().figure) <= {"topic", "probability", "motion", "log-odds"}
    assert list(found.figures()) == ["topics", "words"]
    assert found.to_dict()["contrasts"][0]["topics"]["the"]["difference"]["kind"] == "estimate"


def test_how_a_prefix_moves_the_chain(model, tmp_path):
    """Distances, entropies and different texts from the runs themselves; first steps by hand."""
    options = SIZES | {"steps": 40, "every": 5}
    folder = tmp_path / "runs"
    found = prefixes(model, TEXTS, prefixes=["the red cat"], track="a", folder=folder, **options)
    red, none = (Run(folder / name) for name in ("1-the-red-cat", "none"))
    (one,) = found.contrasts
    for run, side in ((red, 0), (none, 1)):
        start = run.tokens(0)
        apart = [((run.tokens(t) != start) & run.free).sum(axis=1) / 5 for t in (5, 10, 15, 20)]
        assert one.motion["distance"][side].value == pytest.approx(np.mean(apart), abs=1e-6)
        entropy = run.read("entropy")[:, 20:].mean()
        assert one.motion["entropy"][side].value == pytest.approx(entropy, rel=1e-6)
        texts = [
            {run.vocabulary.decode(run.tokens(t)[c][run.free[c]]) for t in (25, 30, 35, 40)}
            for c in range(6)
        ]
        shares = np.mean([len(different) / 4 for different in texts])
        assert one.motion["distinct"][side].value == pytest.approx(shares)
        name = run.spec.prefix
        for chain in range(6):
            scores = [by_hand(run, chain, t)[1] for t in range(5, 41, 5)]
            above = [5 * k for k, score in enumerate(scores, 1) if score > 1 / 3]
            assert found.first_steps[name][chain] == (above[0] if above else np.inf)
    assert [visit.prefix for visit in found.first_visits] == ["no prefix", "the red cat"]
    assert "share of free sites" in found.distance and "3 figures" in found.correction
    plain = prefixes(model, TEXTS, prefixes=["the red cat"], **options)
    assert plain.first_visits == [] and plain.contrasts[0].topics == one.topics
    with pytest.raises(GlauberError, match="politics is not among the labels"):
        prefixes(model, TEXTS, prefixes=["the red cat"], track="politics", **options)


def test_the_first_step_about_a_label_comes_after_the_start():
    about = np.array([[0.9, 0.1, 0.6, 0.9], [0.1, 0.4, 0.1, 0.1], [0.9, 0.2, 0.1, 0.5]])
    values = np.stack([about, 1 - about], axis=2)
    scores = TopicScores(np.array([0, 5, 10, 15]), values, ("a", "b"), "by hand", 5)
    assert _first_steps(scores, "a").tolist() == [10, np.inf, np.inf]  # 0.5 is the baseline
