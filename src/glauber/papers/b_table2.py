"""Paper B, table 2: refinement beside other decoders.

There each row is a model of its own. Here all parallel rows are one student, so the table compares
the schedules and not the trainings.
"""

from glauber.papers.reproduction import Reproduction, Scale
from glauber.papers.translation_runs import published, row, sentences, sets
from glauber.translation.evaluation import Measures, System, baselines, evaluate
from glauber.translation.store import BUNDLED
from glauber.translation.translate import Way

SYSTEMS: dict[str, System] = {
    "ar, beam 5": baselines()["ar, beam 5"],
    "mask-predict, 4 steps": ("student", Way("mask-predict", 4)),
    "mask-predict, 10 steps": ("student", Way("mask-predict", 10)),
    "easy-first, 4 steps": ("student", Way("easy-first", 4)),
    "sundae, 4 steps, 1 length of 16 drafts": ("student", Way("sundae", 4, 1)),
    "sundae, 10 steps, 1 length of 16 drafts": ("student", Way("sundae", 10, 1)),
    "sundae, 4 steps, 5 lengths of 3 drafts": ("student", Way("sundae", 4, n_hypotheses=3)),
    "refine, 4 steps": ("student", Way("refine", 4)),
    "refine, 10 steps": ("student", Way("refine", 10)),
}
# By other implementations of BLEU; refinement by SacreBLEU with tok intl.
PUBLISHED = {
    "ar, beam 5": published([31.71, 28.60, 34.46, 34.16, 24.65, 35.01]),
    "mask-predict, 4 steps": published([30.75, 26.73, 33.02, 33.67, 22.57, 33.58]),
    "mask-predict, 10 steps": published([31.24, 27.39, 33.67, 33.33, 23.76, 34.24]),
    "easy-first, 4 steps": published([31.31, 27.34, 33.25, 33.22, 23.83, 34.63]),
    "sundae, 4 steps, 1 length of 16 drafts": published([32.10, 27.94]),
    "sundae, 10 steps, 1 length of 16 drafts": published([32.29, 28.33]),
    "refine, 4 steps": published([34.17, 29.49, 34.55, 29.57, 27.18, 32.59]),
    "refine, 10 steps": published([34.33, 29.48, 34.57, 29.56, 27.25, 32.60]),
}


def make(scale: Scale, *, seed: int) -> Reproduction:
    """Quality of every decoder on both sets."""
    judged = sets(scale, share=0.4 if scale == "small" else 1.0)
    rows = [
        row(name, one) | {"published BLEU": PUBLISHED.get(one.system)}
        for name, one_set in judged.items()
        for one in evaluate(BUNDLED, one_set, _seeded(seed), measures=Measures(0))
    ]
    how = (
        f"{sentences(judged)}; one student behind all parallel decoders, 5 lengths where nothing "
        "else is said. The published rows are models trained for their decoder, by other BLEUs"
    )
    return Reproduction("B-table2", scale, how, rows, seed)


def _seeded(seed: int) -> dict[str, System]:
    from dataclasses import replace

    return {name: (model, replace(way, seed=seed)) for name, (model, way) in SYSTEMS.items()}
