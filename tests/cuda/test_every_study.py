"""Every study gives on an NVIDIA GPU the numbers that it gives on the CPU."""

import math
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

import glauber
from conftest import TEXTS, make_model, make_tokenizer

pytestmark = pytest.mark.cuda

EXAMPLES = {
    name: call
    for path in sorted((Path(__file__).parent.parent / "laws").glob("examples_*.py"))
    for name, call in import_module(path.stem).EXAMPLES.items()
}
TIMED = {"time_translator"}  # its numbers are durations and their ratios
DURATIONS = ("second", "latency", "per_s", "time")
TOLERANCE = 1e-6  # of float64; the longest sum is over a thousand numbers


@dataclass(frozen=True)
class At:
    """What an example may use."""

    model: glauber.MaskedLM
    texts: list[str]
    run: glauber.Run
    folder: Path


@pytest.fixture(scope="module")
def grounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    make_model("bert").save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    texts = ([text for text in TEXTS if "?" not in text] * 2)[:8]
    prepared = []
    for device in ("cpu", "cuda"):
        model = glauber.load(str(folder), device=device, dtype="float64")
        options = dict(steps=60, length=6, temperature=0.8, seed=1, device=device)
        run = glauber.sample(model, texts[:4], **options, out=folder / f"run-{device}")
        prepared.append((model, texts, run))
    return prepared


def numbers(value):
    """All numbers in a result, in order, without durations and speeds."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not any(word in str(name) for word in DURATIONS):
                yield from numbers(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield float(value)


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - TIMED))
def test_the_numbers_are_those_of_the_cpu(name, grounds, tmp_path):
    answers = []
    for number, ground in enumerate(grounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        answers.append(list(numbers(EXAMPLES[name](At(*ground, folder)).to_dict())))
    assert answers[1] == pytest.approx(answers[0], rel=TOLERANCE, abs=TOLERANCE)
