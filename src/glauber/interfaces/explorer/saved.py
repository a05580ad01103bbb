"""A page in one file that shows what was seen and needs no server.

It contains the states as a film, and the same modules that show them with a server. Scripts are
named by their hash, so that nothing else can run in it; texts are JSON without `<`.
"""

import base64
import gzip
import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from string import Template

from glauber.foundation.errors import GlauberError
from glauber.foundation.study import counted
from glauber.interfaces.explorer.live import LiveChains
from glauber.interfaces.explorer.questions import Answer, Answers, to_json
from glauber.interfaces.explorer.stored import KINDS
from glauber.interfaces.report import bundle
from glauber.runs.film import Film, whole_film
from glauber.runs.run import Run

TEMPLATE = Path(bundle.__file__).parent / "templates" / "saved.html"
START = (
    '\nconst page = {script};\npage.open(document.getElementById("page"), '
    'JSON.parse(document.getElementById("carried").textContent));\n'
)
EVENTS = 100_000  # of a run's film; about a megabyte
LARGEST = 32 * 2**20  # bytes of a page
COLUMNS = ("frame", "chain", "site", "token", "log_prob", "entropy")
FILL_OPTIONS = ("model", "order", "count", "temperature", "seed", "correct")

State = Mapping[str, object]  # of the page


def save(answers: Answers, live: LiveChains, run: Run | None, state: State) -> Answer:
    """A page of what is seen: its file's name and its text."""
    view = state.get("view") if isinstance(state, Mapping) else None
    if view == "run" and run is not None:
        content, note = _run_content(answers, run)
    elif view in ("live", "pair"):
        content, note = _live_content(live, state)
    elif view == "fill":
        content, note = _fill_content(answers, state)
    else:
        raise GlauberError("there is nothing to be saved yet: open a run or start a chain first.")
    about = answers("about", {})
    content["answers"]["about"] = about | {"views": [view], "passages": [], "translator": False}
    content["state"] = dict(state)
    name = str(run.label if view == "run" and run is not None else view)
    content["note"] = f"{note} Saved by glauber {about['version']}: it asks no model."
    text = page(content, title=f"glauber: {name}")
    if len(text) > LARGEST:
        raise GlauberError(f"the page would have {len(text) / 2**20:,.0f} MB: too much to save.")
    file_name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "page"
    return {"name": f"glauber-{file_name}.html", "html": text}


def page(content: Answer, *, title: str) -> str:
    """A page in one file; all of its content is data."""
    script = START.format(script=bundle.script("saved.js")).replace("</", "<\\/")
    style = bundle.css()
    policy = (
        f"default-src 'none'; script-src {_by_hash(script)}; style-src {_by_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        policy=html.escape(policy),
        title=html.escape(title),
        note=html.escape(content["note"]),
        style=style,
        script=script,
        carried=to_json(content).decode().replace("<", "\\u003c"),
    )


def _by_hash(text: str) -> str:
    """A script or style by its hash, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _compress(film: Film) -> Answer:
    """The film with its columns compressed."""
    answer = film.to_dict()
    for name in COLUMNS:
        compressed = gzip.compress(base64.b64decode(answer[name].pop("data")), mtime=0)
        answer[name]["gzip"] = base64.b64encode(compressed).decode("ascii")
    return answer


def _run_content(answers: Answers, run: Run) -> tuple[Answer, str]:
    """The whole run, thinned where it is long, and the bands that were found so far."""
    film = whole_film(run, most_events=EVENTS)
    last = film.count * film.every
    about = answers("run", {}) | {"steps": last, "planned": last, "finished": True}
    bands = {kind: answers("bands", {"kind": kind}) for kind in KINDS}
    why = "This was not ready yet when the page was saved."
    for kind in [kind for kind in KINDS if bands[kind]["state"] == "working"]:
        bands[kind] = {"state": "none", "why": why, "note": "", "bands": []}
    ending = {1: "st", 2: "nd", 3: "rd"}.get(film.every, "th")
    shown = f"every {film.every:,}{ending} step" if film.every > 1 else "every step"
    note = f"A stored run: {counted(run.n_chains, 'chain')}, {shown} up to {last:,}."
    curves = answers("curves", {"source": "run"})
    return {
        "answers": {"run": about | {"every": film.every}, "curves": curves},
        "film": _compress(film.with_three_digits()),
        "bands": bands,
    }, note


def _live_content(live: LiveChains, state: State) -> tuple[Answer, str]:
    """Live chains from their start to the step that is shown."""
    last = state.get("step", 0)
    if isinstance(last, bool) or not isinstance(last, int) or last < 0:
        raise GlauberError("the step of what is seen is not a whole number.")
    film = live.whole_film({"trails": trails_of(state)}, last)
    chains = "Two chains" if len(film.chains) > 1 else "A chain"
    note = f"{chains} of {str(state.get('model'))[:80]}, every step up to {last:,}."
    return {"answers": {}, "film": _compress(replace(film, end=last))}, note


def trails_of(state: State) -> list[Answer]:
    """The trails of a state of the page, as `trail.js` makes them."""
    shared = {name: state.get(name) for name in ("model", "seed", "chain", "temperature", "scan")}
    shared["frozen"] = state.get("frozen") or []

    def trail(text: object, edits: object) -> Answer:
        begin = {"start": state["start"]} if state.get("start") else {"text": text}
        return shared | begin | {"edits": edits or []}

    first = trail(state.get("text"), state.get("edits"))
    if state["view"] == "pair":
        return [first, trail(state.get("text2"), state.get("edits"))]
    branch = state.get("branch")
    return [first] if branch is None else [first, trail(state.get("text"), branch)]


def _fill_content(answers: Answers, state: State) -> tuple[Answer, str]:
    """Blanks being filled, or a sentence being translated, pass by pass."""
    values = {name: value for name, value in state.items() if value is not None}
    if values.get("mode") == "translate":
        names = {"text": "text", "steps": "passes"}
        options = {name: values[own] for name, own in names.items() if own in values}
        return {"answers": {"translate": answers("translate", options)}}, (
            "A translation, pass by pass."
        )
    options = {name: values[name] for name in FILL_OPTIONS if name in values}
    options["text"] = re.sub("_{2,}", "[MASK]", str(values.get("text", "")))
    return {"answers": {"fill": answers("fill", options)}}, "Blanks filled in, pass by pass."
