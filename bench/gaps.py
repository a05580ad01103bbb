"""Are gaps of block dynamics found in time? python -m bench.gaps [--json FILE]

16 binary sites (65,536 states), blocks of 1, 2 and 4 sites, a random Ising model and a clique with
two modes. Prints the seconds of each gap; exits with 1 if one takes over 60 s, or if
gap_k >= k gap_1 fails. Then the gap at 10 sites beside the dense matrix: 1 if they differ by 1e-8.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from glauber.exact import Space, transition_matrix
from glauber.exact.blocks.dynamics import block_gap
from glauber.exact.blocks.masks import Masks
from glauber.exact.models import Ising

MODELS = {
    "random": Ising.random(16, seed=3, strength=0.15),
    "clique of 8, J = 0.15": Ising.clique(16, 8, coupling=0.15, field=0.05),
}
LONGEST = 60.0  # seconds


def gaps(name: str, model: Ising) -> list[dict[str, Any]]:
    """The gaps of one model, with seconds."""
    rows = []
    for k in (1, 2, 4):
        begun = time.perf_counter()
        found = block_gap(model.probabilities, Masks.uniform(model.space, k))
        seconds = time.perf_counter() - begun
        rows.append({"model": name, "k": k, "gap": found.value, "seconds": seconds})
        print(f"{name}, k = {k}: gap {found.value:.10f} +- {found.error:.0e}, {seconds:.1f} s")
    return rows


def difference() -> float:
    """How far the gap of 10 sites and blocks of 2 is from the dense matrix's."""
    model, space = Ising.random(10, seed=1, strength=0.3), Space(2, 10)
    root = np.sqrt(model.probabilities)
    dense = transition_matrix(model.joint(), space, block=2).toarray() * root[:, None] / root
    exact = 1 - np.linalg.eigvalsh((dense + dense.T) / 2)[-2]
    found = block_gap(model.probabilities, Masks.uniform(space, 2)).value
    return float(abs(found - exact))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    named = parser.parse_args()
    rows = [row for name, model in MODELS.items() for row in gaps(name, model)]
    far = difference()
    print(f"10 sites, k = 2: {far:.1e} from the dense matrix")
    if named.json:
        named.json.write_text(json.dumps({"gaps": rows, "difference": far}))
    first = {row["model"]: row["gap"] for row in rows if row["k"] == 1}
    kept = all(row["gap"] >= row["k"] * first[row["model"]] - 1e-9 for row in rows)
    sys.exit(0 if kept and far < 1e-8 and all(r["seconds"] < LONGEST for r in rows) else 1)


if __name__ == "__main__":
    main()
