"""Diffusion LMs write: LLaDA's published procedure, written out plainly, as the oracle."""

import numpy as np
import pytest
import torch

import glauber
from bench.diffusion import TINY, TINY_CELLS, measured, model_of
from glauber.dynamics.kernel import start
from glauber.dynamics.unmasking import Unmasking, unmask
from glauber.models.load import load
from tiny_diffusion import END, WORDS, dream, llada, llada_logits, mdlm, tokenizer_of

MASK = len(WORDS) + 1  # the mask token's number
PROMPT = "the old dog sat on"


def low_confidence(config, weights, prompt, *, length, steps, block, never=()):
    """The tokens that LLaDA's sampler writes behind a prompt at temperature 0.

    Blocks from left to right, each with its share of the steps. A block's hidden tokens are
    divided evenly among its steps, the first ones taking what is left over. In a step every hidden
    place gets its likeliest token; of those in blocks up to this one the most probable are kept.
    """
    row = np.array([*prompt, *[MASK] * length])
    first, each = len(prompt), steps * block // length
    for begin in range(first, first + length, block):
        end = begin + block
        n_hidden = int((row[begin:end] == MASK).sum())
        shares = [n_hidden // each + (at < n_hidden % each) for at in range(each)]
        for share in shares:
            logits = llada_logits(config, weights, row)
            logits[:, list(never)] = -np.inf
            likeliest = logits.argmax(axis=1)
            probs = np.exp(logits - logits.max(axis=1, keepdims=True))
            sure = probs.max(axis=1) / probs.sum(axis=1)
            sure[row != MASK] = -np.inf
            sure[end:] = -np.inf
            kept = np.argsort(-sure, kind="stable")[:share]
            assert (likeliest[kept] != MASK).all()
            row[kept] = likeliest[kept]
    return row


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize(("steps", "block"), [(12, 12), (4, 12), (6, 4), (12, 4), (3, 4)])
def test_lladas_low_confidence_procedure_writes_the_same(seed, steps, block, tmp_path):
    folder, config, weights = llada(tmp_path / "m", seed=seed)
    model = load(str(folder))
    prompt = model.vocabulary.pieces(PROMPT)
    due = low_confidence(config, weights, prompt, length=12, steps=steps, block=block)
    tokens = torch.tensor([[*prompt, *[MASK] * 12]])
    state = start(tokens, tokens == MASK, temperature=0.0, greedy=True)
    how = Unmasking("confidence", "linear", passes=steps * block // 12, block=block)
    n_passes = 0
    for state, _ in unmask(model, state, how, hidden_token=MASK, seed=0):  # noqa: B007, B020
        n_passes += 1
    assert state.tokens[0].tolist() == due.tolist()
    assert n_passes == steps
    assert len(set(due[len(prompt) :])) > 1


def test_generate_writes_it_too_and_never_the_mask(tmp_path):
    folder, config, weights = llada(tmp_path / "m", seed=8)
    how = {"prefix": PROMPT, "length": 12, "chains": 2, "temperature": 0.0}
    made = glauber.generate(str(folder), passes=2, block=4, **how)
    model = load(str(folder))
    prompt = model.vocabulary.pieces(PROMPT)
    due = low_confidence(config, weights, prompt, length=12, steps=6, block=4, never=[MASK])
    assert made.texts == [model.vocabulary.decode(due.tolist())] * 2


def test_both_sides_of_the_bench_write_the_same():
    row = measured(model_of(TINY, "cpu", torch.float32), TINY_CELLS[1], turns=1)
    assert row.equal == 1.0


@pytest.mark.parametrize("family", [llada, dream, mdlm])
def test_texts_of_every_family_do_not_depend_on_the_batch(family, tmp_path):
    folder, *_ = family(tmp_path / "m")
    text = "the [MASK] dog sat [MASK:2]"
    texts = [
        glauber.infill(str(folder), [text], chains=5, seed=1, batch_size=size).texts
        for size in (1, 2, 5)
    ]
    assert sorted(texts[0]) == sorted(texts[1]) == sorted(texts[2])
    assert all(one.startswith("the ") and " dog sat" in one for one in texts[0])


def test_a_mask_token_may_be_named_by_the_call(tmp_path):
    words = (*WORDS, END, "<|m|>")
    folder, *_ = llada(
        tmp_path / "m", change={"mask_token_id": None}, tokenizer=tokenizer_of(words)
    )
    how = {"length": 6, "chains": 2, "seed": 2}
    made = glauber.generate(str(folder), mask_token="<|m|>", out=tmp_path / "run", **how)
    again = glauber.generate(f"{folder}?mask_token=<|m|>", out=tmp_path / "run", **how)
    assert made.texts == again.texts
    assert "<|m|>" not in " ".join(made.texts)
