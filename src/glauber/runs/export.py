"""A run written for other tools (ArviZ, Parquet, JSON lines, plain text, FASTA), and its series."""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.checks import Whole
from glauber.foundation.disk import check_new, draft_of, sync
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import has_type
from glauber.foundation.study import Result, internal, one_of, plain, study
from glauber.runs.run import BLOCK, Folder, Run
from glauber.texts.read import Row, fasta

if TYPE_CHECKING:
    import arviz
    import plotly.graph_objects as go


@study
def export(
    run: Folder,
    *,
    to: Annotated[str, "arviz, parquet, jsonl, text, fasta, texts or starts."],
    out: Annotated[str | Path, "File to write; an existing one is kept."],
    every: Annotated[int, "jsonl: one object every so many steps.", Whole(1, 10**15)] = 1,
) -> "Exported":
    """Write a run as ArviZ netCDF, Parquet, JSON lines, plain text or FASTA.

    text is the last text of each chain, one a line, as `--from` reads them; texts are those that
    the run was given, and starts what its chains began from, without the prefix; fasta is as text,
    for models of letters, with the names that the starts had; parquet has a row per event, by
    position as it is stored; jsonl counts sites from 0 without special tokens and prefix. The whole
    run is compared with its checksums first: one that is damaged is not exported.
    """
    one_of("the format", to, WRITERS)
    path = Path(out)
    check_new(path, "file")
    run = Run.of(run, generations=True)
    run.verify()
    try:
        with draft_of(path) as draft:
            WRITERS[to](run, draft, every)
        sync(path.absolute().parent)
    except OSError as error:
        raise GlauberError(f"{path} cannot be written: {error.strerror or error}.") from error
    return Exported(to, path, path.stat().st_size, run)


@dataclass(frozen=True, eq=False)
class Exported(Result):
    """A file with a run for other tools."""

    to: str
    out: Path
    bytes: int  # size of the file
    run: Run = internal()

    def to_dict(self) -> dict[str, Any]:
        return {"run": plain(self.run.folder)} | super().to_dict()

    def lines(self) -> Iterable[str]:
        yield f"{self.out}: {self.bytes / 1e6:,.2f} MB"

    def table(self) -> list[dict[str, Any]]:
        """One row: the file."""
        return [self.to_dict()]

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

    def table(first: int) -> pyarrow.Table:
        columns = run.event_columns(first, min(first + BLOCK, run.steps))
        spellings = pyarrow.array(columns.pop("spelling"), pyarrow.string())
        return pyarrow.table(columns | {"spelling": spellings})

    table_of_no_rows = table(run.steps)
    with pyarrow.parquet.ParquetWriter(str(out), table_of_no_rows.schema) as writer:
        for first in range(0, run.steps, BLOCK):
            writer.write_table(table(first))


def _write_jsonl(run: Run, out: Path, every: int) -> None:
    """One object per chain and step: its text, and the sites that changed, as people count them."""
    with out.open("w", encoding="utf-8") as file:
        for step, tokens in run.states(every):
            sites, changed = (
                run.read(name, max(0, step - 1), step) for name in ("site", "changed")
            )
            for chain, row in enumerate(tokens):
                name_entry = {"name": run.spec.names[chain]} if run.spec.names else {}
                moved = sites[chain][changed[chain]] - run.first_site
                line = {"chain": chain, "step": step, **name_entry, "text": run.decode(row)}
                text = json.dumps(line | {"changed": moved.tolist()}, ensure_ascii=False)
                file.write(f"{text}\n")


def _write_lines(texts: Iterable[str], out: Path) -> None:
    """One text a line, as `--from` reads them."""
    lines = (text.replace("\n", " ") + "\n" for text in texts)
    out.write_text("".join(lines), encoding="utf-8")


def _write_fasta(run: Run, out: Path, every: int) -> None:
    """The last text of each chain under its start's name, with chain and step in the header."""
    if not run.vocabulary.letters:
        raise GlauberError(
            "FASTA is for sequences of letters, but the tokens of this run are words."
        )
    names = run.spec.names or [""] * run.n_chains
    rows = zip(names, run.tokens(), strict=True)
    records = [
        Row(run.decode(row), f"{name} chain={chain} step={run.steps}")
        for chain, (name, row) in enumerate(rows)
    ]
    out.write_text(fasta(records), encoding="utf-8")


def start_texts(run: Run) -> list[str]:
    """The text that each chain began from, without the prefix."""
    n_after = len(run.vocabulary.boundary_tokens[1])
    rows = [row[run.first_site : int((row >= 0).sum()) - n_after] for row in run.tokens(0)]
    return [run.decode(row) for row in rows]


def _given_texts(run: Run) -> list[str]:
    """The texts of the call that made the run."""
    call = run.log.call
    texts = None if call is None else call.arguments.get("texts")
    if not isinstance(texts, list) or not has_type(texts, list[str]):
        raise GlauberError(f"the run {run.name} does not contain the texts that it was given.")
    return texts


WRITERS: dict[str, Callable[[Run, Path, int], None]] = {
    "arviz": _write_arviz,
    "parquet": _write_parquet,
    "jsonl": _write_jsonl,
    "text": lambda run, out, every: _write_lines(map(run.decode, run.tokens()), out),
    "fasta": _write_fasta,
    "texts": lambda run, out, every: _write_lines(_given_texts(run), out),
    "starts": lambda run, out, every: _write_lines(start_texts(run), out),
}


# ---- series of a run


def forced_steps(run: Run) -> NDArray[np.bool_]:
    """Which steps the budget of changes left no choice, (chains, steps)."""
    if run.spec.budget is None:
        return np.zeros((run.n_chains, run.steps), bool)
    return forced_events(run.tokens(0), run.read("site"), run.read("token"), run.spec.budget)


def forced_events(
    start: NDArray[Any], sites: NDArray[Any], tokens: NDArray[Any], budget: int
) -> NDArray[np.bool_]:
    """Which events (chains, steps, slots) a budget of changes forced, (chains, steps).

    There so many other sites differed from the start that only its own tokens were left.
    """
    forced = np.zeros(sites.shape[:2], bool)
    differs, chains = np.zeros(start.shape, bool), np.arange(len(start))[:, None]
    for step in range(sites.shape[1]):
        redrawn = sites[:, step] >= 0
        own_sites = np.where(redrawn, sites[:, step], 0)
        others = differs.sum(axis=1) - (differs[chains, own_sites] & redrawn).sum(axis=1)
        forced[:, step] = others + redrawn.sum(axis=1) > budget
        chain, slot = np.nonzero(redrawn)
        site = own_sites[chain, slot]
        differs[chain, site] = tokens[chain, step, slot] != start[chain, site]
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
    """Share of the free sites that have their starting token, (chains, 1 + steps // every)."""
    start, free = run.tokens(0), run.free
    same = [((tokens == start) & free).sum(axis=1) for _, tokens in run.states(every)]
    return np.stack(same, axis=1) / free.sum(axis=1, keepdims=True)
