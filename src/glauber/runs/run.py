"""What does a stored run say? Everything here only reads."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.runs.spec import Spec, read_spec
from glauber.runs.store import EVENTS, FIELDS, FINISH, committed_steps, open_group

if TYPE_CHECKING:
    import arviz
    import xarray

    from glauber.conditionals.vocabulary import Text


class Run:
    """A run's folder, opened for reading."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.spec: Spec = read_spec(self.folder)
        self.steps = committed_steps(self.folder)
        self._group = open_group(self.folder)
        self._seen: dict[int, NDArray[np.int64]] = {}
        self._check()

    @classmethod
    def of(cls, run: "Run | str | Path") -> "Run":
        """The run itself, or the one in that folder."""
        return run if isinstance(run, Run) else cls(run)

    def _check(self) -> None:
        for name in (*FIELDS, "tokens", "free"):
            if name not in self._group:
                raise GlauberError(f"the run {self.folder} is damaged: {EVENTS} lacks {name}.")
        if self._array("site").shape[1] < self.steps:
            raise GlauberError(f"the run {self.folder} is damaged: committed steps are missing.")

    @property
    def finished(self) -> bool:
        """Whether the run reached its planned number of steps."""
        return (self.folder / FINISH).is_file()

    @property
    def n_chains(self) -> int:
        return self.spec.chains

    @cached_property
    def vocabulary(self) -> "Text":
        """What turns this run's tokens into text."""
        from glauber.conditionals.vocabulary import Text

        return Text.open(self.folder / "tokenizer")

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Sites that are redrawn, (chains, length)."""
        return np.asarray(self._array("free")[:])

    def events(self) -> "xarray.Dataset":
        """The committed events: (chain, step, slot) variables, opened lazily."""
        import xarray

        return xarray.open_zarr(self.folder / EVENTS).isel(step=slice(0, self.steps))

    def read(self, name: str, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """One field of the events for the steps first <= step < last: (chains, steps, slots)."""
        last = self.steps if last is None else last
        try:
            values = np.asarray(self._array(name)[:, first:last])
        except Exception as error:
            raise GlauberError(
                f"the run {self.folder} is damaged: {name} cannot be read."
            ) from error
        if name == "site" and (values[:, :, 0] < 0).any():
            raise GlauberError(f"the run {self.folder} is damaged: committed steps are missing.")
        return values

    def tokens(self, step: int | None = None) -> NDArray[np.int64]:
        """The tokens of every chain after that many steps (default: the last): (chains, length)."""
        step = self.steps if step is None else step
        if step in self._seen:
            return self._seen[step].copy()
        if not 0 <= step <= self.steps:
            raise GlauberError(
                f"step {step} is outside the run, which has steps 0 to {self.steps}."
            )
        every = int(self._group.attrs["steps_between_marks"])  # type: ignore[arg-type]
        first = step // every * every
        tokens = np.asarray(self._array("tokens")[step // every]).astype(np.int64)
        replay(tokens, self.read("site", first, step), self.read("token", first, step))
        if len(self._seen) < 64:  # looks at one chain after another ask for the same steps
            self._seen[step] = tokens.copy()
        return tokens

    def text(self, chain: int = 0, step: int | None = None) -> str:
        """The text of one chain after that many steps (default: the last)."""
        return self.vocabulary.decode(self.tokens(step)[self.check_chain(chain)])

    def check_chain(self, chain: int) -> int:
        """That chain's number, if there is such a chain."""
        if not 0 <= chain < self.n_chains:
            raise GlauberError(
                f"there is no chain {chain}: the run has chains 0 to {self.n_chains - 1}."
            )
        return chain

    def to_arviz(self) -> "arviz.InferenceData":
        """Statistics of the text along each chain, as ArviZ reads them."""
        from glauber.runs.export import to_arviz

        return to_arviz(self)

    def __repr__(self) -> str:
        state = "finished" if self.finished else f"of {self.spec.steps}"
        return f"<Run {self.folder}: {self.n_chains} chains, {self.steps} steps, {state}>"

    def _array(self, name: str) -> Any:
        return self._group[name]


def replay(tokens: NDArray[Any], sites: NDArray[Any], new: NDArray[Any]) -> None:
    """Applies events (chains, steps, slots) to tokens (chains, length), in place."""
    chains = np.arange(len(tokens))
    for step in range(sites.shape[1]):
        for slot in range(sites.shape[2]):
            there = sites[:, step, slot] >= 0
            tokens[chains[there], sites[there, step, slot]] = new[there, step, slot]
