"""A run: what every step of its chains did, and the texts after any step.

Events are stored by position, the special tokens included. People count sites from 0 without
special tokens and prefix: `run.first_site` is the position of that site 0.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.call import record_run
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import check_count
from glauber.foundation.study import Result, counted, plain
from glauber.runs.log import Log
from glauber.runs.spec import Spec

if TYPE_CHECKING:
    import arviz
    import pandas
    import plotly.graph_objects as go
    import xarray

    from glauber.models.vocabulary import Text, Vocabulary

SHOWN = 8  # chains written out for a person
BLOCK = 512  # steps exported at a time


class Run(Result):
    """A run, in a folder or in memory; everything but `save` only reads.

    `folder` is the folder of the run, or None if it is in memory. A run in memory is given as its
    log and the vocabulary of its model.
    """

    def __init__(self, source: "str | Path | Log", vocabulary: "Vocabulary | None" = None) -> None:
        self.log = source if isinstance(source, Log) else _open_folder(source)
        self.folder = self.log.folder
        self._model_vocabulary = vocabulary
        if self.log.call is not None:
            self.call = self.log.call

    @classmethod
    def of(cls, run: "Run | str | Path", *, generations: bool = False) -> "Run":
        """The run itself, or the one in that folder; of chains, unless generations are read too."""
        run = run if isinstance(run, Run) else cls(run)
        if run.spec.unmasking is not None and not generations:
            raise GlauberError(
                f"{run.name} is a generation and no chain: `glauber show` shows its passes, and "
                "the command that began it resumes it."
            )
        return record_run(run)

    @property
    def name(self) -> str:
        """The folder of the run, or "in memory"."""
        return "in memory" if self.folder is None else str(self.folder)

    @property
    def label(self) -> str:
        """The name of the run's folder."""
        return self.name if self.folder is None else self.folder.resolve().name

    def newest(self) -> "Run":
        """The run with the steps that are committed now."""
        log = self.log.newest()
        if log is self.log:
            return self
        run = Run(log)
        if "vocabulary" in vars(self):
            run.vocabulary = self.vocabulary
        return run

    def save(self, folder: str | Path) -> "Run":
        """Store a run that is in memory in a new folder; the run in that folder."""
        if self.folder is not None:
            raise GlauberError(f"the run is stored already, in {self.folder}.")
        from glauber.runs.folder_log import FolderLog

        log = self.log
        stored = FolderLog.create(
            folder,
            log.spec,
            log.tokens(0),
            log.free,
            log.n_slots,
            rejects="accepted" in log.fields,
            save_tokenizer=self.model_vocabulary.save,
            call=log.call,
        )
        with stored:
            for first in range(0, log.steps, log.segment_steps):
                last = min(first + log.segment_steps, log.steps)
                stored.append({name: log.read(name, first, last) for name in log.fields})
        return Run(folder)

    @property
    def spec(self) -> Spec:
        """How the run is made."""
        return self.log.spec

    @property
    def steps(self) -> int:
        """The steps that every chain has made."""
        return self.log.steps

    @property
    def fields(self) -> list[str]:
        """The fields of the events."""
        return self.log.fields

    @property
    def signature(self) -> str:  # type: ignore[override]
        """One line that identifies the run: its spec, and its starts by their digest."""
        return f"{self.spec.signature}|starts:{self._starts}"

    @cached_property
    def _starts(self) -> str:
        """Digest of the starting tokens and the free sites."""
        digest = hashlib.blake2b(digest_size=6)
        for rows in (self.tokens(0).astype("<i8"), self.free):
            digest.update(np.ascontiguousarray(rows).tobytes())
        return digest.hexdigest()

    @property
    def finished(self) -> bool:
        """Whether the run has all its planned steps."""
        return self.steps == self.spec.steps

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
        """What turns the run's tokens into text."""
        from glauber.models.vocabulary import Text

        tokenizer = self.log.tokenizer()
        return self.model_vocabulary.text if tokenizer is None else Text.open(tokenizer)

    @cached_property
    def model_vocabulary(self) -> "Vocabulary":
        """The vocabulary of the run's model, which also turns text into tokens."""
        from glauber.models.vocabulary import Vocabulary

        if (tokenizer := self.log.tokenizer()) is not None:
            return Vocabulary.open(tokenizer)
        assert self._model_vocabulary is not None
        return self._model_vocabulary

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Sites that are redrawn, (chains, length)."""
        return self.log.free

    @cached_property
    def first_site(self) -> int:
        """The position of site 0: special tokens and the prefix come before it."""
        frozen = {*self.spec.frozen}
        first_free_site = next(site for site in count() if site not in frozen)
        return max(0, int(self.free.argmax(axis=1).min()) - first_free_site)

    @cached_property
    def text_spans(self) -> list[tuple[int, int]]:
        """The positions of each text, first <= position < last, without special tokens around."""
        rows = zip(self.tokens(0), self.free, strict=True)
        return [text_span(self.vocabulary, *row) for row in rows]

    @cached_property
    def hidden_tokens(self) -> NDArray[np.int64]:
        """The tokens of a generation that stand for hidden ones."""
        return np.unique(self.tokens(0)[self.free])

    def events(self) -> "xarray.Dataset":
        """The events as variables (chain, step, slot), the start and the free sites."""
        import xarray

        arrays = {name: (("chain", "step", "slot"), self.read(name)) for name in self.fields}
        sites = {"start": self.tokens(0), "free": self.free}
        return xarray.Dataset(
            arrays | {name: (("chain", "position"), values) for name, values in sites.items()}
        )

    def read(self, name: str, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """One field of the events for the steps first <= step < last: (chains, steps, slots)."""
        return self.log.read(name, first, last)

    def tokens(self, step: int | None = None) -> NDArray[np.int64]:
        """The tokens of every chain after that many steps (default: the last): (chains, length)."""
        return self.log.tokens(step).astype(np.int64)

    def states(self, every: int = 1) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """(step, tokens (chains, length)) at step 0, every, 2 every, … in one pass."""
        return ((step, tokens.astype(np.int64)) for step, tokens in self.log.states(every))

    def text(self, chain: int = 0, step: int | None = None) -> str:
        """The text of one chain after that many steps (default: the last)."""
        return self.decode(self.tokens(step)[self.check_chain(chain)])

    def texts(self, *, every: int) -> list[list[str]]:
        """The texts of each chain at step 0, every, 2 every, …"""
        decode = self.decoder()
        snapshots = [[decode(row) for row in tokens] for _, tokens in self.states(every)]
        return [list(chain) for chain in zip(*snapshots, strict=True)]

    def decode(self, tokens: Iterable[int]) -> str:
        """One row of this run's tokens as text."""
        return self.vocabulary.decode(tokens)

    def decoder(self) -> Callable[[NDArray[Any]], str]:
        """The same as a function that decodes equal rows once: many texts do not change."""
        texts: dict[bytes, str] = {}

        def decode(row: NDArray[Any]) -> str:
            key = row.tobytes()
            if key not in texts:
                texts[key] = self.decode(row)
            return texts[key]

        return decode

    def check_chain(self, chain: int) -> int:
        """That chain's number, if there is such a chain."""
        check_count("number of the chain", chain, least=0, most=10**30)
        if chain >= self.n_chains:
            raise GlauberError(
                f"there is no chain {chain}: the run has chains 0 to {self.n_chains - 1}."
            )
        return chain

    def verify(self) -> None:
        """Compare every file of a stored run with its checksum; refuse a run that is damaged."""
        self.log.verify()

    def to_dict(self) -> dict[str, Any]:
        """A run in one JSON object."""
        return {
            "run": plain(self.folder),
            "signature": self.signature,
            "chains": self.n_chains,
            "steps": self.steps,
            "planned": self.spec.steps,
            "finished": self.finished,
            "temperatures": plain(self.temperatures),
            "changed": self.share_changed,
            "acceptance": self.acceptance,
            "texts": [self.decode(row) for row in self.tokens()],
        }

    def lines(self) -> Iterable[str]:
        """Where a few chains began and where they are now."""
        first, last = self.tokens(0), self.tokens()
        several = len(set(self.spec.temperatures)) > 1
        for chain in range(min(self.n_chains, SHOWN)):
            yield f"chain {chain}" + (f" at {self.temperatures[chain]:g}" if several else "")
            yield f"  began  {self.decode(first[chain])}"
            yield f"  now    {self.decode(last[chain])}"
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
        if self.folder is not None:
            yield f"run: {self.folder}"

    def where(self) -> str:
        """How far an unfinished run is, and how to resume it."""
        resume = "glauber.resume(run)" if self.folder is None else f"glauber resume {self.folder}"
        return f"stopped at step {self.steps:,} of {self.spec.steps:,}; resume with: {resume}"

    def frame(self, *, events: bool = False) -> "pandas.DataFrame":
        """One row per chain: where it began, where it is, what it did; or one row per event."""
        import pandas

        if events:
            columns = self.event_columns()
            return pandas.DataFrame(columns | {"site": columns["site"] - self.first_site})
        first, last = self.tokens(0), self.tokens()
        redrawn = self.read("site") >= 0
        spread = np.where(redrawn, self.read("entropy"), 0.0).sum(axis=(1, 2))
        with np.errstate(invalid="ignore"):  # a run of no steps has no shares
            entropy = spread / redrawn.sum(axis=(1, 2))
            changed = self.read("changed").any(axis=2).sum(axis=1) / np.float64(self.steps)
        return pandas.DataFrame(
            {
                "chain": np.arange(self.n_chains),
                "temperature": self.temperatures,
                "steps": self.steps,
                "changed": changed,
                "entropy": entropy,
                "kept": ((first == last) & self.free).sum(axis=1) / self.free.sum(axis=1),
                "began": [self.decode(row) for row in first],
                "text": [self.decode(row) for row in last],
            }
        )

    def event_columns(self, first: int = 0, last: int | None = None) -> dict[str, Any]:
        """The events of the steps first <= step < last, an entry each, by position as stored."""
        arrays = {name: self.read(name, first, last) for name in self.fields}
        chain, step, slot = np.nonzero(arrays["site"] >= 0)
        columns: dict[str, Any] = {"chain": chain, "step": step + first + 1}
        columns |= {name: values[chain, step, slot] for name, values in arrays.items()}
        tokens, index = np.unique(columns["token"], return_inverse=True)
        spellings = np.array([self.vocabulary.spell(token) for token in tokens.tolist()], object)
        return columns | {"spelling": spellings[index]}

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.runs import run_figures

        return run_figures(self)

    def to_arviz(self) -> "arviz.InferenceData":
        """Statistics of the text along each chain, as ArviZ reads them."""
        from glauber.runs.export import to_arviz

        return to_arviz(self)

    def __repr__(self) -> str:
        state = "finished" if self.finished else f"of {self.spec.steps}"
        many = f"{counted(self.n_chains, 'chain')}, {self.steps} steps"
        return f"<Run {self.name}: {many}, {state}>"


def _open_folder(folder: str | Path) -> Log:
    from glauber.runs.folder_log import FolderLog

    return FolderLog(folder)


Folder = Annotated[Run | str | Path, "Folder of a run."]


def text_span(
    vocabulary: "Text", tokens: NDArray[np.int64], free: NDArray[np.bool_]
) -> tuple[int, int]:
    """The positions of a text, first <= position < last, without the special tokens around it.

    tokens and free are (length,), as the chain began.
    """
    spelled = [i for i, token in enumerate(tokens) if token >= 0 and vocabulary.decode([token])]
    positions = spelled + np.nonzero(free)[0].tolist()
    return min(positions), max(positions) + 1
