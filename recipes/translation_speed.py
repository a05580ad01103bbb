"""Times of the shipped translators on another machine, as `glauber paper B-speed` shows them.

    PYTHONPATH=src:. python -m recipes.translation_speed --device cuda --out $OUT/speed.json

Needs torch, sentencepiece, safetensors and numpy alone. The times are in whole microseconds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from glauber.translation.timing import time_translator


def main(words: list[str] | None = None) -> None:
    """Reads the command line and writes the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--long", type=int, default=450)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(words)
    times = time_translator(long=args.long, device=args.device)
    seconds = {
        system: {part: [round(x, 6) for x in values] for part, values in parts.items()}
        for system, parts in times.seconds.items()
    }
    record = {
        "file": Path(times.file).name,
        "machine": times.machine,
        "target_tokens": times.target_tokens,
        "passes": times.passes,
        "seconds": seconds,
    }
    args.out.write_text(json.dumps(record, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
