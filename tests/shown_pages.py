"""What do pages show? Their commands in order, and the lines that stand behind each.

`python tests/shown_pages.py` runs all of them in a new folder and names every shown line that is
not printed now, to the letter: for whoever changes a page or an answer.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
FETCHED = "docs/how-to/proteins.md"  # its model comes from PyPI: its commands are only parsed
HOW_TO = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/how-to/*.md"))
PAGES = ["README.md", "docs/index.md", *(page for page in HOW_TO if page != FETCHED)]
# Chains write another text on a CPU that rounds differently, and versions are others elsewhere:
# these are run, and not compared.
VARIED = {
    "sample", "extend", "resume", "show", "generate", "traps", "topics", "prefixes", "diagnose",
    "semantic-drift", "couple", "phase", "sweep", "entropy-production", "cite",
}  # fmt: skip


def commands(page: str) -> list[tuple[str, list[str]]]:
    """Each command of the blocks `bash` and `console`, with the lines that are shown behind it."""
    pattern = r"```(?:bash|console)\n(.*?)```"
    if page == "README.md":  # where a table has the commands
        pattern += r"|\| `(glauber [^`\n]+)` \|"
    found: list[tuple[str, list[str]]] = []
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in re.finditer(pattern, text, re.S):
        for line in match[match.lastindex].splitlines():
            if line.startswith(("$ glauber ", "glauber ")):
                found.append((line.removeprefix("$ "), []))
            elif found and not line.startswith("make "):
                found[-1][1].append(line)
    return found


def words(command: str) -> list[str]:
    return shlex.split(command, comments=True)[1:]


def missing(shown: list[str], printed: str, like: Callable[[str], str] = str.rstrip) -> list[str]:
    """The lines shown that are not printed, in this order; … stands for lines left out."""
    lacking, place, lines = [], 0, [like(line) for line in printed.splitlines()]
    for line in shown:
        if line == "…":
            continue
        if like(line) in lines[place:]:
            place = lines.index(like(line), place) + 1
        else:
            lacking.append(line)
    return lacking


def without_numbers(line: str) -> str:
    """The words alone: rounding may change a figure, and with it the width of a column."""
    return " ".join(re.sub(r"[-+]?\d[\d,.]*(e[-+]?\d+)?", "0", line).split())


def main() -> None:
    printed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for page in PAGES:
            for command, shown in commands(page):
                if command not in printed:
                    call = [sys.executable, "-m", "glauber", *words(command)]
                    done = subprocess.run(call, cwd=folder, capture_output=True, text=True)
                    printed[command] = done.stdout
                    print(f"{page}: {command}", "" if done.returncode == 0 else done.stderr)
                for line in missing(shown, printed[command]):
                    print(f"    not printed: {line}")


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "100")
    main()
