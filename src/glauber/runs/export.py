"""How does a run leave for other tools: ArviZ, Parquet, JSON lines, plain text, FASTA?"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from glauber.conditionals.texts import Row, fasta
from glauber.disk import check_new, draft_of, sync
from glauber.errors import GlauberError
from glauber.progress import check_count
from glauber.result import Result, one_of, plain, study
from glauber.runs.again import start_texts
from glauber.runs.run import BLOCK, Run

if TYPE_CHECKING:
    import arviz
    import pandas
    import plotly.graph_objects as go

__all__ = ["Exported", "export", "forced", "survival", "to_arviz", "trajectory"]


@study
def export(
    run: Annotated[Run | str | Path, "Folder of a run."],
    *,
    to: Annotated[str, "arviz, parquet, jsonl, text, fasta or starts."],
    out: Annotated[str | Path, "File to write; an existing one is kept."],
    every: Annotated[int, "jsonl: one object every so many steps."] = 1,
) -> "Exported":
    """Write a run as ArviZ netCDF, Parquet, JSON lines, plain text or FASTA.

    text is the last text of each chain, one a line, as `--from` reads them; starts are the texts
    that the chains began from, without the prefix; fasta is as text, for models of letters, with
    the names that the starts had; parquet has a row per event, by position
    as it is stored; jsonl counts sites from 0 without special tokens and prefix. The whole run is
    compared with its checksums first: one that is damaged is not exported.
    """
    one_of("the format", to, WRITERS)
    check_count("number of steps between objects", every, most=10**15)
    path = Path(out)
    check_new(path, "file")
    opened = Run.of(run, generations=True)
    opened.verify()
    try:
        with draft_of(path) as draft:
            WRITERS[to](opened, draft, every)
        sync(path.absolute().parent)
    except OSError as error:
        raise GlauberError(f"{path} cannot be written: {error.strerror or error}.") from error
    return Exported(opened, to, path, path.stat().st_size, opened.signature)


@dataclass(frozen=True, eq=False)
class Exported(Result):
    """A file that holds a run for other tools."""

    run: Run
    to: str
    path: Path  # the file
    size: int  # bytes
    signature: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": plain(self.run.folder),
            "to": self.to,
            "out": str(self.path),
            "bytes": self.size,
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        yield f"{self.path}: {self.size / 1e6:,.2f} MB"

    def frame(self) -> "pandas.DataFrame":
        """One row: the file."""
        import pandas

        return pandas.DataFrame([self.to_dict()])

    def figures(self) -> "dict[str, go.Figure]":
        return self.run.figures()


def to_arviz(run: Run) -> "arviz.InferenceData":
    """An InferenceData: text statistics as posterior, the events' figures as sample_stats."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arviz announces its own next version on import
        import arviz

    if run.steps == 0:
        raise GlauberError(f"the run {run.name} has no steps yet, so there is nothing to export.")
    n_sites = (run.read("site") >= 0).sum(axis=2)
    changed = run.read("changed").sum(axis=2) / np.maximum(n_sites, 1)
    stats = {"changed": changed}
    stats |= {name: step_means(run, name) for name in ("log_prob_old", "entropy")}
    # A step's mean log-ratio of going to coming back; over a random scan of single sites its mean
    # is the entropy production. A start token outside the vocabulary has no such ratio.
    ratio = np.where(n_sites > 0, -stats["entropy"] - stats["log_prob_old"], 0.0)
    stats["log_ratio"] = np.where(np.isfinite(ratio), ratio, np.nan)
    return arviz.from_dict(
        posterior={
            "survival": survival(run)[:, 1:],
            "log_prob_new": step_means(run, "log_prob_new"),
        },
        sample_stats=stats,
    )


def _write_arviz(run: Run, out: Path, every: int) -> None:
    data = to_arviz(run)
    # HDF5 does not survive a full disk, so the room is taken before, by a file of that size.
    needed = 2**20 + 2 * sum(int(group.nbytes) for group in data.values())
    with out.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, needed)
    out.unlink()
    data.to_netcdf(str(out))


def _write_parquet(run: Run, out: Path, every: int) -> None:
    """One row per chain, step and redrawn site."""
    import pyarrow
    import pyarrow.parquet

    spelling = np.array([], dtype=object)
    schema = None
    writer = None
    for first in range(0, max(run.steps, 1), BLOCK):
        block = {name: run.read(name, first, min(first + BLOCK, run.steps)) for name in run.fields}
        chain, step, slot = np.nonzero(block["site"] >= 0)
        columns: dict[str, Any] = {"chain": chain, "step": step + first + 1}
        columns |= {name: values[chain, step, slot] for name, values in block.items()}
        needed = int(columns["token"].max(initial=-1)) + 1
        if needed > len(spelling):
            more = [run.vocabulary.spell(token) for token in range(len(spelling), needed)]
            spelling = np.concatenate([spelling, np.array(more, dtype=object)])
        columns["spelling"] = pyarrow.array(spelling[columns["token"]].tolist(), pyarrow.string())
        table = pyarrow.table(columns, schema=schema)
        schema = table.schema
        writer = writer or pyarrow.parquet.ParquetWriter(str(out), schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _write_jsonl(run: Run, out: Path, every: int) -> None:
    """One object per chain and step: its text, and the sites that changed, as people count them."""
    with out.open("w", encoding="utf-8") as file:
        for step, tokens in run.states(every):
            changed = _changed_sites(run, step) if step else [[] for _ in tokens]
            for chain, row in enumerate(tokens):
                line: dict[str, Any] = {"chain": chain, "step": step}
                if run.spec.names:
                    line["name"] = run.spec.names[chain]
                line["text"] = run.spelled(row)
                line["changed"] = changed[chain]
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _changed_sites(run: Run, step: int) -> list[list[int]]:
    sites, changed = run.read("site", step - 1, step), run.read("changed", step - 1, step)
    moved = zip(sites[:, 0] - run.first_site, changed[:, 0], strict=True)
    return [row[there].tolist() for row, there in moved]


def _write_text(run: Run, out: Path, every: int) -> None:
    """The last text of each chain, one a line, as `--from` reads them."""
    lines = [run.spelled(row) for row in run.tokens()]
    out.write_text("".join(line.replace("\n", " ") + "\n" for line in lines), encoding="utf-8")


def _write_starts(run: Run, out: Path, every: int) -> None:
    """The text that each chain began from, one a line, without the prefix."""
    lines = [line.replace("\n", " ") + "\n" for line in start_texts(run)]
    out.write_text("".join(lines), encoding="utf-8")


def _write_fasta(run: Run, out: Path, every: int) -> None:
    """The last text of each chain under its start's name, with chain and step in the header."""
    if not run.vocabulary.letters:
        raise GlauberError(
            "FASTA holds sequences of letters, but the tokens of this run are words."
        )
    names = run.spec.names or [""] * run.n_chains
    rows = zip(names, run.tokens(), strict=True)
    records = [
        Row(run.spelled(row), f"{name} chain={chain} step={run.steps}")
        for chain, (name, row) in enumerate(rows)
    ]
    out.write_text(fasta(records), encoding="utf-8")


WRITERS: dict[str, Callable[[Run, Path, int], None]] = {
    "arviz": _write_arviz,
    "parquet": _write_parquet,
    "jsonl": _write_jsonl,
    "text": _write_text,
    "fasta": _write_fasta,
    "starts": _write_starts,
}


def trajectory(run: Run, every: int = 1) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(step, tokens (chains, length)) at step 0, every, 2 every, … of a run."""
    return run.states(every)


def forced(run: Run) -> NDArray[np.bool_]:
    """Which steps the budget of changes left no choice, (chains, steps)."""
    if run.spec.budget is None:
        return np.zeros((run.n_chains, run.steps), bool)
    return forced_events(run.tokens(0), run.read("site"), run.read("token"), run.spec.budget)


def forced_events(
    start: NDArray[Any], sites: NDArray[Any], new: NDArray[Any], budget: int
) -> NDArray[np.bool_]:
    """Which events (chains, steps, slots) a budget of changes forced, (chains, steps).

    There so many other sites differed from the start that only its own tokens were left.
    """
    forced = np.zeros(sites.shape[:2], bool)
    differs, chains = np.zeros(start.shape, bool), np.arange(len(start))[:, None]
    for step in range(sites.shape[1]):
        there = sites[:, step] >= 0
        own = np.where(there, sites[:, step], 0)
        others = differs.sum(axis=1) - (differs[chains, own] & there).sum(axis=1)
        forced[:, step] = others + there.sum(axis=1) > budget
        rows, slots = np.nonzero(there)
        place = own[rows, slots]
        differs[rows, place] = new[rows, step, slots] != start[rows, place]
    return forced


def step_means(run: Run, field: str) -> NDArray[np.float64]:
    """The mean of a field over the sites that each step redrew, (chains, steps).

    A step that redrew no site has the mean of the last step that did, and before the first such
    step its mean. NaN in a chain that redrew no site at all.
    """
    redrawn = run.read("site") >= 0
    n_sites = redrawn.sum(axis=2)
    total = np.where(redrawn, run.read(field).astype(np.float64), 0.0).sum(axis=2)
    means = np.where(n_sites > 0, total / np.maximum(n_sites, 1), np.nan)
    if (n_sites > 0).all():
        return means
    steps = np.where(n_sites > 0, np.arange(run.steps), -1)
    last = np.maximum.accumulate(steps, axis=1)
    first = (n_sites > 0).argmax(axis=1)[:, None]
    return np.take_along_axis(means, np.where(last < 0, first, last), axis=1)


def survival(run: Run, every: int = 1) -> NDArray[np.float64]:
    """Share of the free sites that hold their starting token, (chains, 1 + steps // every)."""
    start, free = run.tokens(0), run.free
    same = [((tokens == start) & free).sum(axis=1) for _, tokens in run.states(every)]
    return np.stack(same, axis=1) / free.sum(axis=1, keepdims=True)
