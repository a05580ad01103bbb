"""Are the exact tools right and fast beside PyDTMC? python -m bench.exact [--json FILE]

PyDTMC wants numpy below 2, so it runs in an environment of its own, made here on the first call.
Both sides take the same matrices, one after the other in one run, one thread each: construction,
spectral gap, and mixing time from the uniform law. Prints the two times, their ratio, and the
largest difference of the figures; exits with 1 if that exceeds 1e-8 or the ratio is below 20.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from math import e
from pathlib import Path
from typing import Any

import numpy as np

from bench.environment import environment
from glauber.exact import Space, mixing_time, spectrum, stationary, transition_matrix
from glauber.models.table import Joint, Table

PYDTMC = "pydtmc==8.7.0"
EPSILON = 1 / (4 * e)  # PyDTMC stops where the L1 distance, twice ours, is at most 1/(2e)


def ours(kind: type[Joint] | type[Table], space: Space) -> tuple[np.ndarray, dict[str, Any]]:
    """The matrix from the conditionals, and what is asked about it, with the seconds."""
    conditionals = kind.random(space.vocab_size, space.length, seed=0)
    begun = time.perf_counter()
    matrix = transition_matrix(conditionals, space)
    law = stationary(matrix)
    found = spectrum(matrix, distribution=law, k_max=1)
    uniform = np.full((1, space.size), 1 / space.size)
    mixed = mixing_time(matrix, distribution=law, starts=uniform, epsilon=EPSILON)
    seconds = time.perf_counter() - begun
    # PyDTMC looks from the first step on.
    answers = {"law": law, "gap": found.absolute_gap, "mixing_time": max(mixed.steps, 1)}
    return matrix.toarray(), {"seconds": seconds, **answers}


def theirs(matrix: np.ndarray) -> dict[str, Any]:
    """The same from PyDTMC, in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "matrix.npy", matrix)
        script = Path(__file__).with_name("pydtmc_side.py")
        command = [str(environment("pydtmc", [PYDTMC])), str(script), folder]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return {**answer, "law": np.load(Path(folder) / "law.npy")}


def compare(name: str, kind: type[Joint] | type[Table], space: Space) -> dict[str, Any]:
    """One line of the table: seconds on both sides, their ratio, the largest difference."""
    matrix, left = ours(kind, space)
    right = theirs(matrix)
    differences = [
        float(np.abs(left["law"] - right["law"]).max()),
        abs(left["gap"] - right["gap"]),
        float(abs(left["mixing_time"] - right["mixing_time"])),
    ]
    row = {"ours": left["seconds"], "pydtmc": right["seconds"], "difference": max(differences)}
    row["ratio"] = row["pydtmc"] / row["ours"]
    print(
        f"{name:>24}: {row['ours']:.3f} s, PyDTMC {row['pydtmc']:.1f} s, {row['ratio']:.0f} times; "
        f"gap {left['gap']:.10f}, mixing time {left['mixing_time']}, "
        f"largest difference {row['difference']:.1e}",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    ours(Joint, Space(2, 5))  # what is loaded on first use is not counted
    rows = {}
    for vocab_size, length in ((2, 6), (3, 5), (2, 10)):
        for kind in (Joint, Table):
            name = f"{kind.__name__} of {vocab_size}^{length} states"
            rows[name] = compare(name, kind, Space(vocab_size, length))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    largest = [row for name, row in rows.items() if "2^10" in name]
    agree = all(row["difference"] <= 1e-8 for row in rows.values())
    sys.exit(0 if agree and min(row["ratio"] for row in largest) >= 20 else 1)


if __name__ == "__main__":
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        if os.environ.get(threads) != "1":  # read when numpy is loaded, so begin again
            os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            os.execv(sys.executable, [sys.executable, "-m", "bench.exact", *sys.argv[1:]])
    main()
