"""What happened in a run, in plain words?"""

from pathlib import Path

import numpy as np

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
        f"at temperature {spec.temperature:g}. A step hides {_sites(spec.scan)} and {how} "
        "there, given the rest of the text."
    )


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
        held.append(f"{sites} {', '.join(map(str, spec.frozen))} (counted from 0)")
    return [f"Never redrawn: {' and '.join(held)}."] if held else []


def _moved(run: Run) -> list[str]:
    changed = run.read("changed").any(axis=2).mean()
    left = survivors(run)
    these = "the other starting tokens" if _held(run.spec) else "the starting tokens"
    spread = f" ({left.min():.0%} to {left.max():.0%} by chain)" if run.n_chains > 1 else ""
    return [
        f"{changed:.0%} of the steps changed a token.",
        f"At the end {left.mean():.0%} of {these} stood in their place{spread}.",
    ]


def survivors(run: Run) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Share of each chain's free sites that hold their starting token now, (chains,)."""
    same = (run.tokens() == run.tokens(0)) & run.free
    return np.asarray(same.sum(axis=1) / run.free.sum(axis=1))
