"""Paper A on what the texts are about: appendix C.4 on prefixes, figures 1 and 4.

Of the trajectories the text gives the protocol (appendix B.6) and what is seen, neither the
temperature nor the starts: 0.7 and the bundled passages are ours.
"""

from dataclasses import dataclass, replace
from itertools import groupby
from math import inf
from typing import Any

from glauber.landscape.prefix_contrast import Contrast
from glauber.landscape.prefixes import PREFIXES, PrefixStudy, prefixes
from glauber.landscape.scorers import SIMILARITY
from glauber.landscape.trajectory import Trajectory, trajectory_in_plane
from glauber.papers.claims import EXACT, Claim, Quantity, above, at_least
from glauber.papers.paper import Reproduction
from glauber.papers.settings import TOKENS, Chains, Piece, Scale, Settings, embeddings, weights
from glauber.runs.embedding import Embedder, choose_embedder, load_embedder
from glauber.runs.snapshots import Snapshots, snapshots
from glauber.statistics import Estimate, mean_over_chains

ALONE = 1  # chains of figure 1
SEVERAL = 3  # chains of figure 4
# What the paper's example texts, or its words about them, are about.
PULLS = {
    PREFIXES[0]: "good work and opinions; general relativity",
    PREFIXES[1]: "a press conference, time spent together",
    PREFIXES[2]: "games and playing time",
    PREFIXES[3]: "political almost immediately",
    PREFIXES[4]: "recordings, terrorists planning an attack: politics and crime",
}
# The label that comes nearest to it; our own reading.
TOWARDS = dict(
    zip(PREFIXES, ("science", "pop culture", "sport", "politics", "politics"), strict=True)
)
PULL_SIZES: dict[Scale, dict[str, Any]] = {
    "small": dict(
        model="bundled:english", chains=10, steps=128, length=16, every=16, scorer=SIMILARITY,
        temperature=1.0,
    ),
    "paper": dict(
        model="bert-base-uncased", chains=100, steps=10_000, length=20, every=200,
        scorer="facebook/bart-large-mnli", temperature=1.0,
    ),
}  # fmt: skip


def pulls(settings: Settings) -> Reproduction:
    """A row for each prefix: topics and words against the chains without one.

    The paper shows texts and no figures: they are its published part.
    """
    sizes = settings.over(PULL_SIZES[settings.scale])
    if settings.texts is not None:
        sizes["texts"] = list(settings.texts)
    key = sizes | {"model": weights(sizes["model"]), "prefixes": PREFIXES, "seed": settings.seed}
    found = prefixes(
        **sizes, prefixes=PREFIXES, against="none", seed=settings.seed, device=settings.device,
        folder=settings.place("prefixes", key),
    )  # fmt: skip
    how = (
        f"{sizes['chains']} chains of {sizes['length']} free tokens behind each prefix and "
        f"without one, {sizes['steps']:,} steps at temperature {sizes['temperature']:g}, the later "
        f"half counted; {found.correction}"
    )
    rows = [_pull(one) | {"scorer": found.scorer, "kind": found.kind} for one in found.contrasts]
    return Reproduction.of(
        settings, how, rows, claims=_pull_claims(found), pictures=found.figures(),
        model=sizes["model"], differs=_differs(settings),
        ours=("the sizes", "which label stands for what the paper's texts are about"),
    )  # fmt: skip


def _pull_extras(settings: Settings) -> tuple[str, ...]:
    judge = settings.scorer or PULL_SIZES[settings.scale]["scorer"]
    return embeddings(settings) if judge == SIMILARITY else ()


def _pull_claims(found: PrefixStudy) -> list[Claim]:
    """Each prefix pulls towards what its texts in the paper are about."""
    claims = []
    for one in found.contrasts:
        label = TOWARDS[one.first]
        pull = one.topics[label][2] if label in one.topics else None
        named = f"score of {label}, less that without a prefix"
        ours = Quantity(named, None, reason=found.note or f"{label} is no label here")
        if pull is not None:
            ours = Quantity.of(named, pull, bounds=(-1, 1))
        claims.append(
            Claim(
                f'"{one.first}" pulls towards {label}', "paper A, appendix C.4", PULLS[one.first],
                ours, above(0.0), effect=0.1,
                ours=("the label, and a pull of 0.1 as the smallest that matters",),
            )
        )  # fmt: skip
    return claims


def _differs(settings: Settings) -> list[str]:
    differs = ["the bundled passages in place of MS MARCO"]
    if settings.scale == "small" or settings.model:
        differs += ["another model than the paper's", "another embedding as the judge"]
    return differs


def _pull(one: Contrast) -> dict[str, Any]:
    means = {label: means[2] for label, means in one.topics.items()}
    sure = one.differing()
    return {
        "prefix": one.first,
        "topics pulled towards": [label for label in sure if means[label].value > 0],
        "topics pushed away from": [label for label in sure if means[label].value < 0],
        "pull": {label: _mean(mean) for label, mean in means.items()},
        "words (log-odds, standard error)": [
            f"{word.word} {word.log_odds:+.2f} +- {word.standard_error:.2f}"
            for word in one.more[:8]
        ],
        "surely distinctive words": [word.word for word in one.more if word.sure],
        "words of the chains without it": [word.word for word in one.less[:8]],
        "published": PULLS[one.first],
        "texts": one.texts[0],
    }


@dataclass(frozen=True)
class PathConditions:
    """One scale's model, embedding and sizes of figures 1 and 4."""

    model: str
    embedder: str | None  # none: the one in the package
    length: int | None
    steps: int
    every: int
    temperature: float = 0.7
    trust_remote_code: bool = False


PATHS: dict[Scale, PathConditions] = {
    "small": PathConditions("bundled:english", None, 12, 600, 10),
    "paper": PathConditions(
        "bert-base-uncased", "jinaai/jina-embeddings-v4?task=text-matching", None, 10_000, 50,
        trust_remote_code=True,
    ),
}  # fmt: skip
CLUSTER = 5  # equal snapshots in a row that make a cluster of figure 1
SEEN = "clear clusters of points, which are one sentence repeated; no number in our text"
HOW = "two-dimensional PCA of sentence embeddings, joined in time order from warm to cool"


def figure1(settings: Settings) -> Reproduction:
    """The path of a single chain."""
    from glauber.figures.trajectory import plot_trajectory

    plane, read, rows = _paths(settings, ALONE)
    longest = 1 + _longest(read.texts[0])
    claim = Claim(
        "the path has clear clusters of points, which are one sentence repeated",
        "paper A, figure 1", SEEN,
        Quantity(
            "longest row of equal snapshots in the chain shown", longest, n=ALONE, bounds=(1, inf),
            reason="one value cannot show how much values differ",
        ),
        at_least(CLUSTER), ours=(f"a cluster: {CLUSTER} equal snapshots in a row",),
    )  # fmt: skip
    pictures = {"trajectory": plot_trajectory(plane)}
    return _pictured(settings, rows, claim, pictures)


def figure4(settings: Settings) -> Reproduction:
    """The paths of three chains in one plane, a picture each."""
    from glauber.figures.trajectory import plot_trajectory

    plane, read, rows = _paths(settings, SEVERAL)
    again = mean_over_chains([_repeated(texts) for texts in read.texts], bounds=(0, 1))
    claim = Claim(
        "further paths have the same clusters", "paper A, figure 4", SEEN,
        Quantity.of("share of snapshots whose text stood before", again, bounds=(0, 1)),
        above(0.1), effect=0.5, ours=("a tenth of the snapshots as the least, and power for half",),
    )  # fmt: skip
    pictures = {f"chain-{chain}": plot_trajectory(plane, chain=chain) for chain in range(SEVERAL)}
    return _pictured(settings, rows, claim, pictures)


def _pictured(
    settings: Settings, rows: list[dict[str, Any]], claim: Claim, pictures: dict[str, Any]
) -> Reproduction:
    found = settings.over(PATHS[settings.scale])
    ours = (f"temperature {found.temperature:g} and the starts: the paper's are lost",)
    claim = replace(claim, ours=(*claim.ours, *ours))
    return Reproduction.of(
        settings, HOW, rows, claims=[claim], pictures=pictures, model=found.model,
        differs=_differs(settings), ours=ours,
    )  # fmt: skip


def _chains(settings: Settings, n_chains: int) -> list[Chains]:
    found = settings.over(PATHS[settings.scale])
    return [
        Chains(
            found.model, settings.texts, steps=found.steps, chains=n_chains, length=found.length,
            temperature=found.temperature, seed=settings.seed,
        )
    ]  # fmt: skip


def _paths(settings: Settings, n_chains: int) -> tuple[Trajectory, Snapshots, list[dict[str, Any]]]:
    """The chains in one plane, their snapshots, and a row of figures for each."""
    found = settings.over(PATHS[settings.scale])
    run = settings.run(_chains(settings, n_chains)[0])
    read = snapshots(run, every=min(found.every, found.steps))
    embedder = _embedder(found, read)
    what = "its embeddings" if embedder.reads_meaning else "its tokens"
    plane = trajectory_in_plane(embedder.vectors(read), read.steps, read.texts, what=what)
    rows = [
        {
            "chain": chain,
            "snapshots": len(own),
            "different texts": len(set(own)),
            "share whose text stood before": _repeated(own),
            "longest repeat in steps": _longest(own) * read.every,
            "shown spread": sum(plane.explained or ()),
            "kind": EXACT,
            "temperature": found.temperature,
            "model": found.model,
            "embedder": embedder.name,
            "published": SEEN,
        }
        for chain, own in enumerate(read.texts)
    ]
    return plane, read, rows


def _embedder(found: PathConditions, read: Snapshots) -> Embedder:
    """The one of that name; without a name, the one in the package where it reads these texts."""
    if found.embedder in (None, TOKENS):
        return choose_embedder(read, found.embedder)
    return load_embedder(found.embedder, trust_remote_code=found.trust_remote_code)


def _repeated(texts: tuple[str, ...]) -> float:
    """The share of snapshots, but for the first, whose text stood there before."""
    return 1 - (len(set(texts)) - 1) / max(1, len(texts) - 1)


def _longest(texts: tuple[str, ...]) -> int:
    """The most snapshots in a row that show one text, less one."""
    return max(len(list(same)) for _, same in groupby(texts)) - 1


def _mean(mean: Estimate) -> list[float]:
    """The mean and the ends of its interval, where there is one."""
    return [mean.value, *(mean.interval or ())]


PATH_TAKES = ("model", "texts", "temperature", "steps", "embedder", "device")
PIECES = {
    "A-fig1": Piece(
        "one chain's trajectory in the plane", figure1, PATH_TAKES, lambda s: _chains(s, ALONE),
        seconds=10, extras=embeddings,
    ),
    "A-fig4": Piece(
        "further trajectories in the plane", figure4, PATH_TAKES, lambda s: _chains(s, SEVERAL),
        seconds=15, extras=embeddings,
    ),
    "A-prefixes": Piece(
        "what a frozen prefix pulls the chain towards", pulls,
        ("model", "texts", "temperature", "chains", "steps", "scorer", "device"),
        extras=_pull_extras,
    ),
}  # fmt: skip
