"""glauber sample: run chains and store them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from glauber.cli import options
from glauber.conditionals.starts import read_sites, read_texts
from glauber.errors import GlauberError


def sample(
    model: options.Model = "bundled:english",
    source: options.From = None,
    chains: options.Chains = None,
    length: options.Length = None,
    steps: options.Steps = 1000,
    temperature: options.Temperature = 1.0,
    seed: options.Seed = 0,
    prefix: options.Prefix = "",
    freeze: Annotated[
        str, typer.Option(help="Further sites never redrawn, such as 0,3 (without special tokens).")
    ] = "",
    scan: Annotated[
        str, typer.Option(help="uniform, sweep, block:K, everywhere or least-confident.")
    ] = "uniform",
    within: Annotated[
        str | None,
        typer.Option(
            help="Sites of one step: sequential, product or parallel "
            "(default: sequential; parallel for everywhere)."
        ),
    ] = None,
    fill: Annotated[str, typer.Option(help="inverse-cdf, gumbel-max or greedy.")] = "inverse-cdf",
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens", help="Let special and unused tokens be proposed.")
    ] = False,
    batch_size: options.BatchSize = None,
    memo: options.Memo = None,
    device: options.Devices = "auto",
    dtype: options.DrawingDtype = "float32",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Run Glauber dynamics from starting texts and store every event."""
    texts = None if source is None else read_texts(source)
    folder = out or _unused(Path("runs"), model, temperature, seed)
    check_place(folder)
    from glauber.cli.telling import run_and_report, say_cost
    from glauber.sampling import sample as sampling

    sampling.check_batch_size(batch_size)
    sampling.check_memo(memo)
    planned = sampling.plan(
        model,
        texts,
        steps=steps,
        temperature=temperature,
        seed=seed,
        chains=chains,
        length=length,
        prefix=prefix,
        frozen=read_sites(freeze),
        scan=scan,
        within=within,
        fill=fill,
        special_tokens=special_tokens,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
    )
    say_cost(planned, folder, batch_size, quiet=json)
    sampling.begin(planned, folder)
    run_and_report(planned, folder, batch_size=batch_size, memo=memo, json=json)


def check_place(folder: Path) -> None:
    """Refuses a folder that exists or could not be made, before any work is done."""
    if folder.exists():
        raise GlauberError(f"the folder {folder} exists already; give another one, or resume it.")
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir():
        raise GlauberError(f"{folder} cannot be made: {above} is a file.")
    if not os.access(above, os.W_OK):
        raise GlauberError(f"{folder} cannot be made: {above} is not writable.")


def _unused(parent: Path, model: str, temperature: float, seed: int) -> Path:
    """A folder name that says what the run is and is not taken."""
    name = f"{Path(model.replace(':', '-')).name}-t{temperature:g}-s{seed}"
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"
