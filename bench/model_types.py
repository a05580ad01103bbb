"""python -m bench.model_types: every masked-LM type of transformers, as a Markdown table.

A tiny random model of each type is compared with plain transformers (float32, one and three hidden
sites, texts of 11 tokens and of the longest length up to 64).
"""

import sys
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

import torch
import transformers

import glauber
from glauber.foundation.errors import GlauberError

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from models.every_type import REFUSED, TYPES, make_tiny, plain_scores, random_rows

ROWS = 20


class Row(NamedTuple):
    """What was measured of a type."""

    model_type: str
    path: str  # described: our own forward pass
    error: float  # largest difference of a score, in standard deviations of the scores
    same_bits: bool  # a row by itself and in a batch
    longest: int  # of the tiny model, which has 40 positions


def measure(model_type: str, folder: Path) -> Row:
    """The model of a type next to transformers."""
    model = glauber.load(str(make_tiny(model_type, folder)), device="cpu")
    errors, same_bits = [], True
    for length, k in ((11, 1), (11, 3), (min(model.longest, 64), 1)):
        tokens, sites = random_rows(length, ROWS, k)
        expected, scores = plain_scores(folder, tokens, sites), model.scores(tokens, sites)
        errors.append(float((scores - expected).abs().max() / expected.std()))
        for rows in (slice(0, 1), slice(1, 6)):
            same_bits &= torch.equal(model.scores(tokens[rows], sites[rows]), scores[rows])
    path = "transformers" if model.encoder is None else "described"
    return Row(model_type, path, max(errors), same_bits, model.longest)


def main() -> None:
    print(f"transformers {transformers.__version__}, torch {torch.__version__}\n")
    print("| type | forward pass | largest error | same bits in any batch | longest text |")
    print("|---|---|---|---|---|")
    for model_type in TYPES:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                row = measure(model_type, Path(folder))
            except GlauberError as error:
                assert model_type in REFUSED, error
                print(f"| {model_type} | refused: {REFUSED[model_type]} | | | |")
                continue
        longest = "no limit" if row.longest > 10**5 else row.longest
        bits = "yes" if row.same_bits else "no"
        print(f"| {model_type} | {row.path} | {row.error:.1e} | {bits} | {longest} |", flush=True)


if __name__ == "__main__":
    main()
