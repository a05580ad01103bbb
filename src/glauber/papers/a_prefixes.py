"""Paper A, appendix C.4: what a frozen prefix pulls the chain towards.

The paper shows texts and no figures: they are its published part.
"""

from typing import Any

from glauber.landscape.descriptions import TOPICS
from glauber.landscape.prefixes import PREFIXES, Pull, prefix_runs, prefix_study
from glauber.landscape.scorers import SIMILARITY, load_scorer
from glauber.papers.reproduction import Reproduction, Scale
from glauber.plots.prefixes import plot_prefixes

SMALL = {"model": "bundled:english", "chains": 10, "steps": 128, "length": 16}
PAPER = {"model": "bert-base-uncased", "chains": 100, "steps": 10_000, "length": 20}
EVERY = {"small": 16, "paper": 200}
SCORERS = {"small": SIMILARITY, "paper": "facebook/bart-large-mnli"}
# What the paper's example texts, or its words about them, are about.
PUBLISHED = {
    PREFIXES[0]: "good work and opinions; general relativity",
    PREFIXES[1]: "a press conference, time spent together",
    PREFIXES[2]: "games and playing time",
    PREFIXES[3]: "political almost immediately",
    PREFIXES[4]: "recordings, terrorists planning an attack: politics and crime",
}


def make(scale: Scale, *, seed: int) -> Reproduction:
    """A row for each prefix: topics and words against the chains without one."""
    chosen: dict[str, Any] = SMALL if scale == "small" else PAPER
    runs = dict(prefix_runs(**chosen, seed=seed))
    scorer = load_scorer(SCORERS[scale], tuple(TOPICS))
    found = prefix_study(runs, scorer, every=EVERY[scale])
    how = (
        f"{chosen['chains']} chains of {chosen['length']} free tokens behind each prefix and "
        f"without one, {chosen['steps']:,} steps at temperature 1, the later half counted"
    )
    rows = [_row(pull) | {"scorer": found.scorer, "kind": found.kind} for pull in found.pulls]
    return Reproduction("A-prefixes", scale, how, rows, seed, {"pulls": plot_prefixes(found)})


def _row(pull: Pull) -> dict[str, Any]:
    return {
        "prefix": pull.prefix,
        "topics pulled towards (95% intervals, each by itself)": pull.towards,
        "pull": {label: [m.value, *(m.interval or ())] for label, m in pull.pull.items()},
        "words (log-odds, standard error)": [
            f"{one.word} {one.log_odds:+.2f} +- {one.standard_error:.2f}" for one in pull.words[:8]
        ],
        "surely distinctive words": [one.word for one in pull.words if one.sure],
        "published": PUBLISHED[pull.prefix],
        "texts": pull.examples,
    }
