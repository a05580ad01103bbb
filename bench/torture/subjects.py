"""The runs that are tortured: small ones of every kind, made the same each time."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import glauber
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.table import Joint
from glauber.generation import stored
from glauber.runs import store
from glauber.sampling import session

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests" / "runs" / "before" / "model"
EVERY = 16  # steps of a chunk
STEPS = 40
TEXTS = ["the cat sat on the mat .", "a big dog ran under the old tree .", "is it red or blue !"]


@contextmanager
def small_parts(seconds: float = math.inf) -> Iterator[None]:
    """Chunks of 16 steps; with no seconds, every step or pass is a commit of its own.

    Otherwise the commits come after 1, 9, 16, 32 … steps. Both do not depend on the clock.
    """
    with ExitStack() as stack:
        for place, name, value in (
            (store, "chunk_steps", lambda n_chains, n_slots: EVERY),
            (session, "COMMIT_SECONDS", seconds),
            (stored, "COMMIT_SECONDS", seconds),
        ):
            stack.enter_context(patch.object(place, name, value))
        yield


@cache
def tiny() -> MaskedLM:
    """A tiny BERT, loaded once."""
    return MaskedLM.load(str(MODEL), device="cpu")


@cache
def table() -> Joint:
    """A law of one's own over three sites of four tokens."""
    return Joint.random(4, 3, seed=2)


@dataclass(frozen=True)
class Subject:
    """A kind of run: how it is begun, resumed and made longer."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    model: Callable[[], Any] = tiny
    texts: tuple[str, ...] = tuple(TEXTS)
    writes: bool = False  # a generation

    def begin(self, folder: Path, **more: Any) -> None:
        """The whole run in a new folder; a generation that is there is resumed."""
        options = self.options | more
        if self.writes:
            glauber.generate(self.model(), out=folder, **options)
        else:
            options = {"steps": STEPS, "memo": 0} | options
            glauber.sample(self.model(), list(self.texts), out=folder, **options)

    def resume(self, folder: Path) -> None:
        """Goes on to the planned end."""
        if self.writes:
            self.begin(folder)
        else:
            glauber.resume(folder, model=self.model(), memo=0)

    def extend(self, folder: Path, steps: int = STEPS + 13) -> None:
        """Makes it longer; a generation has its end."""
        if self.writes:
            self.begin(folder)
        else:
            glauber.extend(folder, steps=steps, model=self.model(), memo=0)

    def stop(self, folder: Path, after: int) -> None:
        """A run that was interrupted after so many steps."""
        if self.writes:
            with patch.object(stored, "passes", _interrupted(after)):
                try:
                    self.begin(folder)
                except KeyboardInterrupt:
                    return
        else:
            self.begin(folder, session=_Stopping(after=after))


@dataclass
class _Stopping(session.Session):
    after: int = 0

    def count(self, *args: Any) -> None:
        super().count(*args)
        self.after -= 1
        self.stopping = self.after <= 0


def _interrupted(after: int) -> Callable[..., Iterator[Any]]:
    whole = stored.passes

    def passes(*args: Any) -> Iterator[Any]:
        yield from islice(whole(*args), after)
        raise KeyboardInterrupt

    return passes


HEATS = [0.1, 0.7, 4.0]
WRITE = {"length": 18, "chains": 2, "order": "random", "temperature": 0.9, "seed": 3}
CONSTRAINTS = {
    "max_changes": 3, "freeze": "1", "tie": "0=4", "allow": "0:the|a|cat", "bias": "2:dog=2",
}  # fmt: skip
SUBJECTS = {
    one.name: one
    for one in (
        Subject("plain", {"seed": 3, "temperature": 1.3}),
        Subject("one chain", {"seed": 4, "chains": 1, "steps": 37}),
        Subject("eight chains", {"seed": 5, "chains": 8, "temperature": 1.5}),
        Subject("blocks", {"seed": 6, "chains": 2, "scan": "block:3", "prefix": "the dog"}),
        Subject(
            "adaptive", {"seed": 4, "scan": "adaptive:confidence:2", "temperature": [0.1, 0.7, 4.0]}
        ),
        Subject("constrained", {"seed": 8, "chains": 2} | CONSTRAINTS, texts=(TEXTS[0],)),
        Subject("table", {"seed": 9, "chains": 2}, table, ("012", "330")),
        Subject("generation", WRITE | {"remask": "conf", "correct": 1}, writes=True),
    )
}


def to_earlier_format(folder: Path) -> None:
    """The same run as versions before checksums wrote it."""
    header = json.loads((folder / "run.json").read_text())
    if header["format"] < 4:
        return
    header.pop("digest")
    header["format"] = 2 if header.get("unmasking") else 3 if header.get("constraints") else 1
    (folder / "run.json").write_text(json.dumps(header, indent=1, ensure_ascii=False) + "\n")
    steps = json.loads((folder / "committed.json").read_text())["steps"]
    (folder / "committed.json").write_text(json.dumps({"steps": steps}, indent=1) + "\n")
    for copy in ("run.copy.json", "committed.copy.json"):
        (folder / copy).unlink()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run except the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def differences(folder: Path, other: Path) -> list[str]:
    """The files that are not the same in two runs."""
    one, two = contents(folder), contents(other)
    return sorted(name for name in one | two if one.get(name) != two.get(name))


def sound(folder: Path) -> bool:
    """Whether `verify` calls a run sound."""
    try:
        verify = getattr(glauber, "verify", None)
        if verify is None:
            glauber.Run(folder).verify()
            return True
        return not verify(folder).exit_code
    except glauber.GlauberError:
        return False
