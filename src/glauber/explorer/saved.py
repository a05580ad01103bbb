"""What is sent to a colleague? One page in one file that shows what was seen and asks nobody.

It carries the states as a film, and the same modules that show them with a server. Scripts are
named by their hash, so that nothing else can run in it; texts are JSON without `<`.
"""

import base64
import gzip
import hashlib
import html
import re
import time
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import GlauberError
from glauber.explorer.answers import Answer, Answers, to_json
from glauber.explorer.bands import KINDS
from glauber.figures import bundle
from glauber.result import counted
from glauber.runs.film import column, whole_film
from glauber.runs.run import Run

TEMPLATE = Path(bundle.__file__).parent / "templates" / "saved.html"
START = (
    '\nconst page = {script};\npage.open(document.getElementById("page"), '
    'JSON.parse(document.getElementById("carried").textContent));\n'
)
EVENTS = 100_000  # of a run's film; about a megabyte
MOST = 200_000  # redraws of living chains
PIECE = 2_000  # steps asked for at once
PATIENCE = 60.0  # seconds for chains to be made again
LARGEST = 32 * 2**20  # bytes of a page
COLUMNS = ("frame", "chain", "site", "token", "log_prob", "entropy")
KINDS_OF = {"int32": "<i4", "float32": "<f4", "uint8": "u1"}


def save(answers: Answers, run: Run | None, state: Mapping[str, Any]) -> Answer:
    """A page of what is seen: its file's name and its text."""
    view = state.get("view") if isinstance(state, Mapping) else None
    if view == "run" and run is not None:
        carried, note = _of_run(answers, run)
    elif view in ("live", "pair"):
        carried, note = _of_trails(answers, state)
    elif view == "fill":
        carried, note = _of_fill(answers, state)
    else:
        raise GlauberError("there is nothing to be saved yet: open a run or start a chain first.")
    about = answers("about", {})
    carried["answers"]["about"] = about | {"views": [view], "passages": [], "translator": False}
    carried["state"] = dict(state)
    name = run.label if view == "run" and run is not None else view
    carried["note"] = f"{note} Saved by glauber {about['version']}: it asks no model."
    text = page(carried, title=f"glauber: {name}")
    if len(text) > LARGEST:
        raise GlauberError(f"the page would have {len(text) / 2**20:,.0f} MB: too much to save.")
    return {"name": f"glauber-{_in_a_name(str(name))}.html", "html": text}


def page(carried: Answer, *, title: str) -> str:
    """A page in one file of what it carries; all of that is data."""
    script = START.format(script=bundle.script("saved.js")).replace("</", "<\\/")
    style = bundle.css()
    policy = (
        f"default-src 'none'; script-src {_by_hash(script)}; style-src {_by_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        policy=html.escape(policy),
        title=html.escape(title),
        note=html.escape(carried["note"]),
        style=style,
        script=script,
        carried=to_json(carried).decode().replace("<", "\\u003c"),
    )


def _by_hash(text: str) -> str:
    """A script or style by its hash, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _in_a_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:60] or "page"


def _of_run(answers: Answers, run: Run) -> tuple[Answer, str]:
    """The whole run, thinned where it is long; what was found in it so far."""
    film = whole_film(run, most_events=EVENTS)
    last = film.count * film.every
    about = answers("run", {}) | {"steps": last, "planned": last, "finished": True}
    bands = {kind: _known_bands(answers("bands", {"kind": kind})) for kind in KINDS}
    curves = answers("curves", {"source": "run"})
    shown = f"every {_th(film.every)} step" if film.every > 1 else "every step"
    note = f"A stored run: {counted(run.n_chains, 'chain')}, {shown} up to {last:,}."
    stored = {"run": about | {"every": film.every}, "curves": curves}
    return {
        "answers": stored,
        "film": _compress(film.with_three_digits().to_dict()),
        "bands": bands,
    }, note


def _th(number: int) -> str:
    return f"{number:,}" + {1: "st", 2: "nd", 3: "rd"}.get(number, "th")


def _known_bands(bands: Answer) -> Answer:
    """What was found; nothing where it was not ready yet."""
    if bands["state"] != "working":
        return bands
    why = "This was not ready yet when the page was saved."
    return {"state": "none", "why": why, "note": "", "bands": []}


def _of_trails(answers: Answers, state: Mapping[str, Any]) -> tuple[Answer, str]:
    """Living chains from their start to the step that is shown."""
    last = state.get("step", 0)
    if isinstance(last, bool) or not isinstance(last, int) or last < 0:
        raise GlauberError("the step of what is seen is not a whole number.")
    film = trail_film(answers, trails_of(state), last)
    chains = "Two chains" if len(film["chains"]) > 1 else "A chain"
    note = f"{chains} of {str(state.get('model'))[:80]}, every step up to {last:,}."
    return {"answers": {}, "film": _compress(film)}, note


def trails_of(state: Mapping[str, Any]) -> list[Answer]:
    """The trails of a state of the page, as `trail.js` makes them."""
    shared = {name: state.get(name) for name in ("model", "seed", "chain", "temperature", "scan")}
    start = {"start": state["start"]} if state.get("start") else None

    def trail(text: Any, edits: Any) -> Answer:
        begin = start or {"text": text}
        return shared | begin | {"frozen": state.get("frozen") or [], "edits": edits or []}

    first = trail(state.get("text"), state.get("edits"))
    if state["view"] == "pair":
        return [first, trail(state.get("text2"), state.get("edits"))]
    several = state.get("branch") is not None
    return [first, trail(state.get("text"), state["branch"])] if several else [first]


def trail_film(answers: Answers, trails: list[Answer], last: int) -> Answer:
    """The film of trails from step 0 to `last`, which comes in pieces."""
    pieces: list[Answer] = []
    end, first, events = time.monotonic() + PATIENCE, 0, 0
    while not pieces or first < last:
        if max(events, last * len(trails)) > MOST:
            raise GlauberError(f"a page carries at most {MOST:,} redraws: save an earlier step.")
        if time.monotonic() > end:
            raise GlauberError(f"{last:,} steps take too long to be made again.")
        count = min(last - first, PIECE)
        piece = answers("film", {"source": {"trails": trails}, "first": first, "count": count})
        if piece["count"] or not last:
            pieces.append(piece)
            first, events = first + piece["count"], events + len(_values(piece["frame"]))
    return _join(pieces)


def _join(pieces: list[Answer]) -> Answer:
    """Films of which each goes on where the one before ends, as one."""
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in COLUMNS}
    words: dict[str, str] = {}
    for piece in pieces:
        for name in COLUMNS:
            values = _values(piece[name])
            columns[name].append(values + np.int32(piece["first"]) if name == "frame" else values)
        words |= piece["words"]
    joined = {name: column(np.concatenate(values)) for name, values in columns.items()}
    last = pieces[-1]["first"] + pieces[-1]["count"]
    return pieces[0] | joined | {"words": words, "count": last, "end": last}


def _values(packed: Mapping[str, str]) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(packed["data"]), KINDS_OF[packed["dtype"]])


def _compress(film: Answer) -> Answer:
    """The film with its columns compressed."""
    columns = {}
    for name in COLUMNS:
        packed = gzip.compress(base64.b64decode(film[name]["data"]), mtime=0)
        data = base64.b64encode(packed).decode("ascii")
        columns[name] = {"dtype": film[name]["dtype"], "gzip": data}
    return film | columns


def _of_fill(answers: Answers, state: Mapping[str, Any]) -> tuple[Answer, str]:
    """Blanks being filled, or a sentence being translated, pass by pass."""
    name, options = _fill_question(state)
    answer = answers(name, options)
    what = "A translation" if name == "translate" else "Blanks filled in"
    return {"answers": {name: answer}}, f"{what}, pass by pass."


FILL = ("model", "order", "count", "temperature", "seed", "correct")


def _fill_question(state: Mapping[str, Any]) -> tuple[str, Answer]:
    state = {name: value for name, value in state.items() if value is not None}
    if state.get("mode") == "translate":
        names = {"text": "text", "steps": "passes"}
        return "translate", {name: state[own] for name, own in names.items() if own in state}
    blanks = {"text": re.sub("_{2,}", "[MASK]", str(state.get("text", "")))}
    return "fill", {name: state[name] for name in FILL if name in state} | blanks
