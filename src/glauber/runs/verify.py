"""Is all of a run what was committed? Everything is read; nothing is changed."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glauber.result import Result, counted, plain, signature, study
from glauber.runs.examine import Damage, examine
from glauber.runs.run import Run
from glauber.runs.spec import FORMAT

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

Folder = Annotated[Run | str | Path, "Folder of a run."]


@study
def verify(run: Folder) -> "Verified":
    """Read all of a run and say which parts are what was committed.

    Every chunk, mark and small file has a checksum. The command's exit code is 1 if something is
    damaged. Runs of earlier formats have no checksums: they are replayed from mark to mark, which
    shows lost, swapped and torn parts, but no figure that is wrong and possible.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    found = examine(folder)
    return Verified(
        folder,
        None if found.spec is None else found.spec.format,
        None if found.commit is None else found.commit.steps,
        found.sound,
        None if found.spec is None else found.spec.steps,
        found.finished,
        tuple(found.damages),
        signature(study="verify") if found.spec is None else found.spec.signature,
    )


@dataclass(frozen=True, eq=False)
class Verified(Result):
    """What of a run is sound."""

    folder: Path  # of the run
    format: int | None  # None where it is unknown, as below
    steps: int | None  # committed
    sound: int  # steps of the longest sound beginning
    planned: int | None  # steps
    finished: bool  # whether the run reached them
    damages: tuple[Damage, ...]
    signature: str

    @property
    def checksums(self) -> bool:
        """Whether the run has checksums, or a replay was all there was."""
        return self.format is not None and self.format >= FORMAT

    @property
    def exit_code(self) -> int:
        return 1 if self.damages else 0

    def to_dict(self) -> dict[str, Any]:
        return plain(
            {
                "run": str(self.folder),
                "format": self.format,
                "checksums": self.checksums,
                "steps": self.steps,
                "sound": self.sound,
                "planned": self.planned,
                "finished": self.finished,
                "damages": [one._asdict() for one in self.damages],
                "signature": self.signature,
            }
        )

    def lines(self) -> Iterable[str]:
        steps = "unknown steps" if self.steps is None else counted(self.steps, "step")
        planned = "an unknown number" if self.planned is None else f"{self.planned:,}"
        state = "finished" if self.finished else f"{planned} planned"
        yield f"{self.folder}: format {self.format or 'unknown'}, {steps} committed, {state}"
        yield from (f"damaged: {one} ({one.kind})" for one in self.damages)
        if self.damages:
            kept = f"steps 0 to {self.sound:,} are sound" if self.sound else "no step is sound"
            if self.planned is None:
                why = "nothing says how they were made: put run.json back from a backup"
                yield f"{kept}, but {why}"
            else:
                yield f"{kept}; keep what is sound with: glauber repair {self.folder}"
        elif self.checksums:
            yield "sound: all of it is what was committed"
        else:
            yield "sound as far as a replay can tell: this format has no checksums;"
            yield f"it gets them by: glauber repair {self.folder}"

    def frame(self) -> "pandas.DataFrame":
        """One row per damaged part."""
        import pandas

        return pandas.DataFrame(list(self.damages), columns=list(Damage._fields))

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.runs import plot_damages

        return {"damages": plot_damages(self.damages, steps=self.steps or 0)}
