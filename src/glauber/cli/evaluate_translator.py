"""glauber evaluate-translator: BLEU, chrF, stutter and speed of several ways to decode."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.cli.translate import Doubt, Folder, Initial, Ratio

if TYPE_CHECKING:
    from glauber.translation.data import Judged
    from glauber.translation.evaluation import Evaluation
    from glauber.translation.learned import Learned

THROUGHPUT = 256  # sentences of each measurement, at most


def evaluate_translator(
    pairs: Annotated[
        Path | None,
        typer.Argument(help="Two-column file, plain or xz (default: the bundled test pairs)."),
    ] = None,
    decoder: Annotated[
        list[str] | None, typer.Option(help="Of the student, may be given again (refine).")
    ] = None,
    steps: Annotated[list[int] | None, typer.Option(help="Passes (default: 4 and 10).")] = None,
    lengths: Annotated[int, typer.Option(help="Lengths tried in parallel.")] = 5,
    length: Annotated[str, typer.Option(help="Lengths around what: predicted, ratio, oracle.")] = (
        "predicted"
    ),
    ratio: Ratio = 1.0,
    initial: Initial = None,
    remask: Annotated[bool, typer.Option(help="refine: hide repeats between passes.")] = True,
    doubt: Doubt = 0.5,
    judge: Annotated[
        list[str] | None, typer.Option(help="Who chooses a draft: itself, teacher (both).")
    ] = None,
    seed: options.Seed = 0,
    limit: Annotated[int | None, typer.Option(help="Only the first so many sentences.")] = None,
    long: Annotated[int, typer.Option(help="Score so many joined pairs instead; 0: no.")] = 0,
    timed: Annotated[int, typer.Option(help="Sentences timed one at a time, evenly spaced.")] = 50,
    throughput: Annotated[
        bool, typer.Option("--throughput", help="Also sentences a second at the best batch size.")
    ] = False,
    learned: Annotated[
        str | None, typer.Option(help="Also a learned metric: comet or bleurt.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="--learned: its checkpoint, or its name on the hub.")
    ] = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="BLEU against latency over passes and lengths.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="--frontier: file of the picture, .html or .png.")
    ] = None,
    models: Folder = None,
    device: options.Device = "cpu",
    json: options.Json = False,
) -> None:
    """Score the autoregressive model and the refinement beside it on one file."""
    from glauber.cli.screen import answer, say
    from glauber.conditionals.weights import choose_device
    from glauber.errors import GlauberError
    from glauber.translation.choice import JUDGES
    from glauber.translation.evaluation import TEST_PAIRS, Measures, evaluate, machine, ways
    from glauber.translation.learned import METRICS
    from glauber.translation.store import BUNDLED
    from glauber.translation.translate import Way

    if out is not None and not frontier:
        raise GlauberError("--out is the picture of the frontier: give --frontier as well.")
    if learned not in (None, *METRICS):
        raise GlauberError(f"the learned metric must be one of {', '.join(METRICS)}.")
    folder, device = models or BUNDLED, str(choose_device(device))
    judged = _judged(folder, pairs, limit, long)

    def hear(system: str) -> None:
        say(system, quiet=json)

    if frontier:
        _frontier(folder, judged, timed, device, out, json)
        return
    like = Way(
        length=length, ratio=ratio, initial=initial, remask_stutter=remask, doubt=doubt, seed=seed
    )
    chosen = ways(
        tuple(steps or (4, 10)),
        lengths,
        decoders=tuple(decoder or ("refine",)),
        judges=tuple(judge or JUDGES),
        like=like,
    )
    measures = Measures(timed, THROUGHPUT if throughput else 0)
    results = evaluate(folder, judged, chosen, measures=measures, device=device, hear=hear)
    metric = _learned(results, judged, learned, weights)
    told = {
        "file": str(pairs or TEST_PAIRS),
        "kind": "estimate",
        "machine": machine(device),
        "systems": [asdict(one) for one in results],
    }
    if learned:
        told["learned"] = metric if isinstance(metric, str) else [asdict(one) for one in metric]
    answer(told, [], json=json)
    if not json:
        _show(results, metric, machine(device))


def _judged(folder: Path, pairs: Path | None, limit: int | None, long: int) -> "list[Judged]":
    """The sentences to translate, from the file or joined from it."""
    from glauber.errors import GlauberError
    from glauber.translation.data import by_source, long_pairs, read_pairs
    from glauber.translation.evaluation import TEST_PAIRS
    from glauber.translation.store import load_vocabulary

    if limit is not None and limit < 1:
        raise GlauberError(f"the limit is {limit}, but it must be at least 1.")
    read = read_pairs(pairs or TEST_PAIRS)
    if long:
        return long_pairs(read, load_vocabulary(folder), n_pairs=long)[:limit]
    return by_source(read)[:limit]


def _learned(
    results: "list[Evaluation]", judged: "list[Judged]", metric: str | None, weights: str | None
) -> "list[Learned] | str":
    """The metric of each system, or the sentence that says what is missing."""
    from glauber.errors import GlauberError
    from glauber.translation.learned import learned_score

    if metric is None:
        return []
    try:
        return [
            learned_score(one.outputs, judged, metric=metric, weights=weights) for one in results
        ]
    except GlauberError as missing:
        return str(missing)


def _frontier(
    folder: Path, judged: "list[Judged]", timed: int, device: str, out: Path | None, json: bool
) -> None:
    from glauber.cli.screen import answer, say
    from glauber.translation.frontier import frontier

    made = frontier(
        folder, judged, n_timed=timed, device=device, hear=lambda one: say(one, quiet=json)
    )
    if out is not None:
        from glauber.figures.page import write_picture
        from glauber.figures.translation import plot_frontier

        write_picture(plot_frontier(made), path=out)
    lines = [
        f"{point.system:>22}  BLEU {point.bleu:6.2f}  {1000 * point.median:7.1f} ms "
        f"(p99 {1000 * point.p99:.1f})"
        for point in (*made.autoregressive, *made.refined)
    ]
    lines.append(f"{made.n_timed} sentences timed alone on {made.machine}")
    lines.append(f"BLEU: {made.bleu_signature}")
    told = asdict(made) | {"picture": None if out is None else str(out)}
    answer(told, lines, json=json, picture=out)


def _show(results: "list[Evaluation]", metric: "list[Learned] | str", where: str) -> None:
    from glauber.cli.screen import out

    out.print(_table(results, [] if isinstance(metric, str) else metric))
    quality = results[0].quality
    lines = [
        f"words that the first references themselves repeat: {quality.reference_stutter:.4f}",
        f"BLEU: {quality.bleu_signature}",
        f"chrF: {quality.chrf_signature}",
        f"ms: the median, one sentence at a time, on {where}",
        f"all figures are estimates on these {quality.n_sentences} sentences",
    ]
    if any(one.throughput for one in results):
        lines.append("per s: sentences a second at the best batch size, which stands beside it")
    lines += [metric] if isinstance(metric, str) else []
    for line in lines:
        out.print(line, highlight=False, markup=False, soft_wrap=True)


def _table(results: "list[Evaluation]", metric: "list[Learned]") -> Any:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("system", no_wrap=True)
    for name in ("BLEU", "chrF", "stutter", "passes", "ms", "p99 ms"):
        table.add_column(name, justify="right")
    fast, learned = any(one.throughput for one in results), bool(metric)
    if fast:
        table.add_column("per s", justify="right")
        table.add_column("batch", justify="right")
    if learned:
        table.add_column(metric[0].metric, justify="right")
    for number, one in enumerate(results):
        late, rate, quality = one.latency, one.throughput, one.quality
        cells = [f"{quality.bleu:.2f}", f"{quality.chrf:.2f}", f"{quality.stutter:.4f}"]
        cells.append(f"{one.n_passes:.1f}")
        cells += [f"{1000 * late.median:.0f}", f"{1000 * late.p99:.0f}"] if late else ["-", "-"]
        cells += [f"{rate.best:.0f}", str(rate.batch_size)] if rate else []
        cells += [f"{metric[number].score:.4f}"] if learned else []
        table.add_row(one.system, *cells)
    return table
