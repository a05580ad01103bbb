"""What do tables 4 and 5 of paper B have in common?"""

from typing import Any

from glauber.papers.reproduction import Reproduction, Scale
from glauber.papers.translation_runs import long_set
from glauber.translation.attention import attention_of_neighbours
from glauber.translation.neighbours import Neighbours
from glauber.translation.store import BUNDLED, load, load_vocabulary

PASSES = (1, 2, 4)
# Long pairs only: stutter is commoner in long drafts, where every attention is spread thinner.
SIZES: dict[Scale, int] = {"small": 100, "paper": 200}
Published = dict[str, dict[str, float]]  # stutter yes or no -> measure -> its mean


def make_table(
    name: str, measures: tuple[str, ...], published: Published, *, scale: Scale, seed: int
) -> Reproduction:
    """Three rows for each pass: pairs that stutter, pairs that do not, and their difference."""
    texts = [one.source for one in long_set(SIZES[scale])]
    model, vocabulary = load(BUNDLED, "student"), load_vocabulary(BUNDLED)
    rows = []
    for n_steps in PASSES:
        found = attention_of_neighbours(model, vocabulary, texts, n_steps=n_steps)
        rows += _rows(found, measures, published)
    how = (
        f"{len(texts)} long pairs joined from Tatoeba's test file (20 to 60 target tokens), "
        "English to Spanish by the bundled student; neighbouring positions of drafts of the most "
        "likely length, neither "
        "remasked nor cleaned, in the pass that wrote them; last decoder layer; mean, standard "
        "deviation and standard error (over sentences)"
    )
    return Reproduction(name, scale, how, rows, seed)


def _rows(
    found: Neighbours, measures: tuple[str, ...], published: Published
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for stutter, group in (("yes", found.stuttering), ("no", found.others)):
        told = {name: group.measures[name] for name in measures}
        rows.append(
            {"pass": found.n_steps, "stutter": stutter, "pairs": group.n_pairs}
            | {name: [one.mean, one.deviation, one.standard_error] for name, one in told.items()}
            | {"published": published[stutter], "kind": found.kind}
        )
    gaps = {name: list(found.difference(name)) for name in measures}
    theirs = {name: round(published["yes"][name] - published["no"][name], 4) for name in measures}
    rows.append(
        {"pass": found.n_steps, "stutter": "yes less no, and its standard error"}
        | gaps
        | {"published": theirs, "kind": found.kind}
    )
    return rows
