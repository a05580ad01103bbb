"""What was run, how much did it move and what is left of the start, in a few sentences?"""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.runs.run import Run
from glauber.runs.spec import Spec


def title(spec: Spec) -> str:
    """The heading of a run's page."""
    return f"Glauber dynamics of {Path(spec.model).name}"


def summary(run: Run) -> str:
    """A few sentences: what was run, how much it moved, what is left of the start."""
    return " ".join([_what(run), *_held(run.spec), *(_moved(run) if run.steps else ())])


def _what(run: Run) -> str:
    spec = run.spec
    chains = "1 chain" if run.n_chains == 1 else f"{run.n_chains:,} chains"
    steps = f"{run.steps:,} steps" if run.finished else f"{run.steps:,} of {spec.steps:,} steps"
    each = " each" if run.n_chains > 1 else ""
    how = (
        "takes what the model finds likeliest"
        if spec.fill == "greedy"
        else "draws from what the model expects"
    )
    return (
        f"{chains} of the masked language model {spec.model} made {steps}{each} "
        f"at {_temperature(spec.temperature)}. A step hides {_sites(spec.scan)} and {how} "
        "there, given the rest of the text."
    )


def _temperature(temperature: Any) -> str:
    low, high = float(np.min(temperature)), float(np.max(temperature))
    return f"temperature {low:g}" if low == high else f"temperatures {low:g} to {high:g}"


def _sites(scan: str) -> str:
    kind, _, number = scan.partition(":")
    known = {
        "uniform": "one token, picked at random,",
        "sweep": "one token, each in turn,",
        "block": f"{number} tokens, picked at random,",
        "everywhere": "every token",
        "least-confident": "one token, picked from those that the model doubts,",
    }
    return known.get(kind, f"tokens (scan {scan})")


def _held(spec: Spec) -> list[str]:
    """A sentence on what is never redrawn, if there is such a thing."""
    held = [f"the prefix “{spec.prefix}”"] if spec.prefix else []
    if spec.frozen:
        sites = "the site" if len(spec.frozen) == 1 else "the sites"
        held.append(f"{sites} {ranges(spec.frozen)} (counted from 0, without special tokens)")
    return [f"Never redrawn: {' and '.join(held)}."] if held else []


def ranges(sites: Iterable[int]) -> str:
    """Sites as people write them: 0-95, 109."""
    ordered = enumerate(sorted(set(sites)))
    parts = []
    for _, group in groupby(ordered, lambda pair: pair[1] - pair[0]):
        row = [site for _, site in group]
        parts.append(str(row[0]) if len(row) == 1 else f"{row[0]}-{row[-1]}")
    return ", ".join(parts)


def _moved(run: Run) -> list[str]:
    left = survivors(run)
    these = "the other starting tokens" if _held(run.spec) else "the starting tokens"
    spread = f" ({left.min():.0%} to {left.max():.0%} by chain)" if run.n_chains > 1 else ""
    return [
        f"{share_changed(run).mean():.0%} of the steps changed a token.",
        f"At the end {left.mean():.0%} of {these} stood in their place{spread}.",
    ]


def share_changed(run: Run) -> NDArray[np.float64]:
    """Share of each chain's steps that changed a token, (chains,); 0 without steps."""
    if run.steps == 0:
        return np.zeros(run.n_chains)
    return np.asarray(run.read("changed").any(axis=2).mean(axis=1))


def survivors(run: Run) -> NDArray[np.float64]:
    """Share of each chain's free sites that hold their starting token now, (chains,)."""
    same = (run.tokens() == run.tokens(0)) & run.free
    return np.asarray(same.sum(axis=1) / run.free.sum(axis=1))
