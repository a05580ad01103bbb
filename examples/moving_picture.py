"""How does a chain move? One chain of the bundled model, as a picture that plays by itself.

`python examples/moving_picture.py` makes docs/chain.svg again. Every step of a real run is shown:
the site that is redrawn is marked, and what no longer is the token of the start is coloured.
"""

import argparse
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template

import numpy as np
from numpy.typing import NDArray

import glauber

PLACE = Path(__file__).resolve().parent.parent / "docs" / "chain.svg"
TEXT = "The old king walked slowly through the empty garden at night and thought of his lost son."
WIDTH, LEFT, TOP, LINE, LETTER = 620, 22, 84, 40, 12.0  # pixels; LETTER is the width of each
SECONDS, HELD = 0.36, 10  # of a step; steps for which the last text stands
PAGE = Template("""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $width $height" width="$width" role="img">
<title>$title</title>
<style>
text { font: 20px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328 }
.card { fill: #fff; stroke: #c9ced6 } .track { fill: #e5e7eb } .bar { fill: #0072b2 }
.quiet { font: 14px system-ui, "Segoe UI", Roboto, Arial, sans-serif; fill: #5b6472 }
.new { fill: #0063a0 } .changed { fill: #ffd166 } .same { fill: none; stroke: #9aa3af }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e8eb } .card { fill: #14171b; stroke: #363c46 } .track { fill: #363c46 }
  .quiet { fill: #a4abb6 } .new, .bar { fill: #6cc1f5 } .changed { fill: #6b5200 }
}
.later { visibility: hidden }
@media (prefers-reduced-motion: no-preference) {
  g { animation: ${seconds}s step-end infinite }
  .bar { animation: grow ${seconds}s linear infinite }
}
@keyframes grow { from { width: 0 } $whole% { width: ${inside}px } }
$times
</style>
<rect class="card" x="0.5" y="0.5" width="$card" height="$tall" rx="8"/>
<rect class="track" x="$left" y="48" width="$inside" height="3"/>
<rect class="bar" x="$left" y="48" width="$inside" height="3"/>
$shown
</svg>
""")


def lines_of(widths: NDArray[np.int64]) -> list[slice]:
    """The sites of each line, from widths (steps, sites): no text of the run is wider than it."""
    ends, room = [0], (WIDTH - 2 * LEFT) / LETTER
    for site in range(widths.shape[1]):
        if widths[:, ends[-1] : site + 1].sum(axis=1).max() > room:
            ends.append(site)
    return [slice(a, b) for a, b in zip(ends, [*ends[1:], widths.shape[1]], strict=True)]


def word(part: str, x: float, y: int, kind: str) -> str:
    """One token, `kind` being "" or "new"; a given length keeps the layout in any font."""
    wide = len(part) * LETTER
    return f'<text class="{kind}" x="{x:g}" y="{y}" textLength="{wide:g}">{escape(part)}</text>'


def row(parts: list[str], new: list[bool], drawn: int, kind: str, y: int) -> str:
    """A line of a text; behind the token `drawn` (-1: none) stands a mark of that kind."""
    found, x = "", float(LEFT)
    for place, part in enumerate(parts):
        shown = part.lstrip()
        x += LETTER * (len(part) - len(shown)) * (place > 0)
        if place == drawn:
            size = f'width="{len(shown) * LETTER + 6:g}" height="30" rx="4"'
            found += f'<rect class="{kind}" x="{x - 3:g}" y="{y - 22}" {size}/>'
        found += word(shown, x, y, "new" if new[place] else "")
        x += LETTER * len(shown)
    return found


def spelled(run: glauber.Run, tokens: NDArray[np.int64]) -> list[str]:
    """Each token with the blank before it, which sentence marks do not have."""
    parts = run.vocabulary.parts(tokens)
    return [part.strip() if part.strip() in {*".,;:!?"} else part for part in parts]


def frames(run: glauber.Run) -> Iterator[list[str]]:
    """What stands at each step: the head line, then the lines of the text."""
    sites = np.flatnonzero(run.free[0])
    states = np.array([tokens[0, sites] for _, tokens in run.states()])  # (steps + 1, sites)
    parts = [spelled(run, state) for state in states]
    lines = lines_of(np.array([[len(part) for part in one] for one in parts]))
    drawn = [-1, *np.searchsorted(sites, run.read("site")[0, :, 0])]
    for step, state in enumerate(states):
        new = (state != states[0]).tolist()
        kind = "changed" if step and state[drawn[step]] != states[step - 1][drawn[step]] else "same"
        left = f"{len(new) - sum(new)} of {len(new)} tokens are those of the start"
        head = f"temperature {run.temperatures[0]:g}, step {step}: {left}"
        found = [f'<text class="quiet" x="{LEFT}" y="32">{head}</text>']
        for place, line in enumerate(lines):
            here = drawn[step] - line.start if line.start <= drawn[step] < line.stop else -1
            found.append(row(parts[step][line], new[line], here, kind, TOP + LINE * place))
        yield found


def moving_picture(run: glauber.Run) -> str:
    """The run's first chain as an SVG that plays in a browser; still ones show its start."""
    columns = list(zip(*frames(run), strict=True))  # each part of the picture over all steps
    count = run.steps + 1 + HELD
    times, shown = {}, []
    for column in columns:
        begin = 0
        for content, same in groupby(column):
            end = begin + len(list(same))
            end_shown = count if end == len(column) else end
            times[begin, end_shown] = keyframes(begin, end_shown, count)
            kind = ' class="later"' if begin else ""
            name = f"s{begin}-{end_shown}"
            shown.append(f'<g{kind} style="animation-name: {name}">{content}</g>')
            begin = end
    height = TOP + LINE * (len(columns) - 1) - 14
    return PAGE.substitute(
        title=escape(run.signature), width=WIDTH, height=height, card=WIDTH - 1, tall=height - 1,
        left=LEFT, inside=WIDTH - 2 * LEFT, seconds=round(count * SECONDS, 2),
        whole=f"{100 * run.steps / count:.2f}", times="\n".join(times.values()),
        shown="\n".join(shown),
    )  # fmt: skip


def keyframes(begin: int, end: int, count: int) -> str:
    """Shown from one step to another, of so many that the picture has."""
    first = "" if begin == 0 else "0% { visibility: hidden } "
    last = "" if end == count else f" {100 * end / count:.2f}% {{ visibility: hidden }}"
    on = f"{100 * begin / count:.2f}% {{ visibility: visible }}"
    return f"@keyframes s{begin}-{end} {{ {first}{on}{last} }}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="bundled:english")
    options.add_argument("--text", default=TEXT)
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--temperature", type=float, default=0.8)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, default=PLACE)
    chosen = vars(options.parse_args())
    out = chosen.pop("out")
    run = glauber.sample(chosen.pop("model"), [chosen.pop("text")], chains=1, **chosen)
    out.write_text(moving_picture(run), encoding="utf-8")


if __name__ == "__main__":
    main()
