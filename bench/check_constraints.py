"""Do constrained chains and a model on a backbone walk on a GPU as on the CPU? Of check_gpu."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.check_families import check
from glauber.models.load import load
from glauber.sampling.advance import begin_at, step_stream
from glauber.sampling.plan import plan

TEXT = ["the old king walked slowly through the old garden at night"]
WAYS: dict[str, dict[str, Any]] = {
    "allowed tokens and a bias": dict(allow="2:king|queen|man", bias="8:garden=2"),
    "at most 3 changes": dict(max_changes=3),
    "tied sites": dict(tie="1=7", allow="1:old|young|empty,7:old|young|empty"),
    "all of them": dict(
        allow="2:king|queen|man,1:old|young|empty,7:old|young|empty",
        bias="8:garden=2",
        max_changes=4,
        tie="1=7",
    ),
}
STEPS, CHAINS = 150, 16
HAIRPIN = Path(__file__).parent.parent / "tests/studies/proteins/hairpin.pdb"


def path(device: str, dtype: str = "float64", **how: Any) -> tuple[Tensor, Any]:
    """The tokens (steps, chains, length) of chains under constraints, and their plan."""
    planned = plan(
        load("bundled:english", device=device, dtype=dtype), TEXT, steps=STEPS, chains=CHAINS,
        seed=5, device=device, dtype=dtype, **how,
    )  # fmt: skip
    tokens = planned.tokens
    begun = begin_at(planned, tokens, torch.arange(CHAINS))
    steps = step_stream(planned, begun, STEPS)
    found = [state.tokens.cpu().clone() for state, _ in steps]
    return torch.stack([tokens, *found]), planned


def constrained() -> None:
    """Paths in float64 are those of the CPU, and a budget, ties and allowed tokens are kept."""
    for name, how in WAYS.items():
        due, planned = path("cpu", **how)
        first = int(planned.free.int().argmax(dim=1)[0])
        for dtype in ("float64", "float32"):
            found, _ = path("cuda", dtype, **how)
            apart = float((found != due).any(dim=(0, 2)).float().mean())
            told = f"constrained, {name}, {dtype}: "
            check(told + "share of chains on another path", apart, 0 if dtype == "float64" else 0.2)
            moved = int((found != found[0]).sum(dim=2).max())
            check(told + "most changes", moved, how.get("max_changes", found.shape[2]))
            if "tie" in how:
                tied = found[-1][:, first + 1] != found[-1][:, first + 7]
                check(told + "tied sites that differ", float(tied.sum()), 0)
            if "2:" in how.get("allow", ""):
                check(told + "words at the site", len(found[1:, :, first + 2].unique()), 3)


def on_a_backbone() -> None:
    """ProteinMPNN's conditionals on the GPU are those of float64 on the CPU."""
    name = f"proteinmpnn:{HAIRPIN}"
    exact = load(name, device="cpu", dtype="float64")
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 20, (8, exact.length), generator=generator)
    sites = torch.stack([torch.randperm(exact.length, generator=generator)[:3] for _ in range(8)])
    due = exact.scores(tokens, sites).log_softmax(-1)
    for dtype, limit in (("float64", 1e-9), ("float32", 1e-4)):
        model = load(name, device="cuda", dtype=dtype)
        found = model.scores(tokens.cuda(), sites.cuda()).log_softmax(-1).cpu()
        check(f"ProteinMPNN, {dtype}", float((found - due).abs().max()), limit)
