"""Comparison of our forward pass with transformers'.

Made the first time that weights are loaded with these versions of glauber, torch and transformers
on this kind of machine; the result is stored in the folder of the cache. The root mean square
difference of the scores at random hidden sites, over their spread, is compared with a tolerance of
the precision: far above what rounding does and far below what a wrong part does (a missing rotation
or a norm in the wrong place moves scores by their spread).
"""

import hashlib
import json
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from glauber.foundation.threads import one_thread_each
from glauber.models.forward.description import Description, Norm
from glauber.models.shelf import cache_home

TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 0.03,
    torch.bfloat16: 0.1,
}
ROUNDED = 1e-6  # of models of float64 whose norms are formed in float32: the order of a sum shows
SHORT = 11  # tokens of two rows
BEYOND = 9  # tokens of one row beyond what is seen of a short text
HIDDEN = 3  # sites of each row

Scores = Callable[[Tensor, Tensor], Tensor]  # tokens (rows, length), sites (rows, k)


def tolerance(described: Description, dtype: torch.dtype) -> float:
    """What rounding may do to the scores of a model, in spreads of the scores."""
    norms = [part for layer in described.layers for part in layer if isinstance(part, Norm)]
    rounds = dtype == torch.float64 and any(norm.single or not norm.centred for norm in norms)
    return ROUNDED if rounds else TOLERANCE[dtype]


def difference(
    ours: Scores, theirs: Scores, *, usual: Tensor, hidden_token: int, lengths: list[int]
) -> float:
    """The largest difference over texts of these lengths, in spreads of the scores.

    usual are the tokens of texts: special ones may change how places are counted.
    """
    largest = 0.0
    with one_thread_each(), torch.no_grad():
        for length in lengths:
            tokens, sites = _some(length, usual, hidden_token)
            expected = theirs(tokens, sites).double()
            try:
                scores = ours(tokens, sites).double()
            except Exception:  # parts that do not fit together, a kernel that does not compile
                return float("inf")
            spread = expected.std().clamp(min=1e-30)
            apart = (scores - expected).square().mean().sqrt() / spread
            # What is not a number is as wrong as can be.
            largest = max(largest, float(apart.nan_to_num(float("inf"))))
    return largest


def lengths_to_try(described: Description) -> list[int]:
    """A short text, and one long enough to meet every way in which distances enter.

    Beyond that, a local layer does not see it whole, and far distances share their terms.
    """
    seen = [0]
    for layer in {id(layer): layer for layer in described.layers}.values():
        seen.append(layer.window or 0)
        seen.append(0 if layer.relative is None else _even(layer.relative.rows))
    wanted = [SHORT, *(length + BEYOND for length in (max(seen),) if length)]
    return [min(length, described.places) for length in wanted]


def _even(rows: Tensor) -> int:
    """How many distances from 0 on have rows at even steps."""
    steps = rows[len(rows) // 2 :].diff()
    uneven = (steps != steps[0]).nonzero()
    return int(uneven[0]) if len(uneven) else 0


def _some(length: int, usual: Tensor, hidden_token: int) -> tuple[Tensor, Tensor]:
    """Two rows of random tokens, of a long text one, with a few hidden sites."""
    generator = torch.Generator().manual_seed(length)
    rows = 2 if length <= SHORT else 1
    tokens = usual[torch.randint(len(usual), (rows, length), generator=generator)]
    sites = torch.rand(rows, length, generator=generator).argsort(dim=1)[:, : min(HIDDEN, length)]
    return tokens.scatter(1, sites, hidden_token), sites


# ---- what has been compared before


class Record:
    """That the pass of some weights agreed with transformers', under these circumstances."""

    def __init__(
        self, fingerprint: str, config: object, dtype: torch.dtype, device: torch.device
    ) -> None:
        from glauber import __version__

        text = json.dumps(config, sort_keys=True, default=str)
        if device.type == "cuda":
            kind = torch.cuda.get_device_name(device)
        else:
            kind = f"{device.type} {torch.backends.cpu.get_cpu_capability()}"
        # Of the forward passes: while they are worked on, the version stays the same.
        source = hashlib.sha256()
        for path in sorted(Path(__file__).parent.glob("*.py")):
            source.update(path.read_bytes())
        self.circumstances = {
            "weights": fingerprint,
            "config": hashlib.sha256(text.encode()).hexdigest(),
            "precision": str(dtype),
            "device": kind,
            "glauber": f"{__version__} {source.hexdigest()[:16]}",
            "torch": torch.__version__,
            "transformers": version("transformers"),
        }
        name = hashlib.sha256(json.dumps(self.circumstances).encode()).hexdigest()[:32]
        self.path = cache_home() / "compared" / f"{name}.json"

    def exists(self) -> bool:
        return self.path.is_file()

    def write(self, apart: float) -> None:
        """Kept where the cache can be written; elsewhere the comparison is made each time."""
        draft = self.path.with_suffix(f".{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(
                json.dumps(self.circumstances | {"difference": apart}, indent=1) + "\n"
            )
            draft.replace(self.path)
        except OSError:
            return

    def remove(self) -> None:
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            return
