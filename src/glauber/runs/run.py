"""What does a stored run say? Everything here only reads.

Events are stored by position, the special tokens included. People count sites from 0 without
special tokens and prefix: `run.first_site` is the position of that site 0.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.progress import check_count
from glauber.result import Result, counted, plain
from glauber.runs.earlier import Replayed
from glauber.runs.integrity import EVENTS, TOKENIZER, Checked, damaged, refuse_files
from glauber.runs.replay import replay
from glauber.runs.spec import FORMAT, Spec, read_spec
from glauber.runs.store import (
    check_together,
    current_commit,
    finish_mark,
    open_group,
    refuse_missing,
)

if TYPE_CHECKING:
    import arviz
    import pandas
    import plotly.graph_objects as go
    import xarray

    from glauber.conditionals.vocabulary import Text

BLOCK = 512  # steps read at a time
SHOWN = 8  # chains written out for a person


class Run(Result):
    """A run's folder, opened for reading."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)  # of the run
        self.spec: Spec = read_spec(self.folder)
        self._stored = self._open()
        self.commit = self._stored.commit  # what the writer calls safe
        self.fields = self._stored.fields  # of the events
        self.steps = self.commit.steps  # of every chain, so far
        self.mark_every = self.commit.every  # steps between two marks
        self._seen: dict[int, NDArray[np.int64]] = {}
        self._before: Run | str | Path | None = None

    @classmethod
    def of(cls, run: "Run | str | Path", *, generations: bool = False) -> "Run":
        """The run itself, or the one in that folder; of chains, unless generations are read too."""
        found = run if isinstance(run, Run) else cls(run)
        if found.spec.unmasking is not None and not generations:
            raise GlauberError(
                f"{found.folder} is a generation and no chain: `glauber show` shows its passes, "
                "and the command that began it resumes it."
            )
        return found

    def instead_of(self, other: "Run | str | Path") -> "Run":
        """This run, which keeps the other one: a temporary folder is deleted with its first run."""
        self._before = other
        return self

    def _open(self) -> Checked:
        """The arrays, which know what was committed."""
        commit = current_commit(self.folder)
        if commit.of or self.spec.format >= FORMAT:
            check_together(self.folder, self.spec, commit)
            return Checked(self.folder, open_group(self.folder), commit)
        found = Replayed(self.folder, open_group(self.folder), commit, self.spec)
        refuse_missing(self.folder, found.group, found.commit)
        return found

    def check_files(self) -> None:
        """Refuses a run of which a chunk is missing, without reading the others."""
        refuse_missing(self.folder, self._stored.group, self.commit)

    @property
    def signature(self) -> str:  # type: ignore[override]
        """One line that says how the run was made."""
        return self.spec.signature

    @property
    def finished(self) -> bool:
        """Whether the run reached its planned number of steps, and its mark says so."""
        return finish_mark(self.folder) == self.steps == self.spec.steps

    @property
    def n_chains(self) -> int:
        """The number of chains."""
        return self.spec.chains

    @property
    def temperatures(self) -> NDArray[np.float64]:
        """The temperature of each chain, (chains,)."""
        return np.array(self.spec.temperatures, np.float64)

    @property
    def share_changed(self) -> float:
        """The share of steps that changed a token."""
        return float(self.read("changed").any(axis=2).mean()) if self.steps else 0.0

    @property
    def acceptance(self) -> float | None:
        """The share accepted of the proposals to change a token; None where none is rejected."""
        if "accepted" not in self.fields:
            return None
        changed, rejected = self.read("changed").sum(), (~self.read("accepted")).sum()
        return float(changed / max(1, changed + rejected))

    @cached_property
    def vocabulary(self) -> "Text":
        """What turns this run's tokens into text."""
        from glauber.conditionals.vocabulary import Text

        self._check_tokenizer()
        return Text.open(self.folder / TOKENIZER)

    def _check_tokenizer(self) -> None:
        if self.commit.of:
            hope = f"`glauber repair {self.folder}` writes it again from the run's model"
            refuse_files(self.folder, self.commit, inside=TOKENIZER, hope=hope)

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Sites that are redrawn, (chains, length)."""
        free = self._stored.free()
        if not free.any(axis=1).all():
            raise damaged(self.folder, "a chain has no free site")
        return free

    @cached_property
    def first_site(self) -> int:
        """The position of site 0: special tokens and the prefix stand before it."""
        first = int(self.free.argmax(axis=1).min())
        rank = next(
            site for site in range(len(self.spec.frozen) + 1) if site not in self.spec.frozen
        )
        return max(0, first - rank)

    def events(self) -> "xarray.Dataset":
        """The committed events: (chain, step, slot) variables, verified and opened lazily."""
        import xarray

        self.verify()
        try:
            # The group's header has all shapes of one commit, also beside a writer.
            found = xarray.open_zarr(self.folder / EVENTS, consolidated=True)
            marks = 1 + self.steps // self.mark_every
            wanted = found[[*self.fields, "tokens", "free"]]
            return wanted.isel(step=slice(0, self.steps), mark=slice(0, marks))
        except Exception as error:  # what xarray raises depends on what was broken meanwhile
            raise damaged(self.folder, f"{EVENTS} cannot be read") from error

    def read(self, name: str, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """One field of the events for the steps first <= step < last: (chains, steps, slots)."""
        last = self.steps if last is None else last
        return self._stored.events(name, first, last)

    def tokens(self, step: int | None = None) -> NDArray[np.int64]:
        """The tokens of every chain after that many steps (default: the last): (chains, length)."""
        step = self.steps if step is None else step
        if step in self._seen:
            return self._seen[step].copy()
        if not 0 <= step <= self.steps:
            raise GlauberError(
                f"step {step} is outside the run, which has steps 0 to {self.steps}."
            )
        first = step // self.mark_every * self.mark_every
        tokens = self._stored.mark(step // self.mark_every).astype(np.int64)
        replay(tokens, self.read("site", first, step), self.read("token", first, step))
        if len(self._seen) < 64:  # views of one chain after another ask for the same steps
            self._seen[step] = tokens.copy()
        return tokens

    def states(self, every: int = 1) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """(step, tokens (chains, length)) at step 0, every, 2 every, … in one pass."""
        check_count("number of steps between states", every, most=10**15)
        tokens = self.tokens(0)
        yield 0, tokens.copy()
        for first in range(0, self.steps, BLOCK):
            last = min(first + BLOCK, self.steps)
            sites, new = self.read("site", first, last), self.read("token", first, last)
            for i in range(last - first):
                replay(tokens, sites[:, i : i + 1], new[:, i : i + 1])
                if (first + i + 1) % every == 0:
                    yield first + i + 1, tokens.copy()

    def text(self, chain: int = 0, step: int | None = None) -> str:
        """The text of one chain after that many steps (default: the last)."""
        return self.spelled(self.tokens(step)[self.check_chain(chain)])

    def texts(self, *, every: int) -> list[list[str]]:
        """The texts of each chain at step 0, every, 2 every, …"""
        known: dict[bytes, str] = {}
        found: list[list[str]] = [[] for _ in range(self.n_chains)]
        for _, tokens in self.states(every):
            for chain, row in enumerate(tokens):
                key = row.tobytes()
                if key not in known:
                    known[key] = self.spelled(row)
                found[chain].append(known[key])
        return found

    def spelled(self, tokens: Iterable[int]) -> str:
        """One row of this run's tokens as text."""
        return self.vocabulary.decode(tokens)

    def check_chain(self, chain: int) -> int:
        """That chain's number, if there is such a chain."""
        check_count("number of the chain", chain, least=0, most=10**30)
        if chain >= self.n_chains:
            raise GlauberError(
                f"there is no chain {chain}: the run has chains 0 to {self.n_chains - 1}."
            )
        return chain

    def verify(self) -> None:
        """Reads all of the run and refuses one that is damaged.

        Runs of earlier formats have no digests: they are replayed against their marks, which sees
        swapped and lost parts; figures that are wrong but possible stay unseen.
        """
        self._stored.check()
        self._check_tokenizer()

    def to_dict(self) -> dict[str, Any]:
        """A run in one JSON object."""
        return {
            "run": str(self.folder),
            "signature": self.signature,
            "chains": self.n_chains,
            "steps": self.steps,
            "planned": self.spec.steps,
            "finished": self.finished,
            "temperatures": plain(self.temperatures),
            "changed": self.share_changed,
            "acceptance": self.acceptance,
            "texts": [self.spelled(row) for row in self.tokens()],
        }

    def lines(self) -> Iterable[str]:
        """Where a few chains began and where they are now."""
        first, last = self.tokens(0), self.tokens()
        several = len(set(self.spec.temperatures)) > 1
        for chain in range(min(self.n_chains, SHOWN)):
            yield f"chain {chain}" + (f" at {self.temperatures[chain]:g}" if several else "")
            yield f"  began  {self.spelled(first[chain])}"
            yield f"  now    {self.spelled(last[chain])}"
        if self.n_chains > SHOWN:
            yield f"… and {counted(self.n_chains - SHOWN, 'more chain')}"
        yield (
            f"{counted(self.n_chains, 'chain')}, {counted(self.steps, 'step')} each, "
            f"{self.share_changed:.1%} of them changed a token"
        )
        if (accepted := self.acceptance) is not None:
            yield f"{accepted:.1%} of the proposals to change one were accepted"
        if not self.finished:
            yield self.where()
        yield f"run: {self.folder}"

    def where(self) -> str:
        """Where an unfinished run stands, and how to go on."""
        return (
            f"stopped at step {self.steps:,} of {self.spec.steps:,}; "
            f"resume with: glauber resume {self.folder}"
        )

    def frame(self, *, events: bool = False) -> "pandas.DataFrame":
        """One row per chain: where it began, where it is, what it did; or one row per event."""
        import pandas

        if events:
            return pandas.DataFrame(self._event_columns())
        first, last = self.tokens(0), self.tokens()
        there = self.read("site") >= 0
        spread = np.where(there, self.read("entropy"), 0.0).sum(axis=(1, 2))
        with np.errstate(invalid="ignore"):  # a run of no steps has no shares
            entropy = spread / there.sum(axis=(1, 2))
            changed = self.read("changed").any(axis=2).sum(axis=1) / np.float64(self.steps)
        return pandas.DataFrame(
            {
                "chain": np.arange(self.n_chains),
                "temperature": self.temperatures,
                "steps": self.steps,
                "changed": changed,
                "entropy": entropy,
                "kept": ((first == last) & self.free).sum(axis=1) / self.free.sum(axis=1),
                "began": [self.spelled(row) for row in first],
                "text": [self.spelled(row) for row in last],
            }
        )

    def _event_columns(self) -> dict[str, Any]:
        parts = {name: self.read(name) for name in self.fields}
        chain, step, slot = np.nonzero(parts["site"] >= 0)
        columns: dict[str, Any] = {"chain": chain, "step": step + 1}
        columns |= {name: values[chain, step, slot] for name, values in parts.items()}
        columns["site"] = columns["site"] - self.first_site
        tokens, places = np.unique(columns["token"], return_inverse=True)
        spelled = np.array([self.vocabulary.spell(int(token)) for token in tokens], dtype=object)
        return columns | {"spelling": spelled[places] if len(tokens) else []}

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.runs import run_figures

        return run_figures(self)

    def to_arviz(self) -> "arviz.InferenceData":
        """Statistics of the text along each chain, as ArviZ reads them."""
        from glauber.runs.export import to_arviz

        return to_arviz(self)

    def __repr__(self) -> str:
        state = "finished" if self.finished else f"of {self.spec.steps}"
        many = f"{counted(self.n_chains, 'chain')}, {self.steps} steps"
        return f"<Run {self.folder}: {many}, {state}>"
