"""Paper B, table 3: a learned metric (BLEURT there), where its weights are at hand; else chrF."""

from typing import Any

from glauber.errors import GlauberError
from glauber.papers.reproduction import Reproduction, Scale
from glauber.papers.translation_runs import published, row, sentences, sets
from glauber.translation.data import Judged
from glauber.translation.evaluation import Evaluation, Measures, evaluate, ways
from glauber.translation.learned import learned_score
from glauber.translation.store import BUNDLED

PUBLISHED = {
    "ar, beam 5": published([73.55, 74.97, 67.23, 71.76, 68.14, 65.71]),
    "refine, 4 steps": published([71.26, 72.08, 65.90, 70.23, 65.16, 63.95]),
    "refine, 10 steps": published([71.82, 73.28, 66.09, 70.49, 66.19, 64.30]),
}


def make(scale: Scale, *, seed: int) -> Reproduction:
    """COMET of every system on both sets, or chrF and one sentence about what is missing."""
    judged, rows, said = sets(scale), [], ""
    for name, one_set in judged.items():
        for one in evaluate(BUNDLED, one_set, ways(), measures=Measures(0)):
            metric, said = _metric(one, one_set)
            rows.append(row(name, one) | metric | {"published BLEURT": PUBLISHED.get(one.system)})
    return Reproduction("B-table3", scale, f"{sentences(judged)}. {said}", rows, seed)


def _metric(one: Evaluation, judged: list[Judged]) -> tuple[dict[str, Any], str]:
    """The learned score of one system, or None; and what to say about it."""
    try:
        found = learned_score(one.outputs, judged)
    except GlauberError as missing:
        return {"COMET": None}, f"{missing} Until then chrF is what can be had"
    return {"COMET": found.score}, f"COMET with {found.weights}; the paper has BLEURT"
