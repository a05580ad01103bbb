"""Pieces of paper A on a tiny model: their claims are those of the studies, recomputed by hand."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import poisson, somersd, spearmanr
from tokenizers import Tokenizer

import glauber
from conftest import TEXTS, VOCABULARY
from glauber import paper, phase, sample
from glauber.foundation.errors import GlauberError
from glauber.foundation.statistics import Estimate
from glauber.models.shelf import bundled_folder
from glauber.papers import paper_a, work
from glauber.papers.piece import Answers
from glauber.papers.work import Request, list_chains
from glauber.studies.compatibility.rectangles import delta_of
from glauber.studies.landscape.entailment import ABOUT, EXAMPLE
from glauber.studies.landscape.labels import Labelled, calibration_passages, held_out_passages
from glauber.studies.landscape.recurrence import recurrence
from glauber.studies.metastability.drift import LevelDrift
from glauber.studies.metastability.traps import TrapSearch
from glauber.studies.mixing.crossover import Crossover
from glauber.studies.mixing.influence import influence_at
from glauber.texts.read import read_texts
from glauber.texts.starts import passages
from tiny_nli import make_nli

SAME_TEXTS = tuple(TEXTS)
SAME = [TEXTS[1], TEXTS[4], TEXTS[0]]
BERT = paper_a.BERT


@pytest.fixture
def resize(monkeypatch, tiny_folder):
    """Gives a piece the tiny model and other settings at the small scale."""

    def change(name, **settings):
        piece = paper_a.PIECES[name]
        small = piece.small | {"model": str(tiny_folder)} | settings
        monkeypatch.setitem(paper_a.PIECES, name, replace(piece, small=small))

    return change


def distances(run, step):
    """By hand: the share of free sites with another token than at the start, of each chain."""
    moved = (run.tokens(step) != run.tokens(0)) & run.free
    return moved.sum(axis=1) / run.free.sum(axis=1)


def by_sentence(made):
    return {claim.sentence: claim for claim in made.claims}


@pytest.mark.parametrize(("name", "n_chains"), [("A-fig1", 1), ("A-fig4", 3)])
def test_trajectories(resize, name, n_chains):
    resize(name, length=4, steps=60, every=4, embedder="tokens")
    made = paper(name, TEXTS[:3], seeds=2)
    assert [row["chain"] for row in made.rows] == list(range(n_chains)) and made.rows[0][
        "snapshots"
    ] == 16
    assert len(made.pictures) == n_chains
    (claim,) = made.claims
    if n_chains == 1:
        assert claim.quantity.value == made.rows[0]["longest_repeat_steps"] // 4 + 1
        assert claim.verdict.word == "cannot tell" and "one value" in claim.verdict.reason
    else:
        shares = [1 - (row["different_texts"] - 1) / 15 for row in made.rows]
        assert claim.quantity.value == pytest.approx(np.mean(shares))
        assert made.rows == paper(name, TEXTS[:3], seeds=2).rows


def test_figure_2(resize, tiny_folder):
    resize("A-fig2", chains=6, steps=60, every=10, length=4, texts=tuple(TEXTS[:2]))
    made = paper("A-fig2", embedder="tokens", seeds=1)
    options = dict(steps=60, chains=6, length=4, seed=1)
    far, near = (
        distances(sample(str(tiny_folder), TEXTS[:2], temperature=t, **options), 60)
        for t in (2.0, 0.1)
    )
    rows = {row["temperature"]: row for row in made.rows}
    assert rows[2.0]["distance_at_end"][0] == pytest.approx(far.mean(), abs=1e-6)
    given = dict(lengths=[4], pairs=6, steps=60, temperatures=[0.1, 2.0, 3.0], seed=1)
    cold, cell, hot = phase(str(tiny_folder), TEXTS[:2], **given).cells
    assert rows[2.0]["met"] == f"{sum(cell.met)} of 6"
    assert rows[2.0]["median"][0] == cell.median.value
    transition, slow, rare = made.claims
    assert transition.quantity.value == pytest.approx((sum(hot.met) - sum(cold.met)) / 6)
    assert slow.quantity.value == pytest.approx((near - far / 2).mean(), abs=1e-6)
    run = sample(str(tiny_folder), TEXTS[:2], temperature=0.1, **options)
    hit = np.max([distances(run, step) for step in range(10, 61, 10)], axis=0) >= 0.5
    assert rare.quantity.value == hit.mean() == rows[0.1]["reached_threshold"][0]
    # B.2 has 20 tokens and 100 chains: what differs is named.
    assert any(note.startswith("length: 4 in place of 20") for note in slow.differs)
    assert any(note.startswith("chains: 6 in place of 100") for note in slow.differs)


def test_no_transition_disagrees():
    """Pairs that meet at every temperature show none."""
    met = {0.1: [True] * 8, 3.0: [True] * 7 + [False]}
    phases = SimpleNamespace(cell=lambda t, length: SimpleNamespace(met=met[t]))
    answers = Answers(phase=phases, curves=dict.fromkeys(met), settings=_values(length=4))
    claim = paper_a.FIGURE_2.claims[0].claim(answers)
    assert claim.verdict.word == "disagrees" and claim.quantity.value == -1 / 8


def _values(**values):
    return SimpleNamespace(values=values, **values)


def test_table_1_has_a_control_that_closes(resize, tiny_folder):
    resize("A-table1", count=40, length=5)
    made = paper("A-table1", SAME)
    row, control = made.rows
    found = glauber.rectangles(str(tiny_folder), SAME, count=40, length=5)
    assert row["mean"][0] == pytest.approx(found.delta.mean(), abs=1e-5) and row["mean"][0] > 0.1
    assert control["mean"] < 1e-6 and "checks only that" in control["kind"]
    (incompatible,) = made.claims  # the control closes by construction: no claim
    assert incompatible.verdict.word == "agrees"


def test_table_1_of_several_models(resize, tiny_folder, tmp_path, monkeypatch):
    """A folder whose config is a published model's gets its claims, and the pair that of sizes."""
    resize("A-table1", count=30, length=5, control_count=30)
    copies = [shutil.copytree(tiny_folder, tmp_path / name) for name in ("base", "large")]
    config = json.loads((tiny_folder / "config.json").read_text())
    keys = ("model_type", "num_hidden_layers", "hidden_size", "vocab_size")
    shape = tuple(config[key] for key in keys)
    with monkeypatch.context() as patch:
        patch.setattr(work, "PUBLISHED", {shape: BERT})
        work.published_name.cache_clear()
        made = paper("A-table1", SAME, model=f"{copies[0]},{copies[1]}")
        assert work.published_name(str(copies[0])) == BERT
        config["_name_or_path"] = "nlpaueb/legal-bert-base-uncased"
        (copies[1] / "config.json").write_text(json.dumps(config))
        work.published_name.cache_clear()
        assert work.published_name(str(copies[1])) is None
        assert work.published_name("google-bert/bert-base-uncased") == BERT
        assert work.published_name("nlpaueb/legal-bert-base-uncased") is None
    work.published_name.cache_clear()
    *rows, control = made.rows
    assert [row["model"] for row in rows] == list(map(str, copies))
    parameters = {row["parameters"] for row in made.rows}
    module = transformers.AutoModelForMaskedLM.from_pretrained(tiny_folder)
    assert parameters == {sum(values.numel() for values in module.parameters())}
    assert [row["type"] for row in made.rows] == ["MLM", "MLM", "AR"]
    assert control["count"] == 30 and rows[0]["published"] == 0.644
    assert [row["published_parameters"] for row in made.rows] == ["110M", "110M", "124M"]
    exact = by_sentence(made)["the mean Delta of bert-base-uncased is 0.644"]
    assert exact.quantity.value == pytest.approx(rows[1]["mean"][0])
    assert any("by its name or its config; weights are not" in note for note in exact.differs)
    assert any("noise floor" in note for note in made.differs)
    assert not any("MS MARCO" in note for note in made.differs)  # these texts may be its own
    assert "texts: those that were given" in made.ours


def test_incompatibility_by_size():
    """Large less half of base, rectangle by rectangle of the same passages."""
    studies = [
        SimpleNamespace(
            model=name, delta=np.full(6, mean), passages=np.repeat([0, 1, 2], 2), noise_floor=0.0
        )
        for name, mean in ((BERT, 0.6), ("bert-large-uncased", 0.8))
    ]
    sizes = list(paper_a.size_claims(Answers(studies=studies)))
    assert [round(entry.number.value, 9) for entry in sizes] == [0.5]
    assert not list(paper_a.size_claims(Answers(studies=studies[:1])))
    studies[0].passages = studies[0].passages + 1
    (apart,) = paper_a.size_claims(Answers(studies=studies))
    assert apart.claim(Answers(studies=studies, settings=_values())).verdict.word == "cannot tell"


def test_a_piece_about_one_model_takes_one(tiny_folder):
    with pytest.raises(GlauberError, match="A-fig5 is about one model, but 2 are given"):
        paper("A-fig5", model=[str(tiny_folder), "bundled:english"])
    with pytest.raises(GlauberError, match="empty or given twice"):
        paper("A-table1", model="a,a")


def test_figures_5_and_6_count_passages(resize, tiny_folder):
    for name in ("A-fig5", "A-fig6"):
        resize(name, count=40, length=5)
    (rule,) = paper("A-fig5", SAME).claims
    assert rule.quantity.unit == "passages" and rule.quantity.n == 3
    (grows,) = paper("A-fig6", SAME).claims
    found = glauber.rectangles(str(tiny_folder), SAME, count=40, length=5)
    assert grows.quantity.value == pytest.approx(found.influence_correlation.value, abs=1e-4)


@pytest.mark.weights
def test_rectangles_of_the_bundled_model(tmp_path, resize):
    """Table 1 and figure 6 on fewer rectangles: the same study, made once, and right by hand."""
    resize("A-table1", model="bundled:english", count=12, control_count=2)
    resize("A-fig6", model="bundled:english", count=12)
    row, control = paper("A-table1", out=tmp_path).rows
    assert control["mean"] < 1e-12 and control["published"] == 0 and row["certified"] == 12
    (part,) = (tmp_path / "parts").glob("rectangles-*.json")
    found = glauber.rectangles(count=12, length=20, seed=0)
    mean, low, high = row["mean"]
    assert low < mean < high and mean == pytest.approx(found.delta.mean(), abs=1e-4)
    error = found.delta.std(ddof=1) / math.sqrt(12)  # over passages it is wider, and skewed
    assert 1 < (high - low) / (2 * 1.96 * error) < 4
    (other,) = paper("A-fig6", out=tmp_path).rows
    assert list((tmp_path / "parts").glob("rectangles-*.json")) == [part]
    both = spearmanr(found.influence, found.delta)[0]
    assert other["influence_correlation"][0] == pytest.approx(both, abs=1e-3)
    by_hand = deltas_by_hand(found.rectangles, range(0, 12, 3))
    assert delta_of(found.rectangles.precise)[::3] == pytest.approx(by_hand, abs=1e-9)


def deltas_by_hand(found, which):
    """Delta of some rectangles by transformers alone, in float64: texts with one mask each."""
    folder = Path(glauber.__file__).parent / "models" / "english"
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).double().eval()
    mask = transformers.AutoTokenizer.from_pretrained(folder).mask_token_id

    def ratio(tokens, site, old, new):
        hidden = tokens.clone()
        hidden[site] = mask
        with torch.no_grad():
            logits = model(hidden[None]).logits[0, site]
        return float(logits[new] - logits[old])

    deltas = []
    for k in which:
        tokens = found.tokens[k]
        (i, j), (new_i, new_j) = found.sites[k].tolist(), found.values[k]
        old_i, old_j = tokens[i].clone(), tokens[j].clone()
        with_i, with_j = tokens.clone(), tokens.clone()
        with_i[i], with_j[j] = new_i, new_j
        one = ratio(tokens, i, old_i, new_i) + ratio(with_i, j, old_j, new_j)
        other = ratio(tokens, j, old_j, new_j) + ratio(with_j, i, old_i, new_i)
        deltas.append(abs(one - other))
    return deltas


def test_equation_4_1(resize, tiny_folder):
    resize("A-eq4.1", count=4, length=5, chains=3, steps=60, free=((2, 3), (3, 2)))
    made = paper("A-eq4.1", TEXTS[:3] + TEXTS[4:])
    assert [row["sites"] for row in made.rows] == [2, 3]
    options = dict(count=4, length=5, sites=2, top=3, chains=3, steps=60)
    found = glauber.single_mask(str(tiny_folder), TEXTS[:3] + TEXTS[4:], **options)
    mean = found.difference
    assert made.rows[0]["difference"] == pytest.approx([mean.value, *mean.interval])
    assert made.claims[0].quantity.value == pytest.approx(mean.value)
    assert made.claims[0].region.low == 0.05  # a difference that matters, not any at all
    ranks, sizes = made.claims[1:3]
    assert ranks.quantity.value == pytest.approx(found.sizes["potential"]["rank"].value)
    assert sizes.quantity.value == pytest.approx(made.rows[0]["potential_total_variation"][0])
    assert len(made.claims) == 6 and "pll_by_incompatibility" in made.rows[0]
    assert list(made.figures()) == ["2-sites", "3-sites"]


def test_the_influence(tiny_folder, texts):
    made = paper("A-influence", [texts[0]], model=str(tiny_folder))
    (row,) = made.rows
    above, paper_alpha, dominated, typical = made.claims
    found = glauber.influence(str(tiny_folder), texts[0], samples=4).matrix
    assert paper_alpha.quantity.value == found.mean_over_contexts.alpha < found.alpha
    assert paper_alpha.quantity.kind == "lower bound" and dominated.quantity.n == 4
    assert row["linear_threshold"] == found.linear_threshold >= row["threshold"]
    assert above.quantity.kind == row["alpha_kind"] == "lower bound"
    assert above.quantity.value == row["alpha"] > 0
    # A lower bound at or below 1 says nothing; above 1 it settles it.
    assert above.verdict.word == ("agrees" if row["alpha"] > 1 else "cannot tell")
    difference = row["average_influence"][0] - row["alpha"] / 2
    assert typical.quantity.value == pytest.approx(difference) and typical.quantity.n == 8


def test_coherence(resize, tiny_folder):
    options = dict(length=5, chains=6, steps=20, every=5, thresholds=3)
    resize("A-coherence", **options, texts=tuple(TEXTS[:4]), temperatures=(0.1, 1.0, 1.5))
    made = paper("A-coherence", seeds=2)
    by_temperature = made.rows[:3]
    run = sample(
        str(tiny_folder), TEXTS[:4], steps=20, chains=6, length=5, temperature=1.5, seed=6 + 2
    )
    found = glauber.coherence(run, every=5)
    assert by_temperature[2]["incoherent"][0] == pytest.approx(found.incoherent.value)
    assert by_temperature[2]["later"][0] == pytest.approx(found.later.value, abs=1e-6)
    assert len(made.claims) == 7
    typical = by_sentence(made)[
        "in typical configurations of a chain the pairwise influence is smaller (temperature 1.5)"
    ]
    row = next(row for row in made.rows[3:] if row.get("temperature") == 1.5)
    difference = row["influence_at_end"][0] - row["influence_at_start"][0]
    assert typical.quantity.value == pytest.approx(difference) and typical.quantity.n == 6
    # One of the starts again, by one drawn change at each site.
    model = glauber.load(str(tiny_folder))
    states = torch.from_numpy(run.tokens(0).astype(np.int64))
    sites = torch.from_numpy(run.free[0].nonzero()[0])
    alone = influence_at(model.conditionals(), states, sites, temperature=1.5, seed=2)
    assert row["influence_at_start"][0] == pytest.approx(alone.mean, abs=1e-6)
    assert made.rows[-1]["threshold"] > 0 and len(made.figures()) == 3


def test_the_margin_that_grows():
    made = paper("A-theorem8")
    bound, exponential = made.claims
    assert bound.verdict.word == exponential.verdict.word == "agrees"
    times = [row["mixing_time"] for row in made.rows]
    assert bound.quantity.value == pytest.approx(
        min(np.log(4 * time / np.exp(n)) for n, time in enumerate(times, 3))
    )
    assert exponential.quantity.value == pytest.approx(np.diff(np.log(times)).min())


def test_table_2(resize, tiny_folder, tmp_path):
    resize("A-table2", levels=1, samples=12, chains=4)
    given = dict(length=5, copies=3, steps=30, seeds=2, out=tmp_path)
    made = paper("A-table2", TEXTS, temperature=[0.5, 1.5], **given)
    rows = [row for row in made.rows if "median" in row]
    assert [row["temperature"] for row in rows] == [0.5, 1.5]
    for row, claims in zip(rows, (made.claims[:3], made.claims[3:]), strict=True):
        options = dict(count=3, levels=1, samples=12, length=5, seed=2, chains=4, steps=30)
        found = glauber.drift(
            str(tiny_folder), TEXTS, token="!", temperature=row["temperature"], **options
        )
        edge, (positive, exponential, certified) = found.levels[0], claims
        shape = found.escapes.exponential_less_power.value
        assert exponential.quantity.value == (None if np.isnan(shape) else pytest.approx(shape))
        times = [each for each in made.rows if each.get("depth") == 1]
        mean = found.escapes.mean_times[0].value
        assert any(each["mean_time"][0] == pytest.approx(mean) for each in times)
        assert (row["positive"], row["smallest"]) == (edge.positive, edge.smallest)
        assert positive.quantity.value == pytest.approx(edge.positive / 12)
        assert certified.quantity.value == found.epsilon
        # Samples can show that there is no certificate, and never that there is one.
        assert certified.verdict.word == ("disagrees" if found.epsilon <= 0 else "cannot tell")
        assert any("not in our copy" in note for note in positive.ours)
    one = paper("A-table2", TEXTS, temperature=0.7, **given)
    assert one.rows[0]["temperature"] == 0.7 and len(one.claims) == 3
    assert "or smallest" in one.claims[0].published  # which of the two rows is not known
    with pytest.raises(glauber.GlauberError, match="A-table5 has one temperature"):
        paper("A-table5", temperature=[0.5, 1.0])


def test_the_published_drift_is_compared_on_its_model(monkeypatch):
    """By hand: half of the states below the median, and one at or below the smallest."""
    drifts = np.sort(np.append(np.random.default_rng(0).uniform(0.043, 0.117, 199), 0.042))
    level = LevelDrift(14, drifts)
    boundary = {"median": level.median, "drifts": drifts, "positive": 200, "smallest": 0.042}
    boundary |= {"median_interval": level.median_interval}
    shape = vars(Estimate(0.5, (0.1, 0.9), n_chains=16))
    study = {"levels": [boundary], "temperature": 0.3, "shape": shape, "escapes": []}
    values = dict(samples=200, levels=0, model=paper_a.BERT, copies=14, chains=16, steps=9)
    studies = [study | {"temperature": 0.9}, study]  # sorted: the colder one is the first row
    answers = Answers(studies=studies, settings=_values(**values))
    made = [each.claim(answers) for each in paper_a.drift_claims(answers)]
    words = {claim.sentence: claim.verdict.word for claim in made}
    assert words["the median drift at the boundary is 0.08 (temperature 0.3)"] == "agrees"
    assert words["the median drift at the boundary is 0.066 (temperature 0.9)"] == "disagrees"
    smallest = next(each for each in made if "0.042" in each.sentence)
    assert smallest.quantity.value == 1 / 200 and smallest.verdict.word == "agrees"
    assert len(made) == 10
    answers.settings.values["model"] = answers.settings.model = "another"
    assert len([*paper_a.drift_claims(answers)]) == 6


def test_the_length_is_a_setting(resize):
    resize("A-table5", chains=3, steps=400, temperature=0.05, embedder="tokens", texts=SAME_TEXTS)
    made = paper("A-table5", length=4)
    assert "cut to 4 tokens" in made.how and made.given == {"length": 4}
    assert any("length: 4 in place of 15" in note for note in made.differs)
    with pytest.raises(glauber.GlauberError, match="--length"):
        paper("A-influence", length=4)
    with pytest.raises(glauber.GlauberError, match="length is 0"):
        paper("A-table5", length=0)


@pytest.fixture
def by_length(resize):
    for name in ("A-fig3a", "A-fig3b"):
        options = dict(lengths=(3, 6), chains=8, steps=150, texts=tuple(TEXTS[:2]))
        resize(name, embedder="tokens", **options)


def test_figure_3a(by_length, tiny_folder):
    made = paper("A-fig3a", steps=6, seeds=3)
    claim = by_sentence(made)[f"{paper_a.GROWS} at fixed time"]
    means = []
    rows = [row for row in made.rows if "n" in row]
    for number, row in enumerate(rows):
        mean, low, high = row["mean"]
        run = sample(
            str(tiny_folder), TEXTS[:2], steps=6, chains=8, length=row["n"], seed=2 * 3 + number
        )
        means.append(distances(run, 6).mean())
        assert low <= mean <= high and mean == pytest.approx(means[-1], abs=1e-6)
        assert row["step"] == 6 and row["quartiles"] == sorted(row["quartiles"])
        late = np.mean([distances(run, step) for step in (3, 4, 5, 6)])
        assert row["late_level"][0] == pytest.approx(late, abs=1e-6)
    assert claim.quantity.value == pytest.approx((means[1] - means[0]) / np.log(2), abs=1e-5)
    # Two sweeps of six tokens are more than six steps.
    assert not any("sweeps" in claim.sentence for claim in made.claims)
    below = by_sentence(made)[
        "the threshold of the hitting times lies below saturation in the fast regime"
    ]
    assert below.quantity.value == rows[1]["late_level"][0]  # six tokens are nearest to 20
    shape = by_sentence(made)["the growth of the embedding distance with the length is logarithmic"]
    assert shape.quantity.value is None and "three lengths" in shape.quantity.reason
    assert made.rows[2]["law"] == "none" and list(made.figures()) == ["distance", "saturation"]
    assert any("temperature: 1.0" in note for note in claim.ours)


@pytest.mark.parametrize(("law", "word"), [("log n", "agrees"), ("n", "disagrees")])
def test_the_shape_of_the_growth(law, word):
    rng = np.random.default_rng(1)
    mean = {"log n": lambda n: 0.1 + 0.2 * np.log(n), "n": lambda n: 0.03 * n}[law]
    values = {n: rng.normal(mean(n), 0.03, size=60) for n in (4, 8, 16, 32)}
    growth = paper_a.growth_of(values)
    answers = Answers(values=values, growth=growth, settings=_values(), at=20)
    entry = next(each for each in paper_a.FIGURE_3A.claims if "is logarithmic" in each.sentence)
    assert entry.claim(answers).verdict.word == word
    falls = {n: each[::-1] for n, each in zip(values, reversed(values.values()), strict=True)}
    found = paper_a.shape_of_growth(falls, paper_a.growth_of(falls))
    assert found.value is None and "not known to grow" in found.reason


def test_growth_by_temperature(resize, tiny_folder):
    options = dict(lengths=(3, 5, 7), temperatures=(0.1, 2.0), chains=6, steps=24, step=8)
    resize("A-fig3-temperatures", **options, embedder="tokens", texts=tuple(TEXTS[:2]))
    made = paper("A-fig3-temperatures", seeds=1)
    assert [(row["at"], row["temperature"]) for row in made.rows] == [
        (8, 0.1),
        (8, 2.0),
        (24, 0.1),
        (24, 2.0),
    ]
    slopes = []
    for number, n in enumerate((3, 5, 7), 3):  # the second temperature
        options = dict(steps=24, chains=6, length=n, temperature=2.0, seed=6 + number)
        slopes.append(distances(sample(str(tiny_folder), TEXTS[:2], **options), 8).mean())
    by_hand = np.polyfit(np.log([3, 5, 7]), slopes, 1)[0]
    assert made.rows[1]["slope"][0] == pytest.approx(by_hand, abs=1e-6)
    first, last = made.claims
    assert first.quantity.value == pytest.approx(by_hand, abs=1e-6) and "24 steps" in last.sentence


def test_where_the_growth_begins():
    from types import SimpleNamespace

    def row(t, low):
        interval = None if low is None else (low, 1.0)
        return SimpleNamespace(temperature=t, slope=SimpleNamespace(interval=interval))

    assert paper_a.grows_from([row(0.5, 0.1), row(1, -0.1), row(2, 0.1), row(3, 0.2)]) == 2
    assert paper_a.grows_from([row(1, 0.1), row(2, None)]) is None


def test_figure_3b(by_length):
    made = paper("A-fig3b")
    times = [row for row in made.rows if "n" in row]
    laws = [row for row in made.rows if row.get("law") in ("n", "n log n", "n^2")]
    powers = [row for row in made.rows if row.get("law") == "n^b"]
    assert [row["n"] for row in times] == [3, 6]
    assert all(row["hit"] == sum(t is not None for t in row["times"]) for row in times)
    for family in ("gamma", "log-normal"):
        assert sum(row["weight"] for row in laws if row["family"] == family) == pytest.approx(1)
    thresholds = paper_a.FIGURE_3B.small["thresholds"]
    own, corrected = powers[0], powers[2 + thresholds.index(0.5)]
    assert own["b"] == corrected["b"] and (own["level"], corrected["level"]) == (0.95, 0.99)
    assert corrected["interval"][0] < own["interval"][0] < own["b"]
    scaling, robust = made.claims
    assert scaling.quantity.value == own["b"] and "robust" in robust.sentence
    assert (scaling.quantity.level, robust.quantity.level) == pytest.approx((0.95, 0.99))
    # Over 3 and 6 tokens n log n looks like this power, and the region is nearer to it than to n.
    slope = np.log(6 * np.log(6) / (3 * np.log(3))) / np.log(2)
    assert scaling.effect == pytest.approx(slope)
    ends = (1 + slope) / 2, (2 + slope) / 2
    assert (scaling.region.low, scaling.region.high) == pytest.approx(ends)


def test_every_length_starts_from_the_same_passages():
    """No bundled passage is left out for being too short."""
    words = Tokenizer.from_file(str(bundled_folder("bundled:english") / "tokenizer.json"))
    fewest = min(len(words.encode(text, add_special_tokens=False)) for _, text in passages())
    for settings in (paper_a.FIGURE_3A.small, paper_a.FIGURE_3A.paper):
        assert max(settings["lengths"]) <= fewest


def test_the_coupling_figure(resize, texts, tmp_path):
    resize(
        "A-fig-coupling",
        texts=tuple(texts),
        chains=3,
        steps=8,
        lengths=(2, 4),
        temperatures=(0.5, 5.0),
    )
    # The cells made apart, as on another machine, on another device's name; the piece goes on.
    piece = paper_a.PIECES["A-fig-coupling"]
    request = Request("A-fig-coupling", "small", 0, tmp_path, device="cpu")
    list_chains(tmp_path, [])  # marks the folder as one of pieces
    assert len(piece.ask(piece.settings(request))["phase"].cells) == 4
    (cells,) = (tmp_path / "studies").glob("phase-*/cells")
    stamps = {path.name: path.stat().st_mtime_ns for path in cells.iterdir()}
    made = paper("A-fig-coupling", out=tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in cells.iterdir()} == stamps
    assert list(made.figures()) == ["phase"] and " at 0.5" in made.rows[0]["met"]
    ising = [row for row in made.rows if "of" in row]
    assert [row["length"] for row in ising] == [2, 4] and made.rows[2:4] == ising
    rows = [row for row in made.rows if "of" not in row]
    assert [row["length"] for row in rows] == [2, 4] * 3
    budgets = [row.get("budget") for row in rows]
    assert budgets == ["equal steps, 8"] * 2 + ["equal sweeps, 2"] * 2 + [None] * 2
    assert len(made.claims) == 5 and made.claims[1].sentence.endswith("our control)")


@pytest.mark.parametrize(
    ("widths", "value"),
    [((0.145, 0.06, 0.04), 0.3), ((0.145, 0.030, 0.034, 0.047), None), ((0.1, 0.2), 0.3)],
)
def test_widths_that_go_up_and_down_follow_no_power(widths, value):
    crossovers = [Crossover(n, 1.0, (0.9, 1.1), w, (0.0, 1.0)) for n, w in enumerate(widths, 5)]
    scaling = SimpleNamespace(sharpening=0.3, sharpening_interval=(0.1, 0.5))
    steps = SimpleNamespace(scaling=scaling, crossovers=crossovers)
    phases = SimpleNamespace(at_steps=steps, cells=[0] * 8)
    found = paper_a.sharpening(Answers(phase=phases, settings=_values(chains=12)))
    assert found.value == value and ("follow no power" in found.reason) == (value is None)


@pytest.fixture
def topics_scale(resize, monkeypatch, tmp_path):
    nli = str(make_nli(tmp_path / "nli"))
    for name in ("A-table3", "A-table4"):
        resize(name, scorer=(nli,), steps=20, snapshots=4, chains=15, length=5)
    words = ("mat", "tree", "sky", "dog", "bird")
    starts = [
        Labelled(topic, f"the cat sat on the {word} .")
        for topic, word in zip(paper_a.TOPICS, words, strict=True)
        for _ in range(2)
    ]
    monkeypatch.setattr(paper_a, "held_out_passages", lambda: starts)
    monkeypatch.setattr(paper_a, "EXAMPLE", ABOUT)  # the tiny model says more of it
    names = ("the cat", "a dog", "the bird", "the tree", "the sky")
    pulls = dict(zip(names, paper_a.PULLS.values(), strict=True))
    monkeypatch.setattr(paper_a, "PREFIXES", names)
    monkeypatch.setattr(paper_a, "PULLS", pulls)
    resize("A-prefixes", chains=3, steps=8, length=4, every=2, scorer=nli, texts=tuple(TEXTS[:3]))


def test_tables_3_and_4(topics_scale, tmp_path):
    """Each quantity from the scores again; what holds for every topic is the worst topic's."""
    made = paper("A-table3", seeds=1, out=tmp_path / "site")
    seeds, everyone, labels, judged = made.rows[:5], made.rows[5], made.rows[6:15], made.rows[15]
    assert [row["seed"] for row in seeds] == list(paper_a.TOPICS)
    assert "(0.003, 0.174, 0.834, 0.037)" in seeds[3]["published"]
    assert everyone["crossed"] == sum(row["crossed"] for row in seeds) == labels[0]["crossed"]
    assert [row["label"] for row in labels] == list(paper_a.LABELS)
    assert everyone["baseline"] == pytest.approx(1 / 9)
    assert judged["n_texts"] == 90 and judged["chance"] == pytest.approx(1 / 9)
    assert list(made.figures()) == ["labels", "river", "recurrence"]

    piece = paper_a.PIECES["A-table3"]
    settings = piece.settings(Request("A-table3", "small", 1, tmp_path / "site"))
    (scores,), _ = paper_a.score_topics(settings, settings.model)
    starts, ours = np.array(paper_a.topic_seeds(settings)), by_sentence(made)
    for label, sentence, which in (
        ("politics", "every topic shows an increase in mean politics score", min),
        (None, "seed-topic scores fall sharply in every case", max),
    ):
        changes = [
            np.diff(scores.of(label or topic)[starts == topic][:, [0, -1]], axis=1).mean()
            for topic in paper_a.TOPICS
        ]
        claim = ours[sentence]
        assert claim.quantity.value == pytest.approx(which(changes)) and claim.quantity.n == 3
    assert claim.region.high == -0.25  # sharply: not any fall
    special = recurrence(scores, "politics", seeds=starts.tolist()).of("politics").against_others
    named = next(one for sentence, one in ours.items() if "recurrent basin" in sentence)
    assert (named.quantity.value, named.quantity.interval) == (special.value, special.interval)
    crossing = made.claims[0]
    assert crossing.quantity.interval[1] is None  # 20 steps: in 10,000 more would cross
    assert crossing.region.low == pytest.approx(0.808, abs=1e-3)  # Clopper and Pearson, 46 of 50

    fourth = paper("A-table4", seeds=1, out=tmp_path / "site")
    for row, other in zip(fourth.rows[:5], seeds, strict=True):
        (end,) = (value for name, value in row.items() if name.startswith("tracked_end"))
        assert end == pytest.approx(other["tracked_end"], abs=1e-5)  # padded by neighbours
    assert fourth.rows[4]["published"]["RoBERTa"] == 0.198
    for claim in fourth.claims:  # the paper gives no mean over topics
        assert "each topic" in claim.published and "computed by us" in " ".join(claim.ours)
    assert [round(claim.effect, 4) for claim in fourth.claims] == [0.0236, 0.0324]
    assert {claim.verdict.word for claim in fourth.claims} == {"cannot tell"}  # no such models
    assert len(list((tmp_path / "site" / "chains").glob("[!.]*"))) == 1  # made once


def test_table_3_of_texts_with_their_topics(topics_scale, tmp_path):
    path = tmp_path / "seeds.tsv"
    rows = [f"{topic}\tthe old cat sat on it ." for topic in paper_a.TOPICS]
    path.write_text("\n".join(["topic\ttext", *rows, "Food\ta big dog ran ."]))
    made = paper("A-table3", read_texts(path, id_column="topic"), seeds=1, out=tmp_path / "a")
    assert [row["seed"] for row in made.rows[:5]] == list(paper_a.TOPICS)
    (listed,) = json.loads((tmp_path / "a" / "chains.json").read_text()).values()
    foods = listed["texts"][9:12]  # the two texts of food take turns
    assert foods == ["the old cat sat on it .", "a big dog ran .", "the old cat sat on it ."]
    for row in made.rows[:5]:
        assert np.mean(row["ends"]) == pytest.approx(row["tracked_end"][0])
    with pytest.raises(GlauberError, match="needs the topic of each text as its id"):
        paper("A-table3", ["the old cat sat on it ."])
    path.write_text("id\ttext\nnews\tthe old cat sat on it .\nsport\ta big dog ran .\n")
    with pytest.raises(GlauberError, match="the id of text 1 is news, but it must be one of"):
        paper("A-table3", read_texts(path))
    path.write_text("id\ttext\nsport\ta big dog ran .\n")
    with pytest.raises(GlauberError, match="no text has the topic health"):
        paper("A-table3", read_texts(path))


def test_what_two_chains_drive():
    ends, baseline = np.array([0.02, 0.9, 0.03, 0.8, 0.04]), 0.111
    driven = paper_a.without_two(ends, baseline)
    assert driven.value == pytest.approx(0.03) and driven.kind == "exact"
    assert paper_a.without_two(ends / 9, baseline).value is None  # nothing to be driven


def test_content_and_topics_by_model():
    """Table 4 of three models made by hand: counts of topics, and what the texts contain."""
    names = (paper_a.BERT, paper_a.ROBERTA, paper_a.MODERNBERT)
    rng = np.random.default_rng(0)
    values = rng.uniform(0.0, 0.02, (3, 250, 2, 9))
    values[1, 50:150, 1, 0] = 0.9  # two topics of the second model
    scores = {
        name: paper_a.TopicScores(np.array([0, 9]), each, paper_a.LABELS, "by hand", 9)
        for name, each in zip(names, values, strict=True)
    }
    texts = dict(
        zip(names, (["the cat"] * 9, ["été là"] * 9, ["if (x[0]) { y(); }"] * 9), strict=True)
    )
    answers = Answers(scores=scores, texts=texts, settings=_values(chains=250))
    claims = {
        claim.sentence: claim
        for claim in (e.claim(answers) for e in paper_a.table_4_claims(answers))
    }
    two = claims["topics that end above the baseline in RoBERTa: 2 of 5"]
    assert (two.quantity.value, two.quantity.interval) == (
        2,
        (2, 2),
    ) and two.verdict.word == "agrees"
    one = claims["topics that end above the baseline in BERT: 1 of 5"]
    assert one.quantity.value == 0 and one.verdict.word == "disagrees"
    other = next(c for name, c in claims.items() if "multilingual" in name)
    assert other.quantity.value == pytest.approx(3 / 5)
    code = next(c for name, c in claims.items() if "code-like" in name)
    assert code.quantity.value == pytest.approx(9 / 14)
    rows = paper_a.table_4_rows(answers)
    assert rows[5]["published"] == {"BERT": 1, "RoBERTa": 2, "ModernBERT": 0}


def test_what_the_pieces_leave_open_is_said(tmp_path):
    """At the paper's scale: dimensions, task, hypothesis, checkpoint and vocabulary."""
    table, figure = paper_a.PIECES["A-table3"], paper_a.PIECES["A-fig1"]
    settings = [p.settings(Request("x", "paper", 0, tmp_path)) for p in (table, figure)]
    said = " ".join(table._choices(settings[0]))
    assert "This example is {}." in said and "DeBERTa-v3-base" in said
    assert paper_a.pipeline_hypothesis([paper_a.BART]) == EXAMPLE
    assert paper_a.pipeline_hypothesis([paper_a.SIMILARITY]) is None
    assert "truncate_dim=768" in settings[1].embedder
    assert "text-matching, is not in the paper" in " ".join(figure._choices(settings[1]))
    assert "texts: the bundled passages in place of MS MARCO" in table._differences(settings[0])
    assert all("have probability 0" in p.differs[-1] for p in paper_a.PIECES.values())


def test_chains_that_cannot_be_divided_are_refused(topics_scale):
    with pytest.raises(glauber.foundation.errors.GlauberError, match="divided among 5 topics"):
        paper("A-table3", chains=12)


def test_prefixes(topics_scale):
    made = paper("A-prefixes")
    assert len(made.rows) == 5 and all(row["published"] for row in made.rows)
    *pulls, faster, narrower, political = made.claims
    labels = [claim.sentence.split("towards ")[1] for claim in pulls]
    assert labels == ["science", "pop culture", "sport", "politics", "politics"]
    for claim, name in ((faster, "distance"), (narrower, "entropy")):  # one value for each chain
        assert claim.quantity.value == pytest.approx(np.mean([row[name][0] for row in made.rows]))
        assert claim.quantity.n == 3
    assert -1 <= political.quantity.value <= 1 and "tenth" in " ".join(political.ours)
    assert made.rows[3]["first_political"] in (None, 2.0, 4.0, 6.0, 8.0)
    assert list(made.figures())[:2] == ["topics", "words"]


def test_how_soon_chains_are_political():
    """Less those without a prefix, pair by pair; within a tenth of the steps."""
    prefix = paper_a.PREFIXES[3]
    first = {prefix: np.array([10.0, 20.0, 10.0, 5.0]), "": np.array([10.0, 10.0, np.inf, np.inf])}
    answers = Answers(
        study=SimpleNamespace(first_steps=first, note=""), settings=_values(every=5, steps=100)
    )
    assert paper_a.early_politics(answers).value == pytest.approx((0 - 1 + 1 + 1) / 4)


def test_the_starts_of_the_tables_were_not_calibrated_on():
    used = {each.text for each in held_out_passages() if each.label in paper_a.TOPICS}
    assert len(used) == paper_a.TABLE_3.small["chains"]
    assert not used & {each.text for each in calibration_passages()}


def test_table_5(resize, tmp_path, monkeypatch):
    resize("A-table5", length=5, chains=3, steps=400, temperature=0.05, embedder="tokens")
    monkeypatch.setattr("glauber.texts.starts.bundled_texts", lambda model: TEXTS)
    made = paper("A-table5", seeds=1, chains=4, out=tmp_path / "papers")
    rolling, hamming, periods, *listed = made.rows
    assert (rolling["detector"], hamming["detector"]) == ("rolling", "hamming")
    assert len(listed) == rolling["n_traps"] + hamming["n_traps"] > 0
    for row in (rolling, hamming):
        own = [trap for trap in listed if trap["detector"] == row["detector"]]
        assert row["n_perfect"] == sum(trap["min_gap"] > 0 for trap in own)
    assert all(trap["duration"] >= 150 for trap in listed)
    assert periods["text"] == paper_a.PERIODS and periods["holding_time"] > 1
    assert len(made.pictures) == 4 and "4 chains" in made.how and len(made.claims) == 7
    assert all("temperature: 0.05" in " ".join(claim.ours) for claim in made.claims)
    assert made.claims[-1].verdict.word == ("agrees" if periods["perfect"] else "disagrees")
    assert paper("A-table5", seeds=1, chains=4, out=tmp_path / "papers").to_dict() == made.to_dict()


def test_the_claims_of_a_catalogue(tiny_folder):
    run = sample(str(tiny_folder), TEXTS, steps=400, chains=6, temperature=0.1)
    model = glauber.load(str(tiny_folder), dtype="float64").conditionals()
    found = TrapSearch(run, model).hamming(shortest=30, reach=0)

    def claims_of(catalogue):
        answers = Answers(rolling=catalogue, periods=None, settings=_values())
        return [entry.claim(answers) for entry in paper_a.TABLE_5.claims[:6]]

    gaps, count, perfect, duration, vacuous, weakest = claims_of(found)
    traps_of = [sum(trap.chain == chain for trap in found.traps) for chain in range(6)]
    assert count.quantity.value == pytest.approx(np.mean(traps_of) * 750)
    low, high = count.quantity.interval
    assert 0 <= low <= count.quantity.value <= high
    assert poisson.cdf(17, count.region.high) == pytest.approx(0.025)
    assert poisson.sf(16, count.region.low) == pytest.approx(0.025)
    assert perfect.quantity.value == pytest.approx(np.mean([t.perfect for t in found.traps]))
    assert duration.quantity.value == pytest.approx(np.mean([t.duration for t in found.traps]))
    firm = [trap for trap in found.traps if trap.perfect]
    assert vacuous.quantity.value == np.mean([trap.margins.escape_bound >= 1 for trap in firm])
    left = [trap for trap in found.traps if trap.escape]
    at = np.mean([trap.escape.at_weakest for trap in left])
    assert weakest.quantity.value == pytest.approx(at)
    assert gaps.quantity.value == pytest.approx(found.ranks.difference.value)
    words = [claim.verdict.word for claim in claims_of(replace(found, traps=()))]
    assert set(words[2:]) == {"cannot tell"} and words[0] == "cannot tell"


# The eight traps that table 5 lists: duration, mean gap, min gap; None: lost, at most 0.
LISTED = [
    (4950, 9.14, 7.46),
    (650, 5.44, 0.56),
    (350, 4.16, 0.06),
    (350, 5.78, 0.01),
    (1200, 4.12, None),
    (1050, 4.99, None),
    (300, 9.23, None),
    (650, 3.10, None),
]


def test_the_traps_that_the_paper_lists_rank_the_other_way():
    """Whatever the four lost min gaps are, up to 0: by SciPy, with random values and ties.

    What is computed from the published table is ours and not called published.
    """
    durations, means, smallest = zip(*LISTED, strict=True)
    assert smallest.count(None) == 4 and min(gap for gap in smallest if gap is not None) > 0
    random = np.random.default_rng(0)
    seen = []
    for _ in range(400):
        lost = iter(-random.integers(0, 6, size=4) / random.integers(1, 9))
        filled = [next(lost) if gap is None else gap for gap in smallest]
        seen.append(somersd(durations, filled).statistic)
    assert (min(seen), max(seen)) == pytest.approx((-1 / 13, 5 / 13))  # 26 pairs in known order
    by_mean = somersd(durations, means).statistic
    assert by_mean < min(seen)
    note = paper_a.PUBLISHED_RANKS
    assert note.startswith("computed by us") and f"D is {by_mean:.2f} by the mean gap" in note
    assert f"between {min(seen):.2f} and {max(seen):.2f}" in note
    claim = paper_a.TABLE_5.claims[0]
    assert claim.published == "better, no number" and note in claim.choices


def test_the_regimes(resize, tiny_folder):
    resize("A-regimes", length=5, chains=3, steps=150, texts=tuple(TEXTS[:2]), embedder="tokens")
    made = paper("A-regimes")
    assert [row["temperature"] for row in made.rows] == [0.01, 0.1, 1, 10, 100]
    changed = [row["changed"] for row in made.rows]
    assert changed[0] < changed[1] < 0.9 < changed[4]
    entropies = [row["entropy"] for row in made.rows]
    assert entropies == sorted(entropies) and entropies[-1] <= np.log(len(VOCABULARY))
    far = [row["from_start"][0] for row in made.rows]
    run = sample(str(tiny_folder), TEXTS[:2], steps=150, chains=3, length=5, temperature=100.0)
    by_hand = np.mean([distances(run, step) for step in (100, 150)])
    assert far[4] == pytest.approx(by_hand, abs=1e-6)
    claims = by_sentence(made)
    assert len(claims) == len(made.claims) == 7
    close = "at temperature 0.01 chains stay close to where they began"
    assert claims[close].quantity.value == pytest.approx(far[0])
    noise = claims[f"{close}, compared with noise"]
    assert noise.quantity.value == pytest.approx(far[0] - far[3] / 2)
    lost = claims["at temperature 1 chains lose their initial identity"]
    assert lost.quantity.value == pytest.approx(far[2] - far[3] / 2)
    hot = claims["at temperature 100 token selection becomes nearly uniform"]
    assert hot.verdict.word == "agrees" and 0.9 < hot.quantity.value <= 1
