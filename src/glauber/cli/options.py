"""The flags that mean the same in every command."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str, typer.Option("--model", help="bundled:english, a local folder, or a name on the hub.")
]
From = Annotated[
    Path | None,
    typer.Option("--from", help="File of starting texts, one a line (default: bundled passages)."),
]
Chains = Annotated[
    int | None, typer.Option("--chains", help="Number of chains; they take the texts in turn.")
]
Length = Annotated[
    int | None, typer.Option("--length", help="Tokens of each text, without the special ones.")
]
Steps = Annotated[int, typer.Option("--steps", help="Steps of every chain, in all.")]
Temperature = Annotated[
    float, typer.Option("--temperature", help="Cold (0.3) repeats itself, hot (2) is noise.")
]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same run.")]
Prefix = Annotated[
    str, typer.Option("--prefix", help="Text put before each start and never redrawn.")
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", help="Chains advanced together (default: all)."),
]
Memo = Annotated[
    int | None,
    typer.Option("--memo", help="MiB for remembered conditionals, 0 for none (CPU: 256)."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Devices = Annotated[
    str,
    typer.Option("--device", help="auto, cpu, cuda or mps; cuda:0,cuda:1 share the chains."),
]
Dtype = Annotated[str, typer.Option("--dtype", help="float32, bfloat16 or float64.")]
DrawingDtype = Annotated[
    str,
    typer.Option("--dtype", help="float32, bfloat16, float64, or int8: faster on a CPU, coarser."),
]
Out = Annotated[Path | None, typer.Option("--out", help="New folder (default: under runs/).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
RunFolder = Annotated[Path, typer.Argument(help="Folder of a run.")]
On = Annotated[str, typer.Option("--on", help="Where cells run: local, processes or ray.")]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Processes or Ray workers (default: one a core).")
]
Address = Annotated[
    str | None, typer.Option("--address", help="Ray cluster (default: one of this machine).")
]
