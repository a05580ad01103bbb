"""Unmasking: joint laws, plans and public procedures as oracles."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from glauber.conditionals.load import load
from glauber.conditionals.table import Joint
from glauber.dynamics.kernel import State, start
from glauber.generation.orders import ORDERS
from glauber.generation.unmasking import Unmasking, unmask

JOINT = Joint.random(3, 3, seed=1)


def everything_hidden(n_chains: int, length: int, hidden_token: int, **parts: object) -> State:
    tokens = torch.full((n_chains, length), hidden_token)
    return start(tokens, torch.ones_like(tokens, dtype=torch.bool), **parts)  # type: ignore[arg-type]


def last_texts(conditionals: object, state: State, how: Unmasking, hidden_token: int) -> Tensor:
    for after, _ in unmask(conditionals, state, how, hidden_token=hidden_token, seed=3):  # type: ignore[arg-type]
        state = after
    return state.tokens


@pytest.mark.parametrize("order", [name for name in ORDERS if name != "drawn"])
def test_one_at_a_time_gives_the_joint_law(order: str) -> None:
    n = 6000
    tokens = last_texts(JOINT, everything_hidden(n, 3, 3), Unmasking(order=order), 3)
    counts = torch.bincount((tokens * torch.tensor([9, 3, 1])).sum(1), minlength=27)
    wanted = n * JOINT.probabilities()
    far = float(((counts - wanted) ** 2 / wanted).sum())
    assert far < 54.05  # the 0.999 quantile of chi-square with 26 degrees of freedom


def test_texts_do_not_depend_on_the_batch(tiny_folder: Path) -> None:
    model = load(str(tiny_folder))
    tokens, free = model.vocabulary.encode(["the cat sat on the mat .", "is it red or blue !"] * 32)
    state = start(tokens.masked_fill(free, model.hidden_token), free, temperature=0.9)
    how = Unmasking(count="threshold:0.6")
    texts = {}
    for size in (1, 7, 64):
        parts = torch.arange(64).split(size)
        made = [
            last_texts(model.conditionals(), state.rows(part), how, model.hidden_token)
            for part in parts
        ]
        texts[size] = torch.cat(made)
    assert torch.equal(texts[1], texts[64])
    assert torch.equal(texts[7], texts[64])
