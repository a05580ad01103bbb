"""How does a run leave for other tools: ArviZ, Parquet, JSON lines, plain text?"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.runs.run import Run, replay
from glauber.runs.store import FIELDS

if TYPE_CHECKING:
    import arviz

BLOCK = 512  # steps read at a time


def trajectory(run: Run, every: int = 1) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(step, tokens (chains, length)) at step 0, every, 2 every, … of a run."""
    tokens = run.tokens(0)
    yield 0, tokens.copy()
    for first in range(0, run.steps, BLOCK):
        last = min(first + BLOCK, run.steps)
        sites, new = run.read("site", first, last), run.read("token", first, last)
        for i in range(last - first):
            replay(tokens, sites[:, i : i + 1], new[:, i : i + 1])
            if (first + i + 1) % every == 0:
                yield first + i + 1, tokens.copy()


def survival(run: Run, every: int = 1) -> NDArray[np.float64]:
    """Share of the free sites that hold their starting token, (chains, 1 + steps // every)."""
    start, free = run.tokens(0), run.free
    same = [((tokens == start) & free).sum(axis=1) for _, tokens in trajectory(run, every)]
    return np.stack(same, axis=1) / free.sum(axis=1, keepdims=True)


def to_arviz(run: Run) -> "arviz.InferenceData":
    """An InferenceData: text statistics as posterior, the events' figures as sample_stats."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arviz announces its own next version on import
        import arviz

    if run.steps == 0:
        raise GlauberError(f"the run {run.folder} has no steps yet, so there is nothing to export.")
    figures = {
        name: run.read(name) for name in ("changed", "log_prob_old", "log_prob_new", "entropy")
    }
    means = {name: _over_slots(run, values) for name, values in figures.items()}
    stats = {name: means[name] for name in ("changed", "log_prob_old", "entropy")}
    # A step's mean log-ratio of going to coming back; over a random scan of single sites its mean
    # is the entropy production. A start token outside the vocabulary has no such ratio.
    ratio = -means["entropy"] - means["log_prob_old"]
    stats["log_ratio"] = np.where(np.isfinite(ratio), ratio, np.nan)
    return arviz.from_dict(
        posterior={"survival": survival(run)[:, 1:], "log_prob_new": means["log_prob_new"]},
        sample_stats=stats,
    )


def _over_slots(run: Run, values: NDArray[Any]) -> NDArray[np.float64]:
    """Mean over the sites redrawn in each step, (chains, steps)."""
    there = run.read("site") >= 0
    total = np.where(there, values.astype(np.float64), 0.0).sum(axis=2)
    return np.asarray(total / there.sum(axis=2))


def _write_arviz(run: Run, out: Path, every: int) -> None:
    to_arviz(run).to_netcdf(str(out))


def _write_parquet(run: Run, out: Path, every: int) -> None:
    """One row per chain, step and redrawn site."""
    import pyarrow
    import pyarrow.parquet

    spelling = np.array([], dtype=object)
    schema = None
    writer = None
    for first in range(0, max(run.steps, 1), BLOCK):
        block = {name: run.read(name, first, min(first + BLOCK, run.steps)) for name in FIELDS}
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
    """One object per chain and step: its text, and the sites that changed."""
    with out.open("w", encoding="utf-8") as file:
        for step, tokens in trajectory(run, every):
            changed = _changed_sites(run, step) if step else [[] for _ in tokens]
            for chain, row in enumerate(tokens):
                line: dict[str, Any] = {"chain": chain, "step": step}
                line["text"] = run.vocabulary.decode(row)
                line["changed"] = changed[chain]
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _changed_sites(run: Run, step: int) -> list[list[int]]:
    sites, changed = run.read("site", step - 1, step), run.read("changed", step - 1, step)
    return [row[there].tolist() for row, there in zip(sites[:, 0], changed[:, 0], strict=True)]


def _write_text(run: Run, out: Path, every: int) -> None:
    """The last text of each chain, one a line, as `--from` reads them."""
    lines = [run.vocabulary.decode(row) for row in run.tokens()]
    out.write_text("".join(line.replace("\n", " ") + "\n" for line in lines), encoding="utf-8")


WRITERS: dict[str, Callable[[Run, Path, int], None]] = {
    "arviz": _write_arviz,
    "parquet": _write_parquet,
    "jsonl": _write_jsonl,
    "text": _write_text,
}


def export(run: Run, to: str, out: Path, *, every: int = 1) -> None:
    """Writes the run as arviz (netCDF), parquet, jsonl or text; never over an existing file."""
    if to not in WRITERS:
        raise GlauberError(f"the format is {to}, but it must be one of {', '.join(WRITERS)}.")
    if every < 1:
        raise GlauberError(f"every is {every}, but it must be at least 1.")
    if out.exists():
        raise GlauberError(f"{out} exists already; give another file.")
    partial = out.with_name(out.name + ".partial")
    try:
        WRITERS[to](run, partial, every)
        partial.replace(out)
    except OSError as error:
        raise GlauberError(f"{out} cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            partial.unlink()
