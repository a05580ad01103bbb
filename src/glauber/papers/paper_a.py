"""Paper A, "Mixing Times of Glauber Dynamics on Masked Language Models", in its order.

Our copy of the text has lost many numbers, above all the temperatures; those settings are ours and
are listed as `not_in_paper`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy.special import gammaincinv

from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.foundation.statistics import (
    Estimate,
    clopper_pearson,
    clustered_mean,
    clustered_proportion,
    difference,
    mean_over_chains,
    proportion,
    rank_correlation,
)
from glauber.foundation.study import columns_of, one_of
from glauber.interfaces.plots.compatibility import plot_delta_against_influence, plot_deltas
from glauber.interfaces.plots.landscape import (
    plot_crossings,
    plot_recurrence,
    plot_topic_river,
    plot_trajectory,
)
from glauber.interfaces.plots.metastability import plot_regimes
from glauber.interfaces.plots.mixing import (
    plot_distance_by_length,
    plot_drift_by_temperature,
    plot_forgetting,
    plot_margin_growth,
    plot_saturation,
    plot_scaling,
)
from glauber.models.base import Model
from glauber.models.load import load
from glauber.papers.claims import (
    LOWER,
    UPPER,
    Quantity,
    Region,
    above,
    at_least,
    at_most,
    below,
    near,
)
from glauber.papers.piece import (
    BART,
    DEBERTA,
    JINA,
    Answers,
    Number,
    Piece,
    Published,
    Record,
    Row,
    as_tuple,
    columns,
)
from glauber.papers.work import Chains, Settings, published_name, weights
from glauber.runs.embedding import Embedder, choose_embedder
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots, snapshots
from glauber.studies.compatibility.rectangles import LEFT_TO_RIGHT, rectangles
from glauber.studies.compatibility.single_mask import single_mask
from glauber.studies.landscape.entailment import EXAMPLE
from glauber.studies.landscape.kinds import KINDS, text_kinds
from glauber.studies.landscape.labels import held_out_passages
from glauber.studies.landscape.prefixes import MOTION, PREFIXES, prefixes
from glauber.studies.landscape.recurrence import Recurrence, recurrence
from glauber.studies.landscape.scorers import SIMILARITY, TopicScores
from glauber.studies.landscape.topics import topics
from glauber.studies.landscape.trajectory import trajectory_in_plane
from glauber.studies.metastability.drift import drift
from glauber.studies.metastability.margins import Margins, margins
from glauber.studies.metastability.regimes import regime
from glauber.studies.metastability.traps import (
    SHORTEST,
    STRIDE,
    WINDOW,
    Trap,
    TrapList,
    traps,
)
from glauber.studies.mixing.coherence import coherence
from glauber.studies.mixing.crossover import Crossover, fit_crossover
from glauber.studies.mixing.growing_margin import MarginAndTime, margin_and_time
from glauber.studies.mixing.growth import Growth, fit_growth
from glauber.studies.mixing.influence import AveragedInfluence, influence, influence_at
from glauber.studies.mixing.ising_crossover import ising_phase, width_ratio
from glauber.studies.mixing.phase import Phase, contraction_thresholds, phase, phase_diagram
from glauber.studies.mixing.phase import threshold_ratio as crossover_ratio
from glauber.studies.mixing.scaling import Scaling, fit_scaling
from glauber.studies.mixing.semantic_drift import (
    DriftDistances,
    SaturationFit,
    distances,
    fit_saturation,
    hitting_times,
    passages_of,
    saturation,
)

SMALL, BERT = "bundled:english", "bert-base-uncased"
ROBERTA, MODERNBERT = "roberta-base", "answerdotai/ModernBERT-base"
SHARE, DISTANCE, POSITIVE = (0.0, 1.0), (0.0, 2.0), (0.0, np.inf)  # bounds of values


def choose(run: Run | Snapshots, name: str | None) -> Embedder:
    """The embedder of that name, or the one of the package if it reads these texts.

    The paper's own brings code with it; any other that does is refused.
    """
    jina = name is not None and name.split("?")[0] == JINA.split("?")[0]
    return choose_embedder(run, name, trust_remote_code=jina)


def temperature_chains(s: Settings) -> list[Chains]:
    """Chains at each temperature, with the same starts and seed."""
    return [s.chain_set(temperature=temperature) for temperature in s.temperatures]


def temperature_runs(s: Settings) -> dict[float, Run]:
    return dict(zip(s.temperatures, map(s.run, temperature_chains(s)), strict=True))


# Figures 1 and 4 (appendix B.6): trajectories in the plane.

CLUSTER = 5  # equal snapshots in a row
CLUSTERS = "clear clusters of points, which are one sentence repeated; no number in our text"


def path_chains(s: Settings) -> list[Chains]:
    return [s.chain_set(chains=s.n_chains)]


def ask_paths(s: Settings) -> dict[str, object]:
    texts = snapshots(s.run(path_chains(s)[0]), every=min(s.every, s.steps))
    embedder = choose(texts, s.embedder)
    what = "its embeddings" if embedder.reads_meaning else "its tokens"
    plane = trajectory_in_plane(embedder.vectors(texts), texts.steps, texts.texts, what=what)
    return {"snapshots": texts, "plane": plane, "embedder_used": embedder}


def repeat_share(texts: Sequence[str]) -> float:
    """The share of snapshots, without the first, whose text occurred before."""
    return 1 - (len(set(texts)) - 1) / max(1, len(texts) - 1)


def longest_repeat(texts: Sequence[str]) -> int:
    """The largest number of consecutive snapshots with one text."""
    return max(len(list(same)) for _, same in groupby(texts))


def path_rows(a: Answers) -> list[Row]:
    return [
        {
            "chain": chain,
            "snapshots": len(own),
            "different_texts": len(set(own)),
            "share_repeated": repeat_share(own),
            "longest_repeat_steps": (longest_repeat(own) - 1) * a.snapshots.every,
            "explained": sum(a.plane.explained or ()),
            "kind": "exact",
            "embedder": a.embedder_used.name,
            "published": CLUSTERS,
        }
        for chain, own in enumerate(a.snapshots.texts)
    ]


PATHS: Record = dict(
    protocol="two-dimensional PCA of sentence embeddings, joined in time order from warm to cool",
    paper=dict(model=BERT, embedder=JINA, length=20, steps=10_000, every=50),
    not_in_paper=("temperature", "every"),
    choices=("the starts",),
    chains=path_chains,
    ask=ask_paths,
    table=path_rows,
)
PATHS_SMALL = dict(
    model=SMALL, texts=None, embedder=None, length=12, steps=600, every=10, temperature=0.7
)
FIGURE_1 = Piece(
    "one chain's trajectory in the plane",
    **PATHS,
    small=PATHS_SMALL | {"n_chains": 1},
    figures=lambda a: {"trajectory": plot_trajectory(a.plane)},
    claims=[
        Published(
            "the path has clear clusters of points, which are one sentence repeated",
            "paper A, figure 1",
            CLUSTERS,
            "largest number of equal snapshots in a row, in the chain shown",
            lambda a: Quantity(
                "",
                longest_repeat(a.snapshots.texts[0]),
                n=1,
                bounds=(1, np.inf),
                reason="one value cannot show how much values differ",
            ),
            at_least(CLUSTER),
            choices=(f"a cluster: {CLUSTER} equal snapshots in a row",),
        )
    ],
    seconds=10,
)
FIGURE_4 = Piece(
    "further trajectories in the plane",
    **PATHS,
    small=PATHS_SMALL | {"n_chains": 3},
    figures=lambda a: {
        f"chain-{chain}": plot_trajectory(a.plane, chain=chain)
        for chain in range(a.settings.n_chains)
    },
    claims=[
        Published(
            "further paths have the same clusters",
            "paper A, figure 4",
            CLUSTERS,
            "share of snapshots whose text occurred before",
            lambda a: mean_over_chains(list(map(repeat_share, a.snapshots.texts)), bounds=SHARE),
            above(0.1),
            effect=0.5,
            choices=("a tenth of the snapshots at least; power for half of them",),
            bounds=SHARE,
        )
    ],
    seconds=15,
)


# Figure 2: how long the start is remembered. The introduction says that the time to forget the
# initial state undergoes a temperature-dependent transition, appendix C.3 that the figure shows the
# slow regime, in which the distance from the start grows far more slowly. The figure is not in our
# text. Both are made: coalescence times of coupled chains, and the distance, over temperature.

COLD, HOT = 0.1, 2.0
THRESHOLD = 0.5  # distance whose hitting time is measured
RARELY = 0.25  # share of the chains


def diagram(s: Settings, lengths: Sequence[int], **thresholds: Any) -> Phase:
    """The phase diagram of these settings, which resumes in the folder."""
    options: Record = {
        "model": s.model,
        "texts": None if s.texts is None else list(s.texts),
        "lengths": list(lengths),
        "temperatures": list(s.temperatures),
        "pairs": s.chains,
        "steps": s.steps,
        "seed": s.seed,
    }
    return phase(**options, **thresholds, device=s.device, out=s.place("phase", options))


def ask_forgetting(s: Settings) -> dict[str, object]:
    runs = temperature_runs(s)
    embedder = choose(next(reversed(runs.values())), s.embedder)
    curves = {t: distances(run, embedder, every=min(s.every, s.steps)) for t, run in runs.items()}
    return {"phase": diagram(s, [s.length], thresholds=0), "curves": curves, "embedded": embedder}


def forgetting_rows(a: Answers) -> list[Row]:
    rows = []
    for t, curve in a.curves.items():
        cell = a.phase.cell(t, a.settings.length)
        end = mean_over_chains(curve.values[:, -1], bounds=DISTANCE, student=True)
        row = {"temperature": t, "median": cell.median, "distance_at_end": end, "kind": end.kind}
        rows += columns(
            [row | {"reached_threshold": share_that_reached(curve)}],
            "temperature",
            "median",
            "distance_at_end",
            "reached_threshold",
            "kind",
            met=f"{sum(cell.met)} of {len(cell.met)}",
            published="a transition with temperature; slower at low ones; no number in our text",
        )
    return rows


def share_that_reached(curve: DriftDistances) -> Estimate:
    """The share of chains that reached the threshold at some snapshot."""
    times = hitting_times(curve, THRESHOLD)
    return proportion(times.n_hit, len(times.hit))


def rise_of_met(a: Answers) -> Estimate:
    """Pairs that meet at the highest temperature less those at the lowest, pair by pair."""
    first, last = (
        np.array(a.phase.cell(t, a.settings.length).met, np.float64)
        for t in (min(a.curves), max(a.curves))
    )
    return mean_over_chains(last - first, bounds=(-1.0, 1.0))


FIGURE_2 = Piece(
    "time to forget the start, and distance from it, by temperature",
    "{chains} pairs of chains under the maximal coupling, and {chains} chains, of {steps:,} steps "
    "each, of {length} tokens; the chains have the same starts and seed at every temperature. "
    "{embedded.description}",
    small=dict(
        model=SMALL,
        texts=None,
        embedder=None,
        length=12,
        temperatures=(COLD, 0.3, 0.5, 0.7, 1.0, 1.5, HOT, 3.0),
        chains=12,
        steps=240,
        every=20,
    ),
    paper=dict(model=BERT, embedder=JINA, length=20, chains=100, steps=5000, every=200),
    not_in_paper=("temperatures", "steps", "every"),
    choices=(
        "that figure 2 shows the time to forget is our reading of the introduction; the distance "
        "is that of appendix C.3",
    ),
    chains=temperature_chains,
    ask=ask_forgetting,
    table=forgetting_rows,
    figures=lambda a: {
        "forgetting": plot_forgetting(a.phase),
        "distance": plot_drift_by_temperature(a.curves),
    },
    claims=[
        Published(
            "the time to forget the initial state undergoes a temperature-dependent transition",
            "paper A, introduction (figure 2)",
            "a transition; its temperature is lost in our text",
            "share of pairs of {length} tokens that meet, at the highest temperature less at the "
            "lowest",
            rise_of_met,
            above(0.5),
            effect=1.0,
            choices=("a transition: the share that meets rises by more than half",),
            unit="pairs",
            bounds=(-1.0, 1.0),
        ),
        Published(
            "at low temperatures the distance from the start grows far more slowly than at high "
            "ones",
            "paper A, appendix C.3",
            "far more slowly",
            f"distance at temperature {COLD:g} less half of that at {HOT:g}, from equal starts",
            lambda a: mean_over_chains(
                a.curves[COLD].values[:, -1] - a.curves[HOT].values[:, -1] / 2
            ),
            below(0.0),
            effect=-0.1,
            choices=("far: less than half; power for a tenth below that",),
        ),
        Published(
            "the threshold is rarely reached at low temperatures within the step budget",
            "paper A, section 6.1",
            "rarely",
            f"share of chains that reach a distance of {THRESHOLD:g} at temperature {COLD:g}",
            lambda a: share_that_reached(a.curves[COLD]),
            below(RARELY),
            effect=0.0,
            choices=(
                f"rarely: below {RARELY:g}",
                f"threshold {THRESHOLD:g}: the paper's is lost; looked at every {{every}} steps",
            ),
            bounds=SHARE,
        ),
    ],
    seconds=300,
)


# Section 4: rectangles. Table 1, figures 5 and 6 read one study.

# Mean Delta, paper A, table 1.
MEAN_DELTA = {
    BERT: 0.644,
    "bert-large-uncased": 0.798,
    ROBERTA: 0.705,
    "roberta-large": 0.735,
    MODERNBERT: 0.753,
}
LARGE_OF = {BERT: "bert-large-uncased", ROBERTA: "roberta-large"}
SIZES = dict(
    zip((*MEAN_DELTA, "gpt2"), ("110M", "335M", "125M", "355M", "150M", "124M"), strict=True)
)
TYPES = {"masked": "MLM", "causal": "AR", "diffusion": "diffusion", "custom": "custom"}
FLOOR = "a rectangle counts only if Delta exceeds the measured noise floor, in place of 0"
DRAWS = "replacements are uniform among the 50 most probable tokens without the current one"
RECTANGLES = (
    "{count} random rectangles of {length}-token passages, replacements from the model's own top "
    "50; intervals over passages"
)


def measure_rectangles(s: Settings, model: str) -> SimpleNamespace:
    """Rectangles in float32 with the noise floor against float64, for all pieces."""

    def make() -> dict[str, object]:
        result = rectangles(
            model, s.texts, count=s.count, length=s.length, seed=s.seed, device=s.device
        )
        return {
            "delta": result.delta,
            "influence": result.influence,
            "passages": result.rectangles.passages,
            "certified": result.rectangles.certified,
            "noise_floor": result.rectangles.noise_floor,
            "quantiles": result.quantiles,
            "type": TYPES[result.kind],
            "parameters": result.parameters,
        }

    key = {"model": weights(model), "texts": s.texts, "seed": s.seed}
    key |= {"count": s.count, "length": s.length}
    stored = s.part("rectangles", key, make)
    arrays = ("delta", "influence", "passages", "certified")
    stored |= {name: np.array(stored[name]) for name in arrays if stored[name] is not None}
    return SimpleNamespace(model=model, **stored)


def ask_control(s: Settings, model: str) -> dict[str, object]:
    """Rectangles of a model with a joint distribution, which close by construction."""

    def make() -> dict[str, object]:
        result = rectangles(
            model,
            s.texts,
            count=s.count,
            length=s.length,
            seed=s.seed,
            control=s.control,
            control_count=s.control_count,
            device=s.device,
        )
        return vars(result.control)

    key = {"model": weights(model), "texts": s.texts, "seed": s.seed, "length": s.length}
    key |= {"control": s.control, "count": min(s.count, s.control_count)}
    stored: Record = s.part("control", key, make)
    return stored | {"type": TYPES[stored["kind"]]}


def ask_table_1(s: Settings) -> dict[str, object]:
    models = as_tuple(s.model)
    return {
        "studies": [measure_rectangles(s, model) for model in models],
        "control": ask_control(s, models[0]),
    }


def mean_delta(study: SimpleNamespace) -> Estimate:
    return clustered_mean(study.delta, study.passages, bounds=POSITIVE)


def table_1_rows(a: Answers) -> list[Row]:
    rows = [
        {
            **vars(study),
            "mean": mean_delta(study),
            "certified": int(study.certified.sum()),
            "count": len(study.delta),
            "published": MEAN_DELTA.get(name),
            "published_parameters": SIZES.get(name),
        }
        for study in a.studies
        for name in [published_name(study.model) or study.model]
    ]
    closes = a.control | {"model": f"control: {a.control['model']}", "published": 0.0}
    closes["published_parameters"] = SIZES["gpt2"]
    ours = ("model", "type", "parameters", "mean", "certified", "count")
    names = (*ours, "published", "published_parameters")
    return [
        *columns(rows, *names, kind="estimate"),
        *columns([closes], *names, "largest", kind="exact up to rounding; it checks only that"),
    ]


def table_1_claims(a: Answers) -> Iterable[Published]:
    for study in a.studies:
        common: Record = dict(unit="passages", bounds=POSITIVE)
        name, mean = f"mean Delta of {study.model}", mean_delta(study)
        yield Published(
            "the conditionals of masked language models are incompatible with any joint "
            "distribution",
            "paper A, table 1",
            "mean Delta from 0.644 to 0.798 over five models",
            name,
            mean,
            above(study.noise_floor),
            effect=min(MEAN_DELTA.values()),
            **common,
        )
        if (known := published_name(study.model)) is not None:
            published = MEAN_DELTA[known]
            yield Published(
                f"the mean Delta of {known} is {published}",
                "paper A, table 1",
                published,
                name,
                mean,
                near(published, 0.1),
                choices=("within 0.1 counts as the same: the paper gives no error",),
                differs=by_config(study.model),
                **common,
            )
    yield from size_claims(a)


def by_config(model: str) -> tuple[str, ...]:
    """The note on a folder that is taken for a published model."""
    known = published_name(model)
    if known in (None, model):
        return ()
    return (f"{model} is taken for {known} by its name or its config; weights are not compared",)


def size_claims(a: Answers) -> Iterable[Published]:
    """That a large model's Delta is no smaller than half of the base model's, if both are given."""
    studies = {published_name(study.model): study for study in a.studies}
    for base, large in LARGE_OF.items():
        if base not in studies or large not in studies:
            continue
        own, other = studies[large], studies[base]
        number: Number = Quantity("", None, reason="the rectangles are of other passages")
        if np.array_equal(own.passages, other.passages):
            number = clustered_mean(own.delta - other.delta / 2, own.passages)
        yield Published(
            f"incompatibility persists across model sizes: {large}",
            "paper A, section 1, item 1",
            f"{MEAN_DELTA[base]} and {MEAN_DELTA[large]}",
            f"mean Delta of {large} less half of that of {base}",
            number,
            above(0.0),
            effect=MEAN_DELTA[large] - MEAN_DELTA[base] / 2,
            choices=("persists: the larger model has more than half of the smaller one's Delta",),
            unit="passages",
            differs=(*by_config(own.model), *by_config(other.model)),
        )


def fully_certified(a: Answers) -> Estimate:
    """The share of passages of which every rectangle is certified."""
    passages, certified = a.study.passages, a.study.certified
    n = len(np.unique(passages))
    return proportion(n - len(np.unique(passages[~certified])), n)


def influence_rank(a: Answers) -> Number:
    if a.study.influence is None:
        return Quantity("", None, reason="an autoregressive model has no influence here")
    return rank_correlation(a.study.influence, a.study.delta, chain=a.study.passages)


RECTANGLES_SMALL = dict(model=SMALL, texts=None, count=300, length=20)
TABLE_1 = Piece(
    "mean rectangle incompatibility by model",
    RECTANGLES,
    small=RECTANGLES_SMALL | {"control": LEFT_TO_RIGHT, "control_count": 300},
    paper=dict(model=tuple(MEAN_DELTA), control="gpt2"),
    ask=ask_table_1,
    table=table_1_rows,
    claims=table_1_claims,
    differs=(FLOOR,),
    choices=(DRAWS,),
    several_models=True,
    seconds=300,
)
ONE_MODEL: Record = dict(
    protocol=RECTANGLES,
    small=RECTANGLES_SMALL,
    paper=dict(model=BERT),
    ask=lambda s: {"study": measure_rectangles(s, s.model)},
    differs=(FLOOR,),
    seconds=25,
)
FIGURE_5 = Piece(
    "distribution of the rectangle incompatibility",
    **ONE_MODEL,
    table=lambda a: columns(
        [{**vars(a.study), "certified_passages": fully_certified(a)}],
        "model",
        "quantiles",
        "noise_floor",
        "certified_passages",
        kind="estimate",
        published="broad",
    ),
    figures=lambda a: {"histogram": plot_deltas(a.study.delta, a.study.noise_floor)},
    claims=[
        Published(
            "incompatibility is the rule and not the exception",
            "paper A, figure 5",
            "broad",
            "share of passages whose rectangles all lie above the noise floor",
            fully_certified,
            above(0.5),
            choices=("the rule: all rectangles of more than half of the passages",),
            unit="passages",
            bounds=SHARE,
        )
    ],
    choices=(DRAWS,),
)
FIGURE_6 = Piece(
    "rectangle incompatibility against influence",
    **ONE_MODEL,
    table=lambda a: columns(
        [{"model": a.study.model, "influence_correlation": influence_rank(a)}],
        "model",
        "influence_correlation",
        kind="estimate",
        published="it grows",
    ),
    figures=lambda a: {"influence": plot_delta_against_influence(a.study.influence, a.study.delta)},
    claims=[
        Published(
            "Delta grows with the influence between the two sites",
            "paper A, figure 6",
            "it grows",
            "rank correlation of Delta and influence",
            influence_rank,
            above(0.0),
            effect=0.3,
            choices=(
                "influence: the mean of the total variations at the two sites when the token of "
                "the other one changes as in the rectangle; the paper's measure is not in our text",
                "power for a rank correlation of 0.3",
            ),
            unit="passages",
            bounds=(-1.0, 1.0),
        )
    ],
    choices=(
        DRAWS,
        "influence: the mean of the two total variations at the rectangle's own tokens",
    ),
)
MATTERS = 0.05  # nats: the smallest mean difference of log-ratios that matters
RANKS, MISMATCH = 0.5, 0.01  # a rank correlation and a total variation that count
SEEN = "the threshold was chosen after a first look at these texts"


def ask_single_mask(s: Settings) -> dict[str, object]:
    probes = []
    for sites, top in s.free:
        options = {"count": s.count, "temperature": s.temperature, "chains": s.chains}
        options |= {"steps": s.steps, "length": s.length, "sites": sites, "top": top}
        options |= {"seed": s.seed, "texts": s.texts}

        def make(options: Record = options) -> dict[str, object]:
            result = single_mask(s.model, device=s.device, **options)
            names = ("difference", "total_variation", "reversed")
            estimates = {name: getattr(result, name) for name in names}
            for score, match in result.sizes.items():
                estimates |= {f"{score}_{measure}": mean for measure, mean in match.items()}
                estimates[f"{score}_by_incompatibility"] = result.by_incompatibility[score]
            row = {"differing": result.differing, "covered": result.covered}
            picture = parse_json(result.figure().to_json() or "{}")
            return {"estimates": estimates, "row": row, "picture": picture}

        stored = s.part("single-mask", options | {"model": weights(s.model)}, make)
        estimates = {name: read_estimate(each) for name, each in stored["estimates"].items()}
        probes.append(SimpleNamespace(sites=sites, top=top, **(stored | {"estimates": estimates})))
    return {"probes": probes}


def read_estimate(record: Record) -> Estimate:
    """An estimate from its JSON object."""
    interval, value = record["interval"], record["value"]
    ends = None if interval is None else tuple(interval)
    return Estimate(**{**record, "value": np.nan if value is None else value, "interval": ends})


def probe_claims(probe: SimpleNamespace) -> Iterable[Published]:
    """Single masks against the chain, and the potential against its stationary distribution."""
    free = f"{probe.sites} free sites"
    yield Published(
        f"without compatibility, single-mask probing differs from iterative generation: {free}",
        "paper A, Eq. 4.1",
        "it may differ; no number",
        "mean |difference of log-ratios|",
        probe.estimates["difference"],
        above(MATTERS),
        effect=2 * MATTERS,
        choices=(f"a mean difference of {MATTERS:g} nats as the smallest that matters",),
        unit="texts",
        bounds=POSITIVE,
    )
    potential = "the approximation is the best potential (least squares over all edges)"
    common: Record = dict(source="paper A, section 7", unit="texts")
    yield Published(
        f"Lyapunov-function approximations rank sequences by occurrence probability: {free}",
        published="they do; no number",
        name="rank correlation of the best potential and the stationary distribution",
        number=probe.estimates["potential_rank"],
        agrees=above(RANKS),
        effect=(1 + RANKS) / 2,
        choices=(potential, f"they rank: a mean rank correlation above {RANKS:g}", SEEN),
        bounds=(-1.0, 1.0),
        **common,
    )
    yield Published(
        f"but do not match quantitatively: {free}",
        published="they do not; no number",
        name="total variation of exp(best potential) from the stationary distribution",
        number=probe.estimates["potential_total_variation"],
        agrees=above(MISMATCH),
        effect=2 * MISMATCH,
        choices=(potential, f"a mean total variation above {MISMATCH:g} counts as no match", SEEN),
        bounds=SHARE,
        **common,
    )


EQUATION_4_1 = Piece(
    "single-mask ratios against the chain's stationary ones",
    "{count} texts of {length} tokens; a few random sites are free and take the model's first "
    "choices there, the rest is fixed; the chain on them is enumerated in float64, and {chains} "
    "chains of {steps:,} steps are counted; intervals over texts",
    small=dict(
        model=SMALL,
        texts=None,
        count=16,
        length=20,
        free=((2, 8), (3, 4)),
        temperature=1.0,
        chains=8,
        steps=800,
    ),
    paper=dict(model=BERT, count=100, chains=16, steps=4000),
    not_in_paper=("count", "free", "chains", "steps", "temperature"),
    choices=(
        "the paper states the equation and measures nothing",
        "deviation from the pseudo-log-likelihood, which section 7 leaves open, is in the table",
        "the chain is that of the fixed text: the full chain moves the other sites too",
    ),
    ask=ask_single_mask,
    table=lambda a: [
        row
        for probe in a.probes
        for row in columns(
            [probe.estimates | probe.row],
            *(*probe.estimates, *probe.row),
            sites=probe.sites,
            top=probe.top,
            kind="estimate over texts",
        )
    ],
    figures=lambda a: {f"{probe.sites}-sites": plotly_figure(probe.picture) for probe in a.probes},
    claims=lambda a: [claim for probe in a.probes for claim in probe_claims(probe)],
    seconds=45,
)


def plotly_figure(record: Record) -> Any:
    """A figure from its JSON object."""
    from plotly.graph_objects import Figure

    return Figure(record)


# Section 5.2 and appendix A.1: influence of a sentence, and the contraction threshold.

SENTENCE = "the old bridge over the river was closed because the water had risen too"
SENTENCE_LENGTH = 14  # tokens of the paper's sentence
ORDER = Region(10**0.5, 10**1.5)  # "roughly an order of magnitude"

INFLUENCE = Piece(
    "influence, alpha and the contraction threshold of one sentence",
    "suprema over sampled contexts and replacement tokens of one sentence of {n_tokens} tokens, "
    "and the mean influence along 8 chains that start from it",
    small=dict(model=SMALL, texts=None, temperature=1.0, samples=4),
    paper=dict(model=BERT, samples=32),
    published=dict(texts=None),
    not_in_paper=("temperature", "samples"),
    choices=(
        "the sentence: the paper's is lost",
        "coherence: pseudo-log-likelihood per token at temperature 1",
        "threshold: root of the tanh sum; linear_threshold: Corollary 7 with the constant 1/4, the "
        "paper's own constant is lost in our text",
    ),
    ask=lambda s: ask_influence(s),
    table=lambda a: [
        {
            "model": a.settings.model,
            "temperature": a.settings.temperature,
            "alpha": a.study.alpha,
            "alpha_kind": a.study.matrix.kind,
            "threshold": a.study.threshold,
            "linear_threshold": a.study.matrix.linear_threshold,
            "threshold_kind": a.study.matrix.threshold_kind,
            "alpha_mean_over_contexts": a.mean.alpha,
            "thresholds_mean_over_contexts": [a.mean.threshold, a.mean.linear_threshold],
            "context_coherence": a.contexts.coherence.tolist(),
            "context_share_of_suprema": a.contexts.shares_of_suprema.tolist(),
            "average_influence": [a.average.value, *(a.average.interval or ())],
        }
    ],
    figures=lambda a: {"heat": a.study.figure()},
    claims=[
        Published(
            "the contraction theorem does not apply at natural temperatures",
            "paper A, section 5.2",
            "alpha is above 1; its value is lost in our text",
            "alpha at temperature {temperature:g}",
            lambda a: a.study.alpha,
            above(1.0),
            kind=LOWER,
            choices=("the supremum over contexts of Definition 2",),
        ),
        Published(
            "the contraction theorem does not apply at natural temperatures, by the paper's "
            "estimator of the influence",
            "paper A, appendix A.1",
            "alpha is above 1; its value is lost in our text",
            "alpha of the mean over contexts at temperature {temperature:g}",
            lambda a: a.mean.alpha,
            above(1.0),
            kind=LOWER,
            choices=("the mean over contexts of the largest value over tokens",),
        ),
        Published(
            "the supremum is dominated by coherent contexts",
            "paper A, appendix A.1",
            "dominated",
            "rank correlation over contexts of coherence and the largest column sum",
            lambda a: a.contexts.coherence_correlation,
            above(0.0),
            effect=0.5,
            choices=("power for a rank correlation of 0.5",),
            unit="contexts",
            bounds=(-1.0, 1.0),
        ),
        Published(
            "along a chain the typical influence is much smaller than the worst",
            "paper A, section 7 (a conjecture)",
            "much smaller",
            "average influence along the chains less half of alpha",
            lambda a: mean_over_chains(a.per_chain - a.study.alpha / 2),
            below(0.0),
            effect=lambda a: -0.25 * a.study.alpha,
            choices=("much smaller: less than half; power for a quarter of alpha",),
        ),
    ],
    seconds=35,
)


def ask_influence(s: Settings) -> dict[str, object]:
    study = influence(
        s.model,
        text=s.texts[0] if s.texts else SENTENCE,
        temperature=s.temperature,
        samples=s.samples,
        chains=8,
        seed=s.seed,
        device=s.device,
    )
    (average,) = study.averages
    return {
        "study": study,
        "mean": study.matrix.mean_over_contexts,
        "contexts": study.matrix.contexts,
        "n_tokens": len(study.tokens),
        "per_chain": average.per_chain,
        "average": mean_over_chains(average.per_chain),
    }


# Section 7 and appendix A.1: are chains mostly in incoherent texts, and is the influence smaller
# there? Section 5.2: how far above the temperatures of coherent text is the contraction threshold?
# The paper names no score of coherence.

MOSTLY = 0.5  # share of the time
NATURAL, FAST = 1.0, 1.5  # the model as it is, and about where pairs of chains meet


def coherence_chains(s: Settings) -> list[Chains]:
    """Chains at each temperature from the same starts, with a seed of their own."""
    return [
        s.chain_set(temperature=t, seed=len(s.temperatures) * s.seed + number)
        for number, t in enumerate(s.temperatures)
    ]


def ask_coherence(s: Settings) -> dict[str, object]:
    runs = dict(zip(s.temperatures, map(s.run, coherence_chains(s)), strict=True))
    device = None if s.device == "auto" else s.device
    studies = {
        t: coherence(run, every=min(s.every, s.steps), device=device) for t, run in runs.items()
    }
    lost = [(int(each.mostly_incoherent.sum()), s.chains) for each in studies.values()]
    ends = min(s.temperatures), max(s.temperatures)
    crossover = fit_crossover(s.length, s.temperatures, lost, ends=ends).crossover
    model = load(s.model, exact=True, device=s.device)
    thresholds = contraction_thresholds(model, s.texts, s.length, n_texts=s.thresholds, seed=s.seed)
    return {
        "studies": studies,
        "crossover": crossover,
        "ratio": crossover_ratio(thresholds, crossover),
        "influences": {t: influence_at_ends(model, runs[t], t, s.seed) for t in (NATURAL, FAST)},
    }


def influence_at_ends(
    model: Model, run: Run, temperature: float, seed: int
) -> tuple[AveragedInfluence, AveragedInfluence]:
    """The influence in the first and in the last states of the chains."""
    device, conditionals = model.state_device, model.conditionals()
    sites = torch.from_numpy(run.free[0].nonzero()[0]).to(device)
    first, last = (
        influence_at(
            conditionals,
            torch.from_numpy(run.tokens(step).astype(np.int64)).to(device),
            sites,
            temperature=temperature,
            seed=seed,
        )
        for step in (0, run.steps)
    )
    return first, last


def coherence_rows(a: Answers) -> list[Row]:
    names = ("at_start", "later", "change", "incoherent", "level")
    rows = columns(
        [
            {"temperature": t, **{name: getattr(each, name) for name in names}}
            for t, each in a.studies.items()
        ],
        "temperature",
        *names,
        kind="estimate",
        published="coherent far below the threshold; mostly incoherent where mixing is fast",
    )
    for row, each in zip(rows, a.studies.values(), strict=True):
        row["median_step_to_leave"] = each.first_incoherent.value
        row["chains_mostly_incoherent"] = int(each.mostly_incoherent.sum())
    for temperature, (first, last) in a.influences.items():
        values = {"influence_at_start": first.estimate, "influence_at_end": last.estimate}
        rows += columns([values], *values, temperature=temperature, kind="estimate")
    return rows + columns(
        [a.ratio], "threshold", "ratio", "interval", "kind", coherent_up_to=a.crossover.label
    )


def coherence_claims(a: Answers) -> Iterable[Published]:
    for t, (first, last) in a.influences.items():
        states = np.tile(np.arange(a.settings.chains), 2)
        yield Published(
            f"chains spend most of their time in incoherent configurations (temperature {t:g})",
            "paper A, section 7 (a conjecture)",
            "most of its time",
            f"share of the later half of the steps below the level at temperature {t:g}",
            a.studies[t].incoherent,
            above(MOSTLY),
            effect=(1 + MOSTLY) / 2,
            choices=("most: more than half", TWO_TEMPERATURES),
            bounds=SHARE,
        )
        yield Published(
            "in typical configurations of a chain the pairwise influence is smaller "
            f"(temperature {t:g})",
            "paper A, section 7 (a conjecture) and appendix A.1",
            "smaller",
            f"influence met in the last states less that in the starts at temperature {t:g}",
            mean_over_chains(last.per_chain - first.per_chain),
            below(0.0),
            effect=-first.mean / 4,
            choices=(
                "the starts stand for coherent texts; power for a quarter less",
                TWO_TEMPERATURES,
            ),
        )
        yield Published(
            f"coherent contexts have the larger influence (temperature {t:g})",
            "paper A, appendix A.1",
            "the supremum is dominated by them",
            f"rank correlation of coherence and influence over starts and last states at {t:g}",
            rank_correlation(
                np.concatenate([first.coherence, last.coherence]),
                np.concatenate([first.per_chain, last.per_chain]),
                chain=states,
            ),
            above(0.0),
            effect=0.3,
            choices=("power for a rank correlation of 0.3", TWO_TEMPERATURES),
            bounds=(-1.0, 1.0),
        )
    yield Published(
        "the contraction condition needs a temperature an order of magnitude above those of "
        "coherent text",
        "paper A, section 5.2",
        "an order of magnitude",
        "contraction threshold over the temperature at which half of the chains are mostly "
        "incoherent",
        Quantity("", a.ratio.ratio, a.ratio.interval, len(a.ratio.thresholds), "texts"),
        ORDER,
        effect=10.0,
        choices=("from 3.2 to 32 times counts as an order of magnitude",),
    )


TWO_TEMPERATURES = (
    f"temperatures {NATURAL:g} (the model as it is) and {FAST:g} (about where pairs of chains meet)"
)
COHERENCE = Piece(
    "coherence of the texts by temperature, next to influence and contraction threshold",
    "{chains} chains of {steps:,} steps from passages cut to {length} tokens at each temperature, "
    "scored every {every} steps by the pseudo-log-likelihood per token at temperature 1; coherent: "
    "at least the tenth percentile of the starts; thresholds of {thresholds} texts",
    small=dict(
        model=SMALL,
        texts=None,
        temperatures=(0.3, 0.5, 0.7, NATURAL, 1.2, FAST, 2.0),
        length=SENTENCE_LENGTH,
        chains=12,
        steps=280,
        every=28,
        thresholds=3,
    ),
    paper=dict(
        model=BERT,
        temperatures=(0.1, 0.3, 0.5, 0.7, NATURAL, 1.2, FAST, 2.0, 4.0),
        chains=100,
        steps=2000,
        every=100,
        thresholds=8,
    ),
    not_in_paper=("temperatures", "steps", "every"),
    published=dict(thresholds=1),
    choices=(
        "the score of coherence and its level: the paper names none; it is of the same model that "
        "writes, so a text may score high and make no sense",
    ),
    chains=coherence_chains,
    ask=ask_coherence,
    table=coherence_rows,
    figures=lambda a: {f"temperature-{t:g}": each.figure() for t, each in a.studies.items()},
    claims=coherence_claims,
)


# Section 5.3, the remark after Theorem 8: a margin of order n makes mixing exponential in n.

FASTER = 0.5  # share of the margin's growth that counts as exponential growth of the time

MARGIN_GROWTH = Piece(
    "mixing time of an exact family whose margin grows with the length",
    "two tokens; each site favours the token that all others share by {depth:g} n; t_mix(1/4) by "
    "enumeration at temperature {temperature:g}, next to Theorem 8's lower bound",
    small=dict(lengths=tuple(range(3, 11)), depth=1.0, temperature=1.0),
    choices=("the family, its lengths, depth and temperature: the paper names none",),
    ask=lambda s: {"family": margin_and_time(s.lengths, depth=s.depth, temperature=s.temperature)},
    table=lambda a: columns(
        a.family,
        *("length", "margin", "probability", "mixing_time", "bound", "kind"),
        published="exponential in n",
    ),
    figures=lambda a: {"times": plot_margin_growth(a.family)},
    claims=[
        Published(
            "t_mix is at least exp(Delta / tau) / (4 (|V| - 1))",
            "paper A, Theorem 8",
            "at least",
            "smallest logarithm of the mixing time over the bound",
            lambda a: min(row.log_excess for row in a.family),
            at_least(0.0),
        ),
        Published(
            "a margin of order n makes mixing exponential in n",
            "paper A, section 5.3 (remark)",
            "exponential",
            "smallest growth of log t_mix for each token, over that of the margin / temperature",
            lambda a: slowest_growth(a.family) * a.settings.temperature / a.settings.depth,
            above(FASTER),
            choices=(f"exponential: log t_mix gains more than {FASTER:g} of that at every length",),
        ),
    ],
)


def slowest_growth(family: Sequence[MarginAndTime]) -> float:
    """The smallest increase of log t_mix for each further token."""
    lengths, times = (
        np.array([getattr(row, name) for row in family], float)
        for name in ("length", "mixing_time")
    )
    return float((np.diff(np.log(times)) / np.diff(lengths)).min())


# Section 5.4: table 2, the drift at the boundary of a basin of "!".

BOUNDARY = ((0.042, 0.080), (0.024, 0.066))  # min and median, 200 of 200 positive
NEARLY_ALL = 0.95  # share of the states that counts as all of them


def ask_drift(s: Settings) -> dict[str, object]:
    levels = []
    for temperature in s.temperature:
        options = {"count": s.copies, "levels": s.levels, "samples": s.samples, "length": s.length}
        options |= {"temperature": temperature, "seed": s.seed}
        options |= {"chains": s.chains, "steps": s.steps}

        def make(options: Record = options) -> dict[str, object]:
            result = drift(s.model, s.texts, token="!", device=s.device, **options)
            names = "count", "smallest", "median", "median_interval", "positive"
            rows = columns(result.levels, *names, drifts=result.levels[0].drifts)
            escapes = result.escapes
            assert escapes is not None  # there are chains
            pairs = zip(escapes.n_escaped, escapes.mean_times, strict=True)
            return {
                "levels": rows,
                "descent": result.descent,
                "kind": result.kind,
                "shape": vars(escapes.exponential_less_power),
                "escapes": [
                    {"depth": depth, "escaped": count, "mean_time": vars(time)}
                    for depth, (count, time) in enumerate(pairs, start=1)
                    if count
                ],
            }

        key = options | {"model": weights(s.model), "texts": s.texts}
        levels.append({"temperature": temperature} | s.part("drift", key, make))
    return {"studies": levels}


def boundary_claims(study: Record, row: tuple[float, float], samples: int) -> Iterable[Published]:
    """The published smallest and median drift at one temperature."""
    (smallest, median), boundary = row, study["levels"][0]
    source, at = "paper A, table 2", f"temperature {study['temperature']:g}"
    ends = boundary["median_interval"]
    matched = f"with temperature {study['temperature']:g} and k = {{copies}}, which are ours"
    yield Published(
        f"the median drift at the boundary is {median} ({at})",
        source,
        median,
        f"median drift of the boundary states at {at}",
        Quantity("", boundary["median"], ends and tuple(ends), samples, "states"),
        near(median, 0.01),
        choices=("within 0.01: the paper gives no error", matched),
    )
    yield Published(
        f"the smallest drift of 200 states at the boundary is {smallest} ({at})",
        source,
        smallest,
        f"share of boundary states at or below the published smallest at {at}",
        proportion(int((np.array(boundary["drifts"]) <= smallest).sum()), samples),
        at_most(0.05),
        effect=1 / 200,
        choices=("one of 200 is expected, at most a twentieth counts as the same", matched),
        unit="states",
        bounds=SHARE,
    )


def drift_claims(a: Answers) -> Iterable[Published]:
    source, samples = "paper A, section 5.4 and table 2", a.settings.samples
    for study, row in published_boundaries(a):
        at = f"temperature {study['temperature']:g}"
        boundary = study["levels"][0]
        yield Published(
            f"all 200 sampled boundary states of the '!' basin have a positive drift ({at})",
            source,
            f"200 of 200 ({boundary_text(row)})",
            f"share of boundary states with a positive drift at {at}",
            proportion(boundary["positive"], samples),
            at_least(NEARLY_ALL),
            effect=1.0,
            choices=(f"at least {NEARLY_ALL:.0%} of the states counts as all",),
            unit="states",
            bounds=SHARE,
        )
        if row is not None and published_name(a.settings.model) == BERT:
            yield from boundary_claims(study, row, samples)
        yield Published(
            f"escape times are exponential in the depth of the basin ({at})",
            "paper A, section 5.4",
            "exponential; what in is lost",
            f"R^2 of log mean escape time on the depth less that on its logarithm at {at}",
            read_estimate(study["shape"]),
            above(0.0),
            effect=0.1,
            choices=(
                "depth: copies that must be lost, n - k + 1, from {chains} chains of {steps:,} "
                "steps that begin with copies alone; depths that half of the chains left",
            ),
        )
        yield Published(
            f"positive drift at the boundary certifies slow mixing of the '!' basin ({at})",
            source,
            "certified from 200 states of the boundary",
            f"smallest drift at any state of k to k + {a.settings.levels} at {at}",
            Quantity(
                "",
                min(level["smallest"] for level in study["levels"]),
                kind=UPPER,
                n=samples * len(study["levels"]),
                unit="states",
            ),
            above(0.0),
            choices=(
                "a certificate needs a positive drift at every state of each level, and samples "
                "bound the smallest only from above",
            ),
        )


def published_boundaries(
    a: Answers,
) -> list[tuple[Record, tuple[float, float] | None]]:
    """Each temperature with its published row, if there are two: the colder one is the first."""
    studies = sorted(a.studies, key=lambda study: study["temperature"])
    rows = BOUNDARY if len(studies) == len(BOUNDARY) else [None] * len(studies)
    return list(zip(studies, rows, strict=True))


def boundary_text(row: tuple[float, float] | None) -> str:
    """A published row, or both of them."""
    rows = BOUNDARY if row is None else (row,)
    return " or ".join(f"smallest {smallest}, median {median}" for smallest, median in rows)


TABLE_2 = Piece(
    "drift of the copies of '!' at the boundary of its basin",
    "{samples} states of {length} tokens with exactly k = {copies} and {levels} further levels of "
    "copies of '!' at random places, the others from passages; the paper's temperatures and k are "
    "lost, so only settings that happen to be theirs can match the published numbers; escape times "
    "of {chains} chains of {steps:,} steps from copies alone",
    small=dict(
        model=SMALL,
        texts=None,
        temperature=(0.5, 1.0),
        copies=14,
        levels=2,
        samples=200,
        length=20,
        chains=16,
        steps=2000,
    ),
    paper=dict(model=BERT, chains=30, steps=10_000),
    not_in_paper=("temperature", "copies", "chains", "steps"),
    ask=ask_drift,
    table=lambda a: [
        row
        for study, published in published_boundaries(a)
        for row in [
            *columns(
                [study | study["levels"][0]],
                *("temperature", "smallest", "median", "positive", "descent", "kind"),
                published=f"{boundary_text(published)}, positive 200 of 200",
            ),
            *columns(
                [
                    each | {"mean_time": read_estimate(each["mean_time"])}
                    for each in study["escapes"]
                ],
                *("depth", "escaped", "mean_time"),
                temperature=study["temperature"],
            ),
        ]
    ],
    claims=drift_claims,
    seconds=160,
)


# Section 6.1: figures 3a and 3b, the drift of meaning by length. At sufficiently high temperatures
# the embedding distance grows logarithmically with the length at fixed time, and hitting times
# scale as n log n, whatever the threshold. Temperatures, threshold and its range are lost.

SNAPSHOTS = 12  # of the curves over time
USUAL_LENGTH = 20  # tokens, unless said otherwise (appendix B.2)
SWEEPS = 2  # after which distances are compared too, as a control of figure 3a


def length_chains(s: Settings) -> list[Chains]:
    """A run for each length, with a seed of its own, so that no noise is shared."""
    return [
        s.chain_set(length=n, seed=len(s.lengths) * s.seed + number)
        for number, n in enumerate(s.lengths)
    ]


def length_runs(s: Settings) -> tuple[dict[int, Run], Embedder]:
    runs = dict(zip(s.lengths, map(s.run, length_chains(s)), strict=True))
    return runs, choose(next(reversed(runs.values())), s.embedder)


def ask_figure_3a(s: Settings) -> dict[str, object]:
    runs, embedder = length_runs(s)
    # Given steps are those after which distances are compared.
    step = s.request.given.get("steps", s.step)

    def after(steps: dict[int, int]) -> dict[int, Any]:
        return {n: distances(run, embedder, every=steps[n]).at(steps[n]) for n, run in runs.items()}

    values, enough = after(dict.fromkeys(runs, step)), SWEEPS * max(runs) <= s.steps
    in_sweeps = after({n: SWEEPS * n for n in runs}) if enough else None
    every = max(1, s.steps // SNAPSHOTS)
    curves = {n: distances(run, embedder, every=every) for n, run in runs.items()}
    return {
        "values": values,
        "in_sweeps": in_sweeps,
        "growth": growth_of(values),
        "curves": curves,
        "levels": {n: fit_saturation(curve) for n, curve in curves.items()},
        "usual": min(runs, key=lambda n: abs(n - USUAL_LENGTH)),
        "at": step,
        "embedded": embedder,
    }


def growth_of(values: dict[int, Any]) -> Growth | str:
    """The laws of growth compared, or why they cannot be."""
    try:
        return fit_growth(values)
    except GlauberError as error:
        return str(error)


def shape_of_growth(values: dict[int, Any], growth: Growth | str) -> Quantity:
    """The shape of the growth; none where the distance is not known to grow."""
    if isinstance(growth, str):
        return Quantity("", None, reason=growth)
    ends, n = slope_in_log_n(values).interval, growth.n_chains
    if ends is None or ends[0] <= 0:
        return Quantity("", None, n=n, reason="the distance is not known to grow with the length")
    unit = f"chains at {len(values)} lengths"
    return Quantity("", growth.shape, growth.shape_interval, n=n, unit=unit)


def growth_rows(growth: Growth | str) -> list[Row]:
    if isinstance(growth, str):
        return [{"law": "none", "reason": growth}]
    names = ("law", "a", "b", "aic_difference", "weight", "misfit", "kind")
    shape = [growth.shape, *growth.shape_interval]
    return [*columns(growth.fits, *names), {"shape": shape, "kind": "estimate"}]


def saturation_row(curve: DriftDistances, fitted: SaturationFit) -> Row:
    """The level of the later half, whether the distance stays there, and the fitted curve."""
    late = saturation(curve)
    level, time = fitted.level, fitted.time
    return {
        "late_level": [late.level.value, *(late.level.interval or ())],
        "stays": late.verdict,
        "fitted_level": [level.value, *(level.interval or ())],
        "time_constant": [time.value, *(time.interval or ())],
        "fit": fitted.reason or "bends",
    }


def slope_in_log_n(values: dict[int, Any], comparisons: int = 1) -> Estimate:
    """The slope in log n of each trial, which starts from the same passage at every length."""
    logs = np.log(list(values)) - np.mean(np.log(list(values)))
    slopes = logs @ np.stack(list(values.values())) / (logs @ logs)
    return mean_over_chains(slopes, comparisons=comparisons)


def distance_means(a: Answers) -> dict[int, Estimate]:
    return {n: mean_over_chains(own, bounds=DISTANCE, student=True) for n, own in a.values.items()}


GROWTH: Record = dict(
    source="paper A, section 6.1 (figure 3a)",
    published="it grows logarithmically",
    agrees=above(0.0),
    effect=0.05,
    unit="starts",
)
GROWS = "at sufficiently high temperatures the embedding distance grows with the length"
FORM = "only growth is tested here; power for 0.05"
LOGARITHMIC = Region(-0.5, 0.5)  # shapes nearer to that of log n than to those of n and 1 / n
LENGTHS: Record = dict(chains=length_chains)
LENGTHS_SMALL = dict(
    model=SMALL,
    texts=None,
    embedder=None,
    temperature=1.0,
    lengths=(6, 9, 13, 19, 28),
    chains=50,
    steps=120,
)
LENGTHS_PAPER = dict(model=BERT, embedder=JINA, lengths=(5, 10, 15, 20, 25), chains=100, steps=2000)
PLACE = "{chains} chains a length from passages cut to n tokens, at temperature {temperature:g}"
FIGURE_3A = Piece(
    "embedding distance from the start after a fixed number of steps, by length",
    "version 1, after {at} steps; " + PLACE + ". {embedded.description}",
    **LENGTHS,
    small=LENGTHS_SMALL | {"step": 20},
    paper=LENGTHS_PAPER,
    not_in_paper=("temperature", "lengths", "steps", "step"),
    ask=ask_figure_3a,
    table=lambda a: (
        [
            {
                "n": n,
                "mean": [mean.value, *(mean.interval or ())],
                "quartiles": np.quantile(a.values[n], [0.25, 0.5, 0.75]).tolist(),
                "kind": mean.kind,
                "step": a.at,
                "published": "the distance grows logarithmically with n; no number in our text",
            }
            | saturation_row(a.curves[n], a.levels[n])
            for n, mean in distance_means(a).items()
        ]
        + growth_rows(a.growth)
    ),
    figures=lambda a: {
        "distance": plot_distance_by_length(
            a.values,
            distance_means(a),
            step=a.at,
            growth=None if isinstance(a.growth, str) else a.growth,
        ),
        "saturation": plot_saturation(a.curves, a.levels, threshold=THRESHOLD),
    },
    claims=[
        Published(
            f"{GROWS} at fixed time",
            name="change of the distance after {at} steps for each unit of log n",
            number=lambda a: slope_in_log_n(a.values),
            choices=("{at} fixed steps: a longer text is redrawn less", FORM),
            **GROWTH,
        ),
        Published(
            f"{GROWS} at fixed time (in sweeps: our control)",
            name=f"change of the distance after {SWEEPS} sweeps for each unit of log n",
            number=lambda a: slope_in_log_n(a.in_sweeps),
            choices=("the paper counts steps", FORM),
            when=lambda a: a.in_sweeps is not None,
            **GROWTH,
        ),
        Published(
            "the growth of the embedding distance with the length is logarithmic",
            "paper A, section 6.1 (figure 3a)",
            "logarithmic",
            "shape q of a + b (n^q - 1) / q after {at} steps: 0 for log n, 1 for n",
            lambda a: shape_of_growth(a.values, a.growth),
            LOGARITHMIC,
            effect=0.0,
            choices=(
                "logarithmic: nearer to log n than to n and to 1 / n; no growth, log n, n and a "
                "power of n are compared by AIC in the table",
            ),
        ),
        Published(
            "the threshold of the hitting times lies below saturation in the fast regime",
            "paper A, section 6.1 (figure 3a)",
            "below",
            "mean distance over the later half of the steps at {usual} tokens",
            lambda a: saturation(a.curves[a.usual]).level,
            above(THRESHOLD),
            effect=THRESHOLD + 0.1,
            choices=(
                f"threshold {THRESHOLD:g}: the paper's is lost; power for a level 0.1 above",
                "a distance that still rises shows a lower level than where it will stay",
            ),
            bounds=DISTANCE,
        ),
    ],
    seconds=175,
)


def ask_figure_3b(s: Settings) -> dict[str, object]:
    runs, embedder = length_runs(s)
    times = {n: passages_of(run, embedder, s.thresholds) for n, run in runs.items()}
    own = {n: each[THRESHOLD] for n, each in times.items()}
    grid = {}
    for threshold in s.thresholds:
        at = {n: each[threshold] for n, each in times.items()}
        if any(each.n_hit for each in at.values()):
            grid[threshold] = fit_scaling(at, comparisons=len(s.thresholds))
    fits = [fit_scaling(own), fit_scaling(own, family="log-normal")]
    return {"times": own, "scaling": fits[0], "fits": fits, "grid": grid, "embedded": embedder}


def power_row(threshold: float, scaling: Scaling) -> list[Row]:
    names = ("c", "b", "interval", "kind", "aic_difference", "misfit")
    fixed = {"law": "n^b", "threshold": threshold, "family": scaling.family}
    fixed |= {"level": scaling.level, "censored": f"{scaling.n_censored} of {scaling.n_times}"}
    return columns([scaling.power], *names, **fixed)


def figure_3b_rows(a: Answers) -> list[Row]:
    rows = [
        {
            "n": n,
            "median": [each.median.value, *each.median.interval],
            "kind": each.median.kind,
            "hit": each.n_hit,
            "times": [
                int(step) if hit else None for step, hit in zip(each.steps, each.hit, strict=True)
            ],
        }
        for n, each in a.times.items()
    ]
    names = ("law", "c", "interval", "kind", "aic_difference", "weight", "misfit")
    rows += [row for fit in a.fits for row in columns(fit.fits, *names, family=fit.family)]
    rows += [row for fit in a.fits for row in power_row(THRESHOLD, fit)]
    return rows + [row for at, fit in a.grid.items() for row in power_row(at, fit)]


def hitting_exponent(a: Answers, scaling: Scaling) -> Quantity:
    return Quantity(
        "",
        scaling.power.b,
        scaling.power.interval,
        n=a.settings.chains,
        unit=f"chains at {len(a.settings.lengths)} lengths",
        level=scaling.level,
    )


def nearest_to_n_log_n(a: Answers) -> Region:
    """Exponents nearer to that of n log n over these lengths than to those of n and n^2."""
    low, own, high = (a.scaling.exponent(law) for law in ("n", "n log n", "n^2"))
    return Region((low + own) / 2, (own + high) / 2)


def figure_3b_claims(a: Answers) -> Iterable[Published]:
    own = a.scaling.exponent("n log n")
    common: Record = dict(
        source="paper A, section 6.1 (figure 3b)",
        published="n log n",
        agrees=nearest_to_n_log_n(a),
        effect=own,
    )
    nearest = f"nearer to n log n ({own:.2f} over these lengths) than to n and to n^2"
    yield Published(
        "hitting times scale as n log n",
        name=f"exponent of the hitting time of {THRESHOLD:g} in n",
        number=hitting_exponent(a, a.scaling),
        choices=(nearest, f"threshold {THRESHOLD:g}"),
        **common,
    )
    if len(a.grid) > 1:
        worst = max(a.grid, key=lambda at: abs(a.grid[at].power.b - own))
        yield Published(
            "the scaling is robust to the choice of the threshold",
            name=f"exponent of the hitting time of {worst:g} in n",
            number=hitting_exponent(a, a.grid[worst]),
            choices=(
                nearest,
                f"thresholds {', '.join(f'{at:g}' for at in a.grid)}: the paper's are lost; the "
                "one farthest from n log n decides, its interval corrected for their number",
            ),
            **common,
        )


FIGURE_3B = Piece(
    "hitting time of an embedding distance by length, against n, n log n, n^2 and any power",
    f"version 2: first step with a distance of at least {THRESHOLD:g}, within {{steps}} steps; "
    + PLACE
    + "; fits by likelihood with censoring; {scaling.summary}. {embedded.description}",
    **LENGTHS,
    not_in_paper=("temperature", "lengths", "steps", "thresholds"),
    small=LENGTHS_SMALL | {"thresholds": (0.3, 0.4, THRESHOLD, 0.6, 0.7)},
    paper=LENGTHS_PAPER,
    ask=ask_figure_3b,
    table=figure_3b_rows,
    figures=lambda a: {"times": plot_scaling(a.times, a.scaling)},
    claims=figure_3b_claims,
    seconds=90,
)


def grid_chains(s: Settings) -> dict[tuple[float, int], Chains]:
    """A run for each temperature and length, with a seed of its own."""
    cells = [(t, n) for t in s.temperatures for n in s.lengths]
    return {
        (t, n): s.chain_set(temperature=t, length=n, seed=len(cells) * s.seed + number)
        for number, (t, n) in enumerate(cells)
    }


def ask_growth_by_temperature(s: Settings) -> dict[str, object]:
    runs = {cell: s.run(chains) for cell, chains in grid_chains(s).items()}
    embedder = choose(next(reversed(runs.values())), s.embedder)
    step = min(s.step, s.steps)
    moved = {cell: distances(run, embedder, every=step) for cell, run in runs.items()}
    last = s.steps // step * step
    rows, comparisons = [], 2 * len(s.temperatures)
    for at in sorted({step, last}):
        for t in s.temperatures:
            values = {n: moved[t, n].at(at) for n in s.lengths}
            slope = slope_in_log_n(values, comparisons)
            rows.append(SimpleNamespace(at=at, temperature=t, slope=slope, values=values))
    usual = min(s.lengths, key=lambda n: abs(n - USUAL_LENGTH))
    hits = {t: share_that_reached(moved[t, usual]) for t in s.temperatures}
    first = {row.at: grows_from([each for each in rows if each.at == row.at]) for row in rows}
    return {
        "rows": rows,
        "hits": hits,
        "first": first,
        "step": step,
        "last": last,
        "embedded": embedder,
    }


def grows_from(rows: list[SimpleNamespace]) -> float | None:
    """The temperature from which on, at it and all higher ones, the distance grows with n."""
    lowest = None
    for row in sorted(rows, key=lambda row: -row.temperature):
        if row.slope.interval is None or row.slope.interval[0] <= 0:
            break
        lowest = row.temperature
    return lowest


def growth_by_temperature_rows(a: Answers) -> list[Row]:
    rows = []
    for row in a.rows:
        growth = growth_of(row.values)
        rows += columns(
            [row],
            *("at", "temperature", "slope"),
            laws=growth if isinstance(growth, str) else growth.summary,
            grows_from=a.first[row.at],
            reached_threshold=a.hits[row.temperature],
            kind="estimate",
            published="logarithmic from some temperature on, which is lost in our text",
        )
    return rows


FIGURE_3_TEMPERATURES = Piece(
    "from which temperature on the embedding distance grows with the length",
    "{chains} chains at each temperature and length from passages cut to n tokens; slopes of the "
    "distance in log n after {step} and after {last} steps, their intervals holding together; "
    "grows_from: the slope is above 0 at this temperature and at all higher ones; "
    f"reached_threshold: share of the chains of the length nearest to {USUAL_LENGTH} tokens that "
    f"reached {THRESHOLD:g}. {{embedded.description}}",
    small={name: value for name, value in LENGTHS_SMALL.items() if name != "temperature"}
    | {"temperatures": (0.3, 0.5, 1.0, 1.5, 2.0), "chains": 16, "step": 20},
    paper=LENGTHS_PAPER | {"temperatures": (0.1, 0.5, 1.0, 1.25, 1.5, 2.0, 3.0), "step": 100},
    not_in_paper=("temperatures", "lengths", "steps", "step"),
    chains=lambda s: list(grid_chains(s).values()),
    ask=ask_growth_by_temperature,
    table=growth_by_temperature_rows,
    claims=lambda a: (
        Published(
            f"{GROWS} (after {at} steps)",
            name=f"slope in log n after {at} steps at temperature {max(a.settings.temperatures):g}",
            number=max(
                (row for row in a.rows if row.at == at), key=lambda row: row.temperature
            ).slope,
            choices=("sufficiently high: the highest temperature of the table", FORM),
            **GROWTH,
        )
        for at in a.first
    ),
)


# Section 6.1: where in temperature and length two chains meet.

SAME = 0.25  # exponent of the width up to which the crossover does not sharpen


def crossover_rows(a: Answers) -> list[Row]:
    rows = []
    for at in (a.phase.at_steps, a.phase.at_sweeps):
        for crossover in at.crossovers:
            cells = [cell for cell in a.phase.cells if cell.length == crossover.length]
            met = [f"{sum(at.truncate(cell).met)} at {cell.temperature:g}" for cell in cells]
            rows += columns(
                [crossover],
                *("length", "temperature", "interval", "width", "width_interval", "kind"),
                budget=f"equal {at.equal}, {at.budget:,.4g}",
                met=f"of {a.settings.chains}: {', '.join(met)}",
                published="the boundary moves to higher temperatures as the length grows",
            )
        for crossover in a.ising.at_steps.crossovers if at is a.phase.at_steps else ():
            ratio, ends = width_ratio(model_crossover(a, crossover.length), crossover)
            rows += columns(
                [crossover],
                *("length", "temperature", "interval", "width", "width_interval", "kind"),
                budget=f"equal steps, {a.ising.at_steps.budget:,.4g}",
                of="mean-field Ising",
                width_ratio=[ratio, *ends],
                published="smoother than the physical Ising model at large n",
            )
    return rows + columns(
        a.phase.ratios,
        *("length", "threshold", "ratio", "interval", "kind"),
        published="roughly an order of magnitude",
    )


def crossover_exponent(a: Answers, which: str, name: str) -> Quantity:
    """An exponent of the crossover in the length, `rise` or `sharpening`."""
    scaling = getattr(a.phase, which).scaling
    unit = f"pairs in each of {len(a.phase.cells)} cells"
    if scaling is None:
        return Quantity("", None, n=a.settings.chains, unit=unit)
    value, interval = getattr(scaling, name), getattr(scaling, f"{name}_interval")
    return Quantity("", value, interval, n=a.settings.chains, unit=unit)


def sharpening(a: Answers) -> Quantity:
    """The exponent by which the width shrinks; none if the widths follow no power of the length."""
    exponent = crossover_exponent(a, "at_steps", "sharpening")
    widths = [each.width for each in a.phase.at_steps.crossovers if each.width is not None]
    if len(widths) > 2 and not (
        all(np.diff(widths) <= 0) or all(np.diff(widths) >= 0)
    ):  # up and down
        listed = ", ".join(f"{width:.2g}" for width in widths)
        reason = f"the widths {listed} follow no power of the length"
        return Quantity("", None, n=exponent.n, unit=exponent.unit, reason=reason)
    return exponent


def ask_coupling(s: Settings) -> dict[str, object]:
    def make() -> list[Record]:
        cells = ising_phase(s.lengths, pairs=s.chains, steps=s.steps, seed=s.seed).cells
        return [vars(cell) for cell in cells]

    key = {"lengths": s.lengths, "pairs": s.chains, "steps": s.steps, "seed": s.seed}
    ising = phase_diagram(s.part("ising-phase", key, make))
    thresholds = dict(thresholds=s.thresholds, threshold_lengths=s.threshold_lengths)
    return {"phase": diagram(s, s.lengths, **thresholds), "ising": ising, "longest": max(s.lengths)}


def model_crossover(a: Answers, length: int) -> Crossover:
    """The model's crossover at a length, at equal steps."""
    return next(each for each in a.phase.at_steps.crossovers if each.length == length)


def smoothness(a: Answers) -> Quantity:
    """Width at the longest length over that of the Ising model."""
    ising = next(each for each in a.ising.at_steps.crossovers if each.length == a.longest)
    ratio, ends = width_ratio(model_crossover(a, a.longest), ising)
    reason = "" if ratio is not None else "one of the two shows no crossover or no width"
    unit = f"pairs in each of {len(a.phase.cells)} cells"
    return Quantity("", ratio, ends, n=a.settings.chains, unit=unit, reason=reason)


def threshold_ratio(a: Answers) -> Quantity:
    """Threshold over crossover at the length nearest to that of the paper's sentence."""
    nearest = min(a.phase.ratios, key=lambda ratio: abs(np.log(ratio.length / SENTENCE_LENGTH)))
    return Quantity("", nearest.ratio, nearest.interval, n=len(nearest.thresholds), unit="texts")


RISE: Record = dict(
    source="paper A, section 6.1",
    published="it shifts",
    agrees=above(0.0),
    effect=0.1,
    choices=("power for an exponent of 0.1",),
)
SHIFTS = "the boundary shifts to higher temperatures as texts grow"
COUPLING = Piece(
    "where in temperature and length two chains meet",
    "{chains} pairs of passages in each cell, the same site at each step, redraws from the "
    "maximal coupling, at most {steps:,} steps; the same pairs are counted within equal steps and "
    "within equal sweeps (steps for each token)",
    small=dict(
        model=SMALL,
        texts=None,
        lengths=(6, 10, 16),
        temperatures=(0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5),
        chains=12,
        steps=400,
        thresholds=3,
        threshold_lengths=None,
    ),
    paper=dict(
        model=BERT,
        lengths=(5, 10, 20, 40),
        temperatures=(0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0),
        chains=100,
        steps=5000,
        thresholds=8,
        threshold_lengths=(10,),  # the nearest to the paper's sentence
    ),
    not_in_paper=("lengths", "temperatures", "steps"),
    published=dict(thresholds=1, threshold_lengths=(SENTENCE_LENGTH,)),
    ask=ask_coupling,
    table=crossover_rows,
    figures=lambda a: a.phase.figures(),
    claims=[
        Published(
            SHIFTS,
            name="exponent of the crossover temperature in n at equal steps",
            number=lambda a: crossover_exponent(a, "at_steps", "rise"),
            **RISE,
        ),
        Published(
            f"{SHIFTS} (in sweeps: our control)",
            name="exponent of the crossover temperature in n at equal sweeps",
            number=lambda a: crossover_exponent(a, "at_sweeps", "rise"),
            **RISE,
        ),
        Published(
            "the crossover does not sharpen as texts grow",
            "paper A, section 7",
            "does not seem to sharpen",
            "exponent by which the width in log temperature shrinks with n",
            sharpening,
            below(SAME),
            effect=0.0,
            choices=(f"an exponent below {SAME:g} counts as not sharpening",),
        ),
        Published(
            "the transition is smoother than that of the physical Ising model at large n",
            "paper A, section 6.1",
            "smoother at large n",
            "width in log temperature at {longest} tokens over that of the Ising model",
            smoothness,
            above(1.0),
            effect=2.0,
            choices=(
                "the mean-field Ising model of as many spins, from all down and all up, with the "
                "same coupling, pairs and steps: the paper names no lattice",
                "power for twice the width",
            ),
        ),
        Published(
            "the contraction condition needs a temperature an order of magnitude above the "
            "empirical boundary of fast mixing",
            "paper A, section 5.2 and appendix A.1",
            "roughly an order of magnitude",
            "contraction threshold over crossover temperature",
            threshold_ratio,
            ORDER,
            effect=10.0,
            choices=(
                "from 3.2 to 32 times counts as an order of magnitude",
                "the threshold rests on 4 contexts and 4 replacements a site: more would raise it",
            ),
            when=lambda a: bool(a.phase.ratios),
        ),
    ],
    seconds=800,
)


# Section 6.2: chains lose their topic and visit politics on the way (tables 3 and 4). The paper
# scores nine labels and names eleven; here they are the first nine of its list. The starts are
# passages that no scorer was calibrated on.

TRACK = "politics"
TOPICS = ("health", "sport", "science", "food", "technology")
LABELS = (
    "politics",
    "health",
    "pop culture",
    "sport",
    "food",
    "science",
    "technology",
    "finance",
    "education",
)
# Of bert-base-uncased under bart-large-mnli, paper A, table 3: politics at 0 and at 10,000 steps,
# then the seed topic at both.
TABLE_3_SCORES = {
    "health": (0.008, 0.044, 0.631, 0.116),
    "sport": (0.011, 0.036, 0.763, 0.204),
    "science": (0.003, 0.056, 0.682, 0.068),
    "food": (0.003, 0.174, 0.834, 0.037),
    "technology": (0.004, 0.038, 0.846, 0.152),
}
CROSSED = (46, 48)  # of 50 chains, by bart-large-mnli and by DeBERTa-v3
# Politics at 10,000 steps by model, paper A, appendix B.5.
TABLE_4_SCORES = {
    BERT: dict(zip(TOPICS, (0.044, 0.036, 0.056, 0.174, 0.038), strict=True)),
    ROBERTA: dict(zip(TOPICS, (0.112, 0.042, 0.062, 0.052, 0.198), strict=True)),
    MODERNBERT: dict(zip(TOPICS, (0.026, 0.052, 0.037, 0.038, 0.033), strict=True)),
}
NAMES = {BERT: "BERT", ROBERTA: "RoBERTa", MODERNBERT: "ModernBERT"}
TOPICS_ABOVE = {BERT: 1, ROBERTA: 2, MODERNBERT: 0}  # of five, section 6.2.1
PAPER_STEPS = 10_000
SHARPLY = 0.25  # about half of the smallest published fall
FALL = max(last - first for _, _, first, last in TABLE_3_SCORES.values())


def topic_texts(s: Settings) -> dict[str, list[str]]:
    """The starts of each topic: held-out passages, or texts whose ids are the topics."""
    pairs = [(passage.label, passage.text) for passage in held_out_passages()]
    if s.texts is not None:
        if s.topics is None:
            raise GlauberError(
                f"{s.request.piece} needs the topic of each text as its id: give a table with such "
                "a column and --id-column; the topics are " + ", ".join(TOPICS) + "."
            )
        pairs = list(zip(map(str.lower, s.topics), s.texts, strict=True))
        for number, (topic, _) in enumerate(pairs, 1):
            one_of(f"the id of text {number}", topic, TOPICS)
    texts = {topic: [text for own, text in pairs if own == topic] for topic in TOPICS}
    if missing := [topic for topic, own in texts.items() if not own]:
        raise GlauberError(f"no text has the topic {missing[0]}.")
    return texts


def topic_chains(s: Settings, model: str) -> Chains:
    """The same number of chains from each topic; they take its passages in turn."""
    if s.chains % len(TOPICS):
        raise GlauberError(
            f"{s.chains} chains cannot be divided among {len(TOPICS)} topics: give a multiple."
        )
    each = s.chains // len(TOPICS)
    texts = tuple(own[k % len(own)] for own in topic_texts(s).values() for k in range(each))
    return s.chain_set(model=model, texts=texts, chains=None)


def topic_seeds(s: Settings) -> list[str]:
    """The topic of each chain's start."""
    return [topic for topic in TOPICS for _ in range(s.chains // len(TOPICS))]


def score_topics(s: Settings, model: str) -> tuple[list[TopicScores], list[Record]]:
    """The scores by each scorer, and how far each can be trusted."""
    chains, scorers = topic_chains(s, model), as_tuple(s.scorer)
    every = max(1, s.steps // s.snapshots)

    def make() -> dict[str, object]:
        study = topics(
            s.run(chains),
            track=TRACK,
            labels=LABELS,
            scorer=scorers,
            hypothesis=pipeline_hypothesis(scorers),
            seeds=topic_seeds(s),
            every=every,
            judge=True,
            device=s.device,
        )
        return {"scores": [vars(scores) for scores in study.scores], "judged": study.accuracy}

    key = {"chains": chains.digest, "labels": LABELS, "scorers": scorers, "every": every}
    stored = s.part("topics", key, make)
    scores = [
        TopicScores(
            np.array(record["steps"]),
            np.array(record["values"]),
            tuple(record["labels"]),
            record["scorer"],
            record["every"],
        )
        for record in stored["scores"]
    ]
    return scores, stored["judged"]


def pipeline_hypothesis(scorers: Sequence[str]) -> str | None:
    """The hypothesis of the paper's pipeline, if a scorer takes one."""
    return EXAMPLE if any(name != SIMILARITY for name in scorers) else None


def ask_table_3(s: Settings) -> dict[str, object]:
    scores, judged = score_topics(s, as_tuple(s.model)[0])
    tables = [recurrence(each, TRACK, seeds=topic_seeds(s)) for each in scores]
    return {"scores": scores, "judged": judged, "tables": tables}


def table_3_rows(a: Answers) -> list[Row]:
    rows = []
    for table in a.tables:
        constants = {"scorer": table.scorer, "baseline": table.baseline, "kind": table.kind}
        for row in table.rows:
            published = TABLE_3_SCORES.get(row.seed)
            rows += columns(
                [row],
                *("seed", "n_chains", "tracked_start", "tracked_end", "ends", "rise", "seed_start"),
                *("seed_end", "crossed", "crossed_interval", "crossings", "peak", "mean_peak"),
                *("dwell", "away"),
                published=published and f"{TRACK} and seed topic at 0 and 10,000: {published}",
                **constants,
            )
        rows += columns(
            table.labels,
            *("label", "n_chains", "crossed", "share", "random_order", "random_order_p", "stays"),
            *("stays_random", "against_others", "against_others_p", "special", "dwell", "away"),
            **constants,
        )
    names = ("scorer", "accuracy", "interval", "chance", "log_loss", "chance_log_loss")
    judgements = [row | {"above": row["above_elsewhere"].get(TRACK)} for row in a.judged]
    return rows + columns(judgements, *names, "above", "n_texts", "kind")


def change(a: Answers, scores: TopicScores, *, own: bool) -> list[Estimate]:
    """End less start of politics, or of the seed's own topic, by seed; all hold together."""
    seeds = np.array(topic_seeds(a.settings))
    changes = []
    for topic in TOPICS:
        values = scores.of(topic if own else TRACK)[seeds == topic]
        changes.append(
            mean_over_chains(values[:, -1] - values[:, 0], bounds=(-1, 1), comparisons=len(TOPICS))
        )
    return changes


def extreme(means: list[Estimate], which: Any) -> Quantity:
    """The smallest (min) or largest (max) of several means whose intervals hold together.

    That of the true means lies between those of the ends.
    """
    value, n = which(mean.value for mean in means), min(mean.n_chains for mean in means)
    missing = next((mean.reason for mean in means if mean.interval is None), None)
    if missing is not None:
        return Quantity("", value, None, n, reason=missing)
    ends = [mean.interval for mean in means if mean.interval is not None]
    return Quantity("", value, (which(low for low, _ in ends), which(high for _, high in ends)), n)


def crossing(table: Recurrence) -> Quantity:
    """The share of chains that crossed; of shorter chains than the paper's, more would have."""
    everyone = table.rows[-1]
    share = Quantity.of("", proportion(everyone.crossed, everyone.n_chains))
    if table.n_steps >= PAPER_STEPS or share.interval is None:
        return share
    low, _ = share.interval
    return Quantity("", share.value, (low, None), share.n, share.unit, level=share.level)


def without_two(ends: Any, baseline: float) -> Quantity:
    """The mean of the end scores (chains,) without the two highest, if that of all is high."""
    if ends.mean() <= baseline:
        return Quantity("", None, reason="the mean of all chains does not end above the baseline")
    if len(ends) < 3:
        return Quantity("", None, reason="there are no more than two chains")
    return Quantity("", float(np.sort(ends)[:-2].mean()), kind="exact", n=len(ends) - 2)


def table_3_claims(a: Answers) -> Iterable[Published]:
    published = (*CROSSED, *[CROSSED[-1]] * len(a.scores))
    for number, (scores, table) in enumerate(zip(a.scores, a.tables, strict=True)):
        yield from claims_of_scorer(a, scores, table, published[number])


def claims_of_scorer(
    a: Answers, scores: TopicScores, table: Recurrence, crossed: int
) -> Iterable[Published]:
    by, seeds = f" by {table.scorer}", np.array(topic_seeds(a.settings))
    last, ends = scores.of(TRACK)[:, -1], ends_by_topic(a, scores, len(TOPICS))
    section, third = "paper A, section 6.2.1", "paper A, table 3"
    yield Published(
        f"{crossed} of 50 chains cross the politics baseline at least once",
        section,
        crossed / 50,
        f"share that cross in {table.n_steps:,} steps{by}",
        crossing(table),
        Region(*clopper_pearson(crossed, 50), strict=False),
        choices=(f"the region is the 95% interval of {crossed} of 50",),
    )
    yield Published(
        "politics is a recurrent basin: chains come to it more often than to other topics",
        f"{section}; the comparison is ours",
        "other labels are not reported",
        f"share that cross, less that of the other labels{by}",
        table.of(TRACK).against_others,
        above(0.0),
        effect=0.2,
        choices=("0.2 as the smallest difference that matters",),
        bounds=(-1, 1),
    )
    yield Published(
        "every topic shows an increase in mean politics score",
        third,
        "0.025 to 0.171",
        f"smallest rise over topics{by}",
        extreme(change(a, scores, own=False), min),
        above(0.0),
        effect=0.025,
    )
    yield Published(
        "seed-topic scores fall sharply in every case",
        third,
        "they fall sharply, with the scores at both ends",
        f"smallest fall over topics{by}",
        extreme(change(a, scores, own=True), max),
        below(-SHARPLY),
        effect=FALL,
        choices=(
            "-0.515 to -0.797: differences of the published scores, computed by us",
            f"sharply: by more than {SHARPLY:g}",
        ),
    )
    yield Published(
        "from no topic but food does the mean politics score end above the baseline",
        section,
        0.056,
        f"highest end of the others{by}",
        extreme([mean for topic, mean in ends.items() if topic != "food"], max),
        below(scores.baseline),
        effect=0.056,
    )
    yield Published(
        "from food it does",
        section,
        0.174,
        f"politics at the end from food{by}",
        ends["food"],
        above(scores.baseline),
        bounds=SHARE,
    )
    yield Published(
        "that is driven by two chains with high scores",
        section,
        "two chains; their scores are lost in our text",
        f"politics at the end from food without the two highest chains{by}",
        without_two(last[seeds == "food"], scores.baseline),
        below(scores.baseline),
        choices=("driven: without the two the mean is not above the baseline",),
    )


TOPIC_SCORES: Any = dict(
    protocol="5 topics, {chains} passages of {length} tokens at temperature {temperature:g}, "
    "{steps:,} steps, {snapshots} snapshots of each chain after the start, 9 labels; intervals "
    "over chains, those of all labels and of all topics together",
    small=dict(
        model=SMALL,
        texts=None,
        topics=None,
        scorer=(SIMILARITY,),
        chains=50,
        steps=300,
        snapshots=30,
        length=20,
        temperature=1.0,
    ),
    paper=dict(scorer=(BART, DEBERTA), steps=10_000, snapshots=50),
    not_in_paper=("temperature", "length"),
    choices=("which nine of the eleven labels: the paper's are lost",),
    seconds=115,
)
TABLE_3 = Piece(
    "chains lose their seed topic and visit politics on the way",
    **TOPIC_SCORES | {"paper": TOPIC_SCORES["paper"] | {"model": BERT}},
    chains=lambda s: [topic_chains(s, as_tuple(s.model)[0])],
    ask=ask_table_3,
    table=table_3_rows,
    figures=lambda a: {
        "labels": plot_crossings(a.tables[0]),
        "river": plot_topic_river(a.scores[0], first=TRACK),
        "recurrence": plot_recurrence(a.scores[0], TRACK, seeds=topic_seeds(a.settings)),
    },
    claims=table_3_claims,
)


def ask_table_4(s: Settings) -> dict[str, object]:
    models = as_tuple(s.model)
    runs = {model: s.run(topic_chains(s, model)) for model in models}
    return {
        "scores": {model: score_topics(s, model)[0][0] for model in models},
        "texts": {m: [run.text(chain) for chain in range(run.n_chains)] for m, run in runs.items()},
    }


def table_4_rows(a: Answers) -> list[Row]:
    rows = []
    ends = {model: ends_by_topic(a, scores) for model, scores in a.scores.items()}
    for topic in TOPICS:
        row: Row = {"seed": topic, "kind": "estimate"}
        for model, own in ends.items():
            mean = own[topic]
            row[f"tracked_end, {model}"] = [mean.value, *(mean.interval or ())]
        rows.append(row | {"published": {NAMES[m]: TABLE_4_SCORES[m][topic] for m in NAMES}})
    counts = {model: topics_above(a, scores) for model, scores in a.scores.items()}
    kinds = {model: text_kinds(texts) for model, texts in a.texts.items()}
    above_baseline: Row = {"measure": "topics whose mean ends above the baseline"}
    above_baseline |= {m: [each.value, *(each.interval or ())] for m, each in counts.items()}
    rows.append(above_baseline | {"published": {NAMES[m]: TOPICS_ABOVE[m] for m in NAMES}})
    for measure in KINDS:
        shares = {m: each[measure] for m, each in kinds.items()}
        cells = columns([shares], *shares, measure=f"texts at the end: {measure}", kind="estimate")
        rows += [row | {"published": "what content differs, without a number"} for row in cells]
    return rows


def ends_by_topic(a: Answers, scores: TopicScores, comparisons: int = 1) -> dict[str, Estimate]:
    """Mean politics score at the end by the topic of the start."""
    seeds, last = np.array(topic_seeds(a.settings)), scores.of(TRACK)[:, -1]
    return {
        topic: mean_over_chains(last[seeds == topic], bounds=SHARE, comparisons=comparisons)
        for topic in TOPICS
    }


def topics_above(a: Answers, scores: TopicScores) -> Quantity:
    """How many topics' means end above the baseline: at least those whose interval does."""
    means = list(ends_by_topic(a, scores, len(TOPICS)).values())
    value = sum(mean.value > scores.baseline for mean in means)
    ends = [mean.interval for mean in means if mean.interval is not None]
    if len(ends) < len(means):
        return Quantity("", value, n=means[0].n_chains, reason=means[0].reason)
    low, high = (sum(end[side] > scores.baseline for end in ends) for side in (0, 1))
    n = min(mean.n_chains for mean in means)
    return Quantity("", value, (low, high), n, bounds=(0, len(TOPICS)))


def table_4_claims(a: Answers) -> Iterable[Published]:
    """That RoBERTa is the most political at the end, ModernBERT the least; how content differs.

    The paper gives a value for each topic; their means over topics are computed here.
    """
    given = {published_name(model) or model: model for model in a.scores}
    ends = {name: a.scores[model].of(TRACK)[:, -1] for name, model in given.items()}
    notes = {name: by_config(model) for name, model in given.items()}
    means = {model: float(np.mean(list(own.values()))) for model, own in TABLE_4_SCORES.items()}
    common: Record = dict(source="paper A, appendix B.5", bounds=SHARE)
    computed = "means over the published topics, computed by us"
    for first, second in ((ROBERTA, BERT), (BERT, MODERNBERT)):
        both = first in ends and second in ends
        name = f"politics at the end, {NAMES[first]} less {NAMES[second]}"
        number = difference(ends[first], ends[second], bounds=SHARE) if both else None
        yield Published(
            f"endpoint recurrence is stronger in {NAMES[first]} than in {NAMES[second]}",
            "paper A, appendix B.5",
            "stronger, with a value for each topic",
            name if both else f"{name} (not both are among the models here)",
            number or Quantity("", None),
            above(0.0),
            effect=means[first] - means[second],
            choices=(f"{means[first]:.3f} and {means[second]:.3f}: {computed}",),
            differs=(*notes.get(first, ()), *notes.get(second, ())),
        )
    for model in [name for name in means if name in ends]:
        yield Published(
            f"politics at the end of {NAMES[model]}, over topics",
            published="a value for each topic",
            name="mean over chains",
            number=mean_over_chains(ends[model], bounds=SHARE),
            agrees=near(means[model], 0.05),
            effect=means[model],
            choices=(f"{means[model]:.4f}: {computed}", "within 0.05 counts as the same"),
            differs=notes[model],
            **common,
        )
        yield Published(
            f"topics that end above the baseline in {NAMES[model]}: {TOPICS_ABOVE[model]} of 5",
            "paper A, section 6.2.1",
            TOPICS_ABOVE[model],
            "topics whose mean ends above the baseline",
            topics_above(a, a.scores[given[model]]),
            near(TOPICS_ABOVE[model], 0.0),
            differs=notes[model],
        )
    if ROBERTA in given and MODERNBERT in given:
        for first, second, measure, sentence in (
            (ROBERTA, MODERNBERT, "other_letters", "RoBERTa settles into multilingual fragments"),
            (MODERNBERT, ROBERTA, "symbols", "ModernBERT enters prompts and code-like regions"),
        ):
            own, other = (list(map(KINDS[measure], a.texts[given[m]])) for m in (first, second))
            yield Published(
                f"content differs by model: {sentence}",
                "paper A, section 6.2.1",
                "more often, no number",
                f"{measure} at the end, {NAMES[first]} less {NAMES[second]}",
                difference(own, other, bounds=SHARE),
                above(0.0),
                effect=0.05,
                choices=(f"{measure}: {KINDS[measure].__doc__}", "power for a share of 0.05"),
                differs=(*notes[first], *notes[second]),
            )


TABLE_4 = Piece(
    "how political chains are at the end, by model",
    **TOPIC_SCORES | {"paper": TOPIC_SCORES["paper"] | {"model": (BERT, ROBERTA, MODERNBERT)}},
    several_models=True,
    chains=lambda s: [topic_chains(s, model) for model in as_tuple(s.model)],
    ask=ask_table_4,
    table=table_4_rows,
    claims=table_4_claims,
)


# Appendix A.1 and table 5: where chains get stuck.

PERIODS = " ".join(["."] * 15)
TRAPS = "paper A, appendix A.1 and table 5"
# The min gaps of the paper's four approximate traps are lost in our text; such traps have one of
# at most 0.
PUBLISHED_RANKS = (
    "computed by us from the 8 traps of the published table: Somers' D is -0.23 by the mean gap, "
    "and between -0.08 and 0.38 by the min gap, four of which are lost (any values up to 0)"
)
OF_17 = float(gammaincinv(17, 0.025)), float(gammaincinv(18, 0.975))  # Poisson, 95%


def ask_traps(s: Settings) -> dict[str, object]:
    run = s.run(s.chain_set())
    embedder = choose(run, s.embedder)
    study = traps(run, embedder=embedder, device=s.device)
    try:
        periods = margins(s.model, PERIODS, temperature=s.temperature, device=s.device)
    except GlauberError:  # a vocabulary without a period
        periods = None
    return {
        "study": study,
        "rolling": study.catalogues[0],
        "periods": periods,
        "embedded": embedder,
    }


def trap_rows(a: Answers) -> list[Row]:
    rows = []
    for catalogue in a.study.catalogues:
        ranks = catalogue.ranks
        rows += columns(
            [catalogue],
            *("n_traps", "n_perfect", "n_unfinished", "mean_duration", "shortest", "longest"),
            "seen_to_exact",
            n_skipped=len(catalogue.skipped),
            by_mean_gap=ranks and ranks.by_mean_gap,
            by_min_gap=ranks and ranks.by_min_gap,
            better_predictor=ranks and ranks.better,
            kind="estimate",
            detector=catalogue.detector,
            families=len(catalogue.families),
            published="17 traps, 4 perfect, 671 steps on average, 150 to 4,950; the mean gap",
        )
    if a.periods is not None:
        rows += columns(
            [a.periods.margins],
            *("margin", "perfect", "holding_time", "escape_bound", "mean_gap"),
            text=a.periods.text,
            published="mean gap 9.14, min gap 7.46, 4,950 steps",
        )
    for catalogue in a.study.catalogues:
        rows += columns(
            [columns_of(trap) for trap in catalogue.by_duration[:20]],
            *("chain", "first", "text", "duration", "duration_kind", "mean_gap", "min_gap"),
            *("perfect", "holding_time", "escape_bound"),
            detector=catalogue.detector,
        )
    return rows


def per_chain(
    catalogue: TrapList, which: Callable[[Trap], bool] = lambda trap: True
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The number of such traps of each chain, (chains,)."""
    chains = [trap.chain for trap in catalogue.traps if which(trap)]
    return np.bincount(np.array(chains, np.int64), minlength=catalogue.n_chains)


def share_of(
    catalogue: TrapList,
    which: Callable[[Trap], bool],
    among: Callable[[Trap], bool] = lambda trap: True,
) -> Estimate:
    """The share of traps that are so, with an interval over chains."""
    totals = per_chain(catalogue, among)
    if not totals.any():
        return Estimate(float("nan"), None, reason="no such trap was found")
    both = per_chain(catalogue, lambda trap: among(trap) and which(trap))
    return clustered_proportion(both, totals)


def trap_duration(catalogue: TrapList) -> Estimate:
    if not catalogue.traps:
        return Estimate(float("nan"), None, reason="no trap was found")
    chains = [trap.chain for trap in catalogue.traps]
    durations = [trap.duration for trap in catalogue.traps]
    return clustered_mean(durations, chains, bounds=(150, np.inf))


def gap_difference(catalogue: TrapList) -> Quantity:
    ranks = None if catalogue.ranks is None else catalogue.ranks.difference
    if ranks is None:
        return Quantity("", None, reason="too few families of traps")
    return Quantity(
        "",
        ranks.value,
        ranks.interval,
        ranks.n_families,
        "families of traps",
        bounds=(-2.0, 2.0),
        reason=ranks.reason,
    )


def vacuous(catalogue: TrapList) -> Quantity:
    empty = [trap.margins.vacuous for trap in catalogue.traps if trap.perfect]
    return Quantity(
        "",
        sum(empty) / len(empty) if empty else None,
        kind="exact",
        n=len(empty),
        unit="traps",
        reason="" if empty else "none is perfect",
    )


def periods_claim(which: str, published: float, gap: Callable[[Margins], float]) -> Published:
    """That BERT's gap of fifteen periods is the published one."""
    return Published(
        f"the {which} gap of fifteen periods is {published}",
        TRAPS,
        published,
        f"{which} gap of fifteen periods",
        lambda a: gap(a.periods.margins),
        near(published, 0.05),
        choices=("within 0.05",),
        when=lambda a: a.periods is not None and published_name(a.settings.model) == BERT,
    )


TABLE_5 = Piece(
    "the catalogue of traps: texts, gaps and durations",
    "{chains} chains of {steps:,} steps from passages cut to {length} tokens, {model} at "
    "temperature {temperature:g}; rolling detector of the paper on {embedded.name}, and balls of "
    "Hamming radius 1",
    differs=("gaps are to the best other token that the chain may draw",),
    # 0.5: there texts of 12 tokens hold for one to nine sweeps, and their neighbourhoods for
    # hundreds of steps; at 1 they hold for less than a sweep, and no trap is found.
    small=dict(
        model=SMALL, texts=None, embedder=None, length=12, chains=8, steps=1500, temperature=0.5
    ),
    paper=dict(model=BERT, embedder=JINA, length=20, chains=30, steps=10_000, temperature=1.0),
    published=dict(length=15),  # of the longest trap
    not_in_paper=("temperature",),
    choices=(
        f"rolling detector: the mean drift over the {WINDOW} steps after a snapshot, a snapshot "
        f"every {STRIDE} steps, and no trap shorter than {SHORTEST} steps",
    ),
    chains=lambda s: [s.chain_set()],
    ask=ask_traps,
    table=trap_rows,
    figures=lambda a: a.study.figures(),
    claims=[
        Published(
            "the mean gap correlates better with observed duration than the minimal gap",
            TRAPS,
            "better, no number",
            "rank correlation (Somers' D) by the mean gap less that by the min gap",
            lambda a: gap_difference(a.rolling),
            above(0.0),
            effect=0.3,
            choices=("power for a difference of 0.3", PUBLISHED_RANKS),
        ),
        Published(
            "17 traps in 30 chains of 10,000 steps",
            TRAPS,
            17,
            "traps in 300,000 steps of chains",
            lambda a: mean_over_chains(
                per_chain(a.rolling) * 30 * 10_000 / a.rolling.n_steps, bounds=POSITIVE
            ),
            Region(*OF_17, strict=False),
            choices=(f"{OF_17[0]:.1f} to {OF_17[1]:.1f}: the Poisson interval of 17",),
            bounds=POSITIVE,
        ),
        Published(
            "4 of the 17 traps are perfect, 13 approximate",
            TRAPS,
            "4 of 17",
            "share of the traps that are perfect",
            lambda a: share_of(a.rolling, lambda trap: trap.perfect),
            Region(*clopper_pearson(4, 17), strict=False),
            effect=4 / 17,
            choices=("0.07 to 0.50: the interval of 4 of 17",),
            bounds=SHARE,
        ),
        Published(
            "traps last 671 steps on average, from 150 to 4,950",
            TRAPS,
            671,
            "mean duration of a trap, unfinished ones as they are",
            lambda a: trap_duration(a.rolling),
            Region(671 / 2, 671 * 2, strict=False),
            choices=("within a factor of two counts as the same: the paper gives no error",),
        ),
        Published(
            "for all observed perfect traps the bound falls below one step",
            TRAPS,
            1.0,
            "share of the perfect traps found whose bound is vacuous",
            lambda a: vacuous(a.rolling),
            at_least(1.0),
        ),
        Published(
            "escapes are typically triggered at the weakest-scoring position",
            "paper A, appendix C.2",
            "typically",
            "share of the steps that end a trap at the site with the smallest gap",
            lambda a: share_of(
                a.rolling,
                lambda trap: trap.escape is not None and trap.escape.at_weakest is True,
                among=lambda trap: trap.escape is not None,
            ),
            above(0.5),
            effect=0.75,
            choices=(
                "typically: more than half; power for three quarters",
                "the smallest gap of the text that is left; the step is the one that carries the "
                "embedding farther than 0.12 from the trap's text",
            ),
            bounds=SHARE,
        ),
        Published(
            "a string of 15 periods is a perfect trap: every token is the argmax",
            TRAPS,
            7.46,
            "smallest gap of fifteen periods",
            lambda a: a.periods.margins.margin,
            above(0.0),
            when=lambda a: a.periods is not None,
        ),
        periods_claim("mean", 9.14, lambda margins: float(margins.gaps.mean())),
        periods_claim("smallest", 7.46, lambda margins: margins.margin),
    ],
    seconds=35,
)


# Appendix C.3: regimes of temperature.

MOVES = {
    0.01: "barely moves",
    0.1: "barely moves",
    1.0: "wanders among basins",
    10.0: "noise",
    100.0: "noise",
}
UNIFORM = 0.9  # of the largest entropy: nearly uniform
CLOSE = 0.2  # a distance from the start that counts as close


def ask_regimes(s: Settings) -> dict[str, object]:
    runs = temperature_runs(s)
    embedder, stride = choose(runs[1.0], s.embedder), min(50, s.steps)
    far = {}
    for t, run in runs.items():
        values = distances(run, embedder, every=stride).values
        far[t] = values[:, values.shape[1] // 2 :].mean(axis=1)  # of each chain, second half
    return {
        "runs": runs,
        "regimes": [regime(run, embedder, stride=stride) for run in runs.values()],
        "far": far,
        "n_drawable": count_drawable(runs[1.0], s.model),
        "embedded": embedder,
    }


def count_drawable(run: Run, name: str) -> int:
    """The number of tokens that may be drawn at the first free site of the first chain."""
    model = load(name)
    tokens = torch.from_numpy(run.tokens(0)[:1]).to(model.state_device)
    site = torch.from_numpy(run.free[:1].argmax(axis=1, keepdims=True)).to(model.state_device)
    return int(torch.isfinite(model.conditionals().scores(tokens, site)).sum())


def entropy_share(a: Answers, t: float) -> Estimate:
    """Mean entropy over the second half, relative to that of uniform draws.

    A mean over many draws at a high temperature: no chain is far from the others.
    """
    run = a.runs[t]
    entropy, site = (run.read(name, run.steps // 2) for name in ("entropy", "site"))
    entropies = np.nanmean(np.where(site >= 0, entropy, np.nan), axis=(1, 2))
    return mean_over_chains(entropies / np.log(a.n_drawable), bounds=SHARE, student=True)


def from_start(a: Answers, t: float) -> Estimate:
    return mean_over_chains(a.far[t], bounds=DISTANCE, student=True)


def against_noise(a: Answers, t: float) -> Estimate:
    """The distance from the start less half of that of noise, from equal starts."""
    return mean_over_chains(a.far[t] - a.far[10.0] / 2)


def close_claims(t: float) -> list[Published]:
    """The paper's number for close is lost, so two readings of it are tested."""
    sentence = f"at temperature {t:g} chains stay close to where they began"
    published = "a cosine distance that is lost in our text"
    return [
        Published(
            sentence,
            "paper A, appendix C.3",
            published,
            "distance from the start",
            partial(from_start, t=t),
            below(CLOSE),
            effect=CLOSE / 2,
            choices=(f"close: a distance below {CLOSE:g}; power for half of it",),
            bounds=DISTANCE,
        ),
        Published(
            f"{sentence}, compared with noise",
            "paper A, appendix C.3",
            published,
            "distance from the start less half of that of noise (at 10)",
            partial(against_noise, t=t),
            below(0.0),
            effect=-0.25,
            choices=("close: less than half as far as noise; power for a quarter less",),
        ),
    ]


REGIMES = Piece(
    "how chains move at temperatures from 0.01 to 100",
    "{chains} chains of {steps:,} steps cut to {length} tokens; the same starts and seed at every "
    "temperature; over the second half. {embedded.description}",
    small=dict(
        model=SMALL,
        texts=None,
        embedder=None,
        temperatures=tuple(MOVES),
        length=12,
        chains=6,
        steps=600,
    ),
    paper=dict(model=BERT, embedder=JINA, length=20, chains=30, steps=10_000),
    published=dict(chains=100),  # trials per condition, appendix B.2
    choices=("the distances that the paper gives are lost in our text",),
    chains=temperature_chains,
    ask=ask_regimes,
    table=lambda a: [
        row | {"from_start": [mean.value, *(mean.interval or ())], "published": MOVES[t]}
        for study, t in zip(a.regimes, MOVES, strict=True)
        for mean in [from_start(a, t)]
        for row in columns(
            [study],
            *("temperature", "changed", "kept", "entropy", "log_prob", "pace", "stuck", "kind"),
            chain_0_ends_in=a.runs[t].text(),
        )
    ],
    figures=lambda a: {"shares": plot_regimes(a.regimes)},
    claims=[
        *close_claims(0.01),
        *close_claims(0.1),
        Published(
            "at temperature 1 chains lose their initial identity",
            "paper A, section 6.2",
            "they wander among basins and lose their initial identity",
            "distance from the start less half of that of noise (at 10)",
            partial(against_noise, t=1.0),
            above(0.0),
            effect=0.1,
            choices=(
                "lost: more than half as far as noise; power for a tenth more",
                "basins are not counted here",
            ),
        ),
        *(
            Published(
                f"at temperature {t:g} token selection becomes nearly uniform",
                "paper A, appendix C.3",
                "nonsense",
                "entropy of the draws over that of uniform ones",
                partial(entropy_share, t=t),
                above(UNIFORM),
                effect=(1 + UNIFORM) / 2,
                choices=(f"nearly: above {UNIFORM:g}",),
                bounds=SHARE,
            )
            for t in (10.0, 100.0)
        ),
    ],
)


# Appendix C.4: what a frozen prefix pulls the chain towards.

# By prefix: what the paper's example texts, or its words about them, are about, and the label that
# is nearest to it, by our own reading.
PULLS = {
    PREFIXES[0]: ("good work and opinions; general relativity", "science"),
    PREFIXES[1]: ("a press conference, time spent together", "pop culture"),
    PREFIXES[2]: ("games and playing time", "sport"),
    PREFIXES[3]: ("political almost immediately", "politics"),
    PREFIXES[4]: ("recordings, terrorists planning an attack: politics and crime", "politics"),
}


def ask_prefixes(s: Settings) -> dict[str, object]:
    options = {"model": s.model, "chains": s.chains, "steps": s.steps, "length": s.length}
    options |= {"every": s.every, "scorer": s.scorer, "temperature": s.temperature}
    options |= {"hypothesis": pipeline_hypothesis([s.scorer])}
    options |= {} if s.texts is None else {"texts": list(s.texts)}
    key = options | {"model": weights(s.model), "prefixes": PREFIXES, "seed": s.seed}
    study = prefixes(
        **options,
        prefixes=PREFIXES,
        against="none",
        track=TRACK,
        seed=s.seed,
        device=s.device,
        folder=s.place("prefixes", key),
    )
    return {"study": study, "correction": study.correction}


def prefix_rows(a: Answers) -> list[Row]:
    rows = []
    medians = {visit.prefix: visit.median.value for visit in a.study.first_visits}
    for contrast in a.study.contrasts:
        pulls = {label: means[2] for label, means in contrast.topics.items()}
        sure = contrast.differing_topics
        rows.append(
            {
                "prefix": contrast.first,
                "towards": [label for label in sure if pulls[label].value > 0],
                "away_from": [label for label in sure if pulls[label].value < 0],
                "topics": {
                    label: [pull.value, *(pull.interval or ())] for label, pull in pulls.items()
                },
                "more": [
                    f"{word.word} {word.log_odds:+.2f} +- {word.standard_error:.2f}"
                    for word in contrast.more[:8]
                ],
                "sure": [word.word for word in contrast.more if word.sure],
                "less": [word.word for word in contrast.less[:8]],
                **{
                    name: [means.difference.value, *(means.difference.interval or ())]
                    for name, means in contrast.motion.items()
                },
                "first_political": medians.get(contrast.first),
                "first_political_without": medians.get("no prefix"),
                "published": PULLS[contrast.first][0],
                "text": contrast.texts[0],
                "scorer": a.study.scorer,
                "kind": "estimate",
            }
        )
    return rows


def over_prefixes(a: Answers, measure: str) -> Estimate:
    """A figure of the motion with a prefix less without one, mean over prefixes, chain by chain."""
    motion, column = a.study.motion_by_chain, list(MOTION).index(measure)
    after = np.mean([motion[name][:, column] for name in PREFIXES], axis=0)
    return mean_over_chains(after - motion[""][:, column])


def early_politics(a: Answers) -> Number:
    """Chains that are soon political after the political prefix, less those without a prefix."""
    first, soon = a.study.first_steps, max(a.settings.every, a.settings.steps // 10)
    if not first:
        return Quantity("", None, reason=a.study.note)
    prefix = next(name for name, (_, label) in PULLS.items() if label == TRACK)
    pairs = (first[prefix] <= soon).astype(float) - (first[""] <= soon)
    return mean_over_chains(pairs, bounds=(-1, 1))


def prefix_claims(a: Answers) -> Iterable[Published]:
    for contrast in a.study.contrasts:
        published, label = PULLS[contrast.first]
        missing = Quantity("", None, reason=a.study.note or f"{label} is no label here")
        yield Published(
            f'"{contrast.first}" pulls towards {label}',
            "paper A, appendix C.4",
            published,
            f"score of {label}, less that without a prefix",
            contrast.topics[label][2] if label in contrast.topics else missing,
            above(0.0),
            effect=0.1,
            choices=("the label, and a pull of 0.1 as the smallest that matters",),
            bounds=(-1, 1),
        )
    yield Published(
        "a prefix accelerates the drift",
        "paper A, appendix C.4",
        "faster, no number",
        "distance from the start over the earlier half, less that without a prefix",
        over_prefixes(a, "distance"),
        above(0.0),
        effect=0.05,
        choices=(a.study.distance, "power for a difference of 0.05"),
    )
    yield Published(
        "a prefix narrows the space and concentrates the probability",
        "paper A, appendix C.4",
        "it narrows, no number",
        "entropy of a redraw over the later half in nats, less that without a prefix",
        over_prefixes(a, "entropy"),
        below(0.0),
        effect=-0.1,
        choices=("concentration: a lower mean entropy of the redraws; power for 0.1 nats",),
    )
    yield Published(
        'after "Donald Trump said that" chains become political almost immediately',
        "paper A, appendix C.4",
        "almost immediately, no number",
        "share of chains above the baseline within a tenth of the steps, less without a prefix",
        early_politics(a),
        above(0.0),
        effect=0.5,
        choices=("almost immediately: within a tenth of the steps; power for half of the chains",),
        bounds=(-1, 1),
    )


PREFIXES_PIECE = Piece(
    "what a frozen prefix pulls the chain towards",
    "{chains} chains of {length} free tokens after each prefix and without one, {steps:,} steps at "
    "temperature {temperature:g}, the later half counted; {correction}",
    small=dict(
        model=SMALL,
        texts=None,
        temperature=1.0,
        chains=10,
        steps=128,
        length=16,
        every=16,
        scorer=SIMILARITY,
    ),
    paper=dict(model=BERT, chains=100, steps=10_000, length=20, every=200, scorer=BART),
    not_in_paper=("steps", "every"),
    choices=("which label stands for what the paper's texts are about",),
    ask=ask_prefixes,
    table=prefix_rows,
    figures=lambda a: a.study.figures(),
    claims=prefix_claims,
)

VOCABULARY = (
    "special, unused and unknown tokens have probability 0: conditionals, gaps, total variations "
    "and the most probable tokens are those of the other tokens"
)

PIECES = {
    "A-fig1": FIGURE_1,
    "A-fig2": FIGURE_2,
    "A-table1": TABLE_1,
    "A-fig5": FIGURE_5,
    "A-fig6": FIGURE_6,
    "A-eq4.1": EQUATION_4_1,
    "A-influence": INFLUENCE,
    "A-coherence": COHERENCE,
    "A-theorem8": MARGIN_GROWTH,
    "A-table2": TABLE_2,
    "A-fig3a": FIGURE_3A,
    "A-fig3b": FIGURE_3B,
    "A-fig3-temperatures": FIGURE_3_TEMPERATURES,
    "A-fig-coupling": COUPLING,
    "A-table3": TABLE_3,
    "A-table4": TABLE_4,
    "A-table5": TABLE_5,
    "A-fig4": FIGURE_4,
    "A-regimes": REGIMES,
    "A-prefixes": PREFIXES_PIECE,
}
PIECES = {
    name: replace(piece, differs=(*piece.differs, VOCABULARY)) for name, piece in PIECES.items()
}
