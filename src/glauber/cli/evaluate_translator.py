"""glauber evaluate-translator: BLEU, chrF, stutter and latency of several ways to decode."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from glauber.cli import options
from glauber.cli.translate import Folder


def evaluate_translator(
    pairs: Annotated[Path, typer.Argument(help="Two-column file, plain or xz.")],
    steps: Annotated[list[int] | None, typer.Option(help="Passes (default: 4 and 10).")] = None,
    lengths: Annotated[int, typer.Option(help="Lengths tried in parallel.")] = 5,
    limit: Annotated[int | None, typer.Option(help="Only the first so many sentences.")] = None,
    long: Annotated[int, typer.Option(help="Score so many joined pairs instead; 0: no.")] = 0,
    timed: Annotated[int, typer.Option(help="Sentences timed one at a time.")] = 50,
    models: Folder = None,
    device: options.Device = "cpu",
    json: options.Json = False,
) -> None:
    """Score the autoregressive model and the refinement beside it on one file."""
    from glauber.cli.screen import emit, out
    from glauber.errors import GlauberError
    from glauber.translation.data import by_source, long_pairs, read_pairs
    from glauber.translation.evaluation import evaluate, ways
    from glauber.translation.store import BUNDLED, load_vocabulary

    if limit is not None and limit < 1:
        raise GlauberError(f"the limit is {limit}, but it must be at least 1.")
    folder = models or BUNDLED
    read = read_pairs(pairs)
    judged = (
        long_pairs(read, load_vocabulary(folder), n_pairs=long) if long else by_source(read)[:limit]
    )
    chosen = ways(tuple(steps or (4, 10)), lengths)
    results = evaluate(folder, judged, chosen, n_timed=timed, device=device)
    if json:
        emit({"file": str(pairs), "kind": "estimate", "systems": [asdict(one) for one in results]})
        return
    out.print(_table(results))
    for signature in {one.quality.bleu_signature for one in results}:
        out.print(f"BLEU: {signature}", highlight=False, markup=False, soft_wrap=True)


def _table(results: Any) -> Any:
    from rich.table import Table

    table = Table("system", "BLEU", "chrF", "stutter", "median ms", "p99 ms")
    for one in results:
        late = one.latency
        times = (f"{1000 * late.median:.0f}", f"{1000 * late.p99:.0f}") if late else ("-", "-")
        quality = one.quality
        table.add_row(
            one.system,
            f"{quality.bleu:.2f}",
            f"{quality.chrf:.2f}",
            f"{quality.stutter:.4f}",
            *times,
        )
    return table
