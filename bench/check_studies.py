"""Does every study say on a GPU what it says on the CPU? python -m bench.check_studies [STUDY…]

The small call of each study (tests/laws/examples_*.py) on a tiny model in float64, on both
devices. Prints one line per study and exits with 1 if one cannot be made on the GPU.
"""

import math
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import glauber

TESTS = Path(__file__).parent.parent / "tests"
sys.path += [str(TESTS), str(TESTS / "laws")]


@dataclass(frozen=True)
class At:
    """What an example may use."""

    model: Any
    texts: list[str]
    run: Any
    folder: Path


def ground(device: str, folder: Path) -> At:
    from conftest import TEXTS, make_model, make_tokenizer

    place = folder / "tiny"
    make_model("bert").save_pretrained(place)
    make_tokenizer().save_pretrained(place)
    model = glauber.load(str(place), device=device, dtype="float64")
    texts = ([text for text in TEXTS if "?" not in text] * 2)[:8]
    how = dict(steps=60, length=6, temperature=0.8, seed=1, device=device)
    return At(model, texts, glauber.sample(model, texts[:4], **how, out=folder / "run"), folder)


def numbers(value: Any) -> Iterator[float]:
    """All numbers in a result, in order; times and speeds are no answer."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not any(word in str(name) for word in ("second", "latency", "per_s", "time")):
                yield from numbers(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield float(value)


def compared(name: str, call: Any, here: At, there: At) -> str:
    found = []
    for number, at in enumerate((here, there)):
        folder = at.folder / f"{name}-{number}"
        folder.mkdir()
        result = call(At(at.model, at.texts, at.run, folder))
        found.append(list(numbers(result.to_dict())))
    if len(found[0]) != len(found[1]):
        return f"{len(found[0])} numbers on the CPU, {len(found[1])} on the GPU"
    gaps = [abs(a - b) / max(1, abs(a)) for a, b in zip(*found, strict=True)]
    return f"{len(gaps)} numbers, at most {max(gaps, default=0):.1e} apart"


def main() -> None:
    failed = 0
    examples = {
        name: call
        for path in sorted((TESTS / "laws").glob("examples_*.py"))
        for name, call in import_module(path.stem).EXAMPLES.items()
    }
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        here, there = ground("cpu", Path(one)), ground("cuda", Path(two))
        for name, call in examples.items():
            if len(sys.argv) > 1 and name not in sys.argv[1:]:
                continue
            try:
                print(f"    ok  {name}: {compared(name, call, here, there)}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAILED  {name}: {type(error).__name__} {error}", flush=True)
                traceback.print_exc(limit=-3)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
