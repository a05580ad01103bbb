"""Where did a run's chains get stuck, in which texts, and for how long?"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch

from glauber.conditionals.base import Conditionals
from glauber.conditionals.weights import check_device
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.metastability.catalogue import (
    REACH,
    SHORTEST,
    Catalogue,
    hamming_traps,
    rolling_traps,
)
from glauber.metastability.episodes import (
    STRIDE,
    THRESHOLD,
    WINDOW,
    check_ball,
    check_steps,
    check_window,
)
from glauber.metastability.trap_census import check_kernel
from glauber.parameters import Trust
from glauber.progress import check_count
from glauber.result import Result, one_of, plain, signed, study
from glauber.runs.embedding import Choice, check_embedder, choose_embedder
from glauber.runs.run import Run
from glauber.sampling.reopened import drawn_from

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

DETECTORS = ("both", "rolling", "hamming")
# Paper A, table 5: 30 chains of 10,000 steps. The longest is a row of fifteen periods.
PUBLISHED: dict[str, Any] = {
    "model": "bert-base-uncased",
    "chains": 30,
    "steps": 10_000,
    "traps": 17,
    "perfect": 4,
    "mean_duration": 671,
    "shortest": 150,
    "longest": 4950,
    "better_predictor": "mean gap",
    "fifteen_periods": {"mean_gap": 9.14, "min_gap": 7.46, "duration": 4950},
}


@study
def traps(
    run: Annotated[Run | str | Path, "A run, or its folder."],
    *,
    detector: Annotated[str, "rolling (embeddings), hamming (exact) or both."] = "both",
    window: Annotated[int, "rolling: steps that a snapshot is compared with."] = WINDOW,
    stride: Annotated[int, "rolling: one snapshot every so many steps."] = STRIDE,
    threshold: Annotated[float, "rolling: a drift below this, 1 - cosine, is a trap's."] = (
        THRESHOLD
    ),
    radius: Annotated[int, "hamming: tokens that may differ."] = 1,
    shortest: Annotated[int, "Duration of the shortest trap, in steps."] = SHORTEST,
    reach: Annotated[int, "Edits between two traps of a family."] = REACH,
    embedder: Annotated[
        Choice, "A sentence-transformers model, or tokens (default: the one in the package)."
    ] = None,
    show: Annotated[int, "How many traps to print."] = 20,
    model: Annotated[
        str | Conditionals | None, "The model that made the run, if its name does not lead to it."
    ] = None,
    device: Annotated[str | None, "Another device than the run's."] = None,
    trust_remote_code: Trust = False,
) -> "Traps":
    """List the traps of a run: texts, durations, gaps, exact holding times and escapes.

    Paper A, table 5. The rolling detector is the paper's; the hamming one needs no embedding. A
    trap's text is the one in which the chain spent most of its steps; its gaps and its mean holding
    time are exact (in float64) for a random scan of single sites, so other runs are refused. Seen
    holding times leave out the steps that made the text a trap, and keep stays that were cut off.
    """
    opened = Run.of(run)
    one_of("the detector", detector, DETECTORS)
    check_steps(opened)
    check_device(device)
    check_kernel(opened.spec)
    check_ball(radius, shortest)
    check_count("reach", reach, least=0)
    check_count("number of traps to show", show, least=0)
    if detector != "hamming":
        check_window(opened, window, stride, threshold)
        check_embedder(embedder, opened)
    drawn = drawn_from(
        opened, model=model, device=device, trust_remote_code=trust_remote_code, precise=True
    )
    common: dict[str, Any] = {"shortest": shortest, "reach": reach, "device": drawn.device}
    common["known"] = {}  # what the model says of a text, asked once for both detectors
    found = []
    if detector != "hamming":
        rolling: dict[str, Any] = {"window": window, "stride": stride, "threshold": threshold}
        chosen = choose_embedder(
            opened, embedder, device=device, trust_remote_code=trust_remote_code
        )
        found += [rolling_traps(opened, drawn.conditionals, chosen, **rolling, **common)]
    if detector != "rolling":
        found += [hamming_traps(opened, drawn.conditionals, radius=radius, **common)]
    made = signed(opened.signature, detector=detector, shortest=shortest)
    return Traps(tuple(found), opened, drawn.notes, show, made)


def usual_traps(
    run: Run, conditionals: Conditionals, embedder: Choice, *, device: torch.device | str = "cpu"
) -> Catalogue:
    """By the paper's detector; by Hamming balls where that finds none, or has too few steps."""
    try:
        found = rolling_traps(run, conditionals, embedder, device=device)
        if found.traps:
            return found
    except GlauberError:  # the run is shorter than the window
        pass
    shortest = min(SHORTEST, max(20, run.steps // 10))
    return hamming_traps(run, conditionals, shortest=shortest, device=device)


@dataclass(frozen=True, eq=False)
class Traps(Result):
    """The traps of a run, by one detector or by two."""

    catalogues: tuple[Catalogue, ...]
    run: Run
    notes: tuple[str, ...]  # what to keep in mind, as sentences
    show: int  # traps of a detector that are printed
    signature: str

    @property
    def published(self) -> dict[str, Any] | None:
        """The paper's figures, for a run of the paper's model."""
        return PUBLISHED if Path(self.run.spec.model).name == PUBLISHED["model"] else None

    def to_dict(self) -> Record:
        return {
            "run": self.run.name,
            "catalogues": [each.to_dict() for each in self.catalogues],
            "published": plain(self.published),
            "notes": list(self.notes),
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        for catalogue in self.catalogues:
            yield from catalogue.lines(self.show)
        if self.published is not None:
            yield (
                "published for this model: 17 traps, 4 perfect, mean duration 671, 150 to 4,950; "
                "the mean gap predicts better"
            )
        yield from self.notes

    def frame(self) -> "pandas.DataFrame":
        """One row per trap."""
        import pandas

        rows = [
            {"detector": each.detector, **trap.row()}
            for each in self.catalogues
            for trap in each.traps
        ]
        return pandas.DataFrame(rows, columns=None if rows else ["detector", "chain", "text"])

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.metastability import plot_gaps_against_duration, plot_trap_timeline

        drawn = (("timeline", plot_trap_timeline), ("gaps", plot_gaps_against_duration))
        return {
            f"{each.detector}-{name}": draw(each)
            for each in self.catalogues
            for name, draw in drawn
        }
