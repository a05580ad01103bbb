"""Everything that can be read of a run, each by a reader of its own."""

import dataclasses
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import glauber
from glauber.errors import DamagedRun, GlauberError
from glauber.runs.curves import curves
from glauber.runs.export import export
from glauber.runs.film import film, whole_film
from glauber.runs.run import Run
from glauber.runs.snapshots import snapshots

Seen = dict[str, Any]  # what each reader saw, or the error that it ended with


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A reader that said no: in a sentence about damage, in another one, or by breaking down."""

    kind: str  # damaged, refused or crashed
    why: str


def observe(folder: Path, names: Iterable[str]) -> Seen:
    """What each reader sees of a run; each opens it anew, so that none trusts another's checks."""
    return {name: _seen(READERS[name], folder) for name in names}


def _seen(reader: Callable[[Run], Any], folder: Path) -> Any:
    try:
        return frozen(reader(Run(folder)))
    except DamagedRun as error:
        return Refusal("damaged", str(error))
    except GlauberError as error:
        return Refusal("refused", str(error))
    except Exception as error:  # whatever it is, it is no plain sentence
        return Refusal("crashed", f"{type(error).__name__}: {error}")


def frozen(value: Any) -> Any:
    """Something that equals another only if every bit of both does."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, dict):
        return tuple((key, frozen(one)) for key, one in value.items())
    if isinstance(value, list | tuple):
        return tuple(frozen(one) for one in value)
    return value if isinstance(value, str | bytes) else repr(value)


def _field(name: str) -> Callable[[Run], Any]:
    """A field in three parts, which begin and end inside chunks, and as a whole."""

    def read(run: Run) -> Any:
        if name not in run.fields:
            return None
        ends = [0, run.steps // 3, 2 * run.steps // 3, run.steps]
        parts = [run.read(name, *ends[i : i + 2]) for i in (2, 0, 1)]
        return [*parts, Run(run.folder).read(name)]

    return read


def _exported(to: str) -> Callable[[Run], Any]:
    def read(run: Run) -> Any:
        with tempfile.TemporaryDirectory() as place:
            export(run, to=to, out=Path(place) / "out")
            return (Path(place) / "out").read_bytes()

    return read


def _film(run: Run) -> Any:
    whole = dataclasses.asdict(whole_film(run))
    late = dataclasses.asdict(film(run, first=run.steps // 2, count=5))
    del late["begin_log_prob"]  # not a number where the chunks before cannot be read
    return [whole, late]


def _events(run: Run) -> Any:
    found = run.events().load()
    return {str(name): one.values for name, one in found.items()}


def _states(run: Run) -> Any:
    return [tokens for _, tokens in run.states()]


def _tokens(run: Run) -> Any:
    late = [run.tokens(step) for step in range(run.steps, -1, -5)]
    return [*late, *(Run(run.folder).tokens(step) for step in (0, run.steps))]


FIELDS = ("site", "token", "changed", "log_prob_old", "log_prob_new", "entropy", "accepted")
READERS: dict[str, Callable[[Run], Any]] = {
    **{name: _field(name) for name in FIELDS},
    "free": lambda run: [run.free, run.first_site],
    "spec": lambda run: [dataclasses.asdict(run.spec), run.signature],
    "end": lambda run: [run.steps, run.finished, run.mark_every],
    "tokens": _tokens,
    "states": _states,
    "text": lambda run: [run.text(0, 0), run.text(run.n_chains - 1)],
    "texts": lambda run: run.texts(every=3),
    "print": lambda run: [str(run), run.to_dict()],
    "frame": lambda run: [run.frame().to_csv(), run.frame(events=True).to_csv()],
    "show": lambda run: str(glauber.show(run.folder, chain=run.n_chains - 1)),
    "snapshots": lambda run: dataclasses.asdict(snapshots(run))["texts"],
    "film": _film,
    "curves": lambda run: curves(run).to_dict(),
    "events": _events,
    "jsonl": _exported("jsonl"),
    "text file": _exported("text"),
    "parquet": _exported("parquet"),
}
