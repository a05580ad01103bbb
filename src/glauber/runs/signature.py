"""How was this figure made? One line to print beside it."""

import numpy as np

from glauber.runs.spec import Spec


def signature(spec: Spec) -> str:
    """A run's spec in one line, short enough to paste beside a result."""
    parts = {
        "model": spec.model,
        "weights": spec.fingerprint[:12],
        "temperature": ",".join(f"{one:g}" for one in np.atleast_1d(spec.temperature)),
        "scan": spec.scan,
        "within": spec.within,
        "fill": spec.fill,
        "chains": str(spec.chains),
        "steps": str(spec.steps),
        "seed": str(spec.seed),
        "device": f"{spec.device}/{spec.dtype}",
        "glauber": spec.versions.get("glauber", "?"),
        "torch": spec.versions.get("torch", "?"),
    }
    if spec.within == "sequential" and not spec.scan.startswith("block"):
        del parts["within"]  # says nothing where one site is redrawn at a time
    return "|".join(f"{key}:{value}" for key, value in parts.items())
