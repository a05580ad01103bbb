"""The public entrance of the explorer: a run, models, and the page that shows them."""

import os
import sys
import webbrowser
from collections.abc import Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from glauber.dynamics.scans import OFFERED
from glauber.foundation.errors import GlauberError
from glauber.foundation.extras import need
from glauber.foundation.parameters import Device, Trust
from glauber.interfaces.explorer.models import Loader, Models, named_loader
from glauber.interfaces.explorer.questions import Answer, Answers, Question
from glauber.models.base import Conditionals
from glauber.models.load import check_name, load
from glauber.models.shelf import bundled_names
from glauber.models.weights import check_device, reachable, split_name
from glauber.runs.run import Run
from glauber.sampling.reopened import model_of
from glauber.texts.read import passages

if TYPE_CHECKING:  # of the extra `explore`
    from glauber.interfaces.explorer.live import LiveChains
    from glauber.interfaces.explorer.notebook import Page
    from glauber.interfaces.explorer.server import Server
    from glauber.interfaces.explorer.stored import StoredRun

PASSAGES = 20  # starting texts that a page offers
BY_SOURCE = ("film", "curves", "conditional", "sure")  # asked of a run and of live chains

What = Annotated[Run | str | Path | Conditionals | None, "Folder of a run; or a model."]
Several = Annotated[
    str | Conditionals | Sequence[str | Conditionals] | None,
    "Model to use besides the bundled one and the run's own; several times for more.",
]


class LoadOptions(TypedDict):
    """How models are loaded."""

    device: str
    trust_remote_code: bool


def explore(
    what: What = None,
    *,
    model: Several = None,
    link: Annotated[str, "What followed # in the address of an earlier session."] = "",
    port: Annotated[int, "Port on 127.0.0.1; 0 is any free one."] = 0,
    browser: Annotated[bool, "Open the page in a browser; a notebook shows it by itself."] = True,
    device: Device = "auto",
    trust_remote_code: Trust = False,
) -> "Explorer":
    """Watch a chain, ask it and change it: a page in the browser or in a notebook.

    The page plays stored runs (also while they grow), runs chains live, couples two texts, fills
    in blanks and translates. Only this machine can reach it.
    """
    need("explore", "the explorer")
    options = LoadOptions(device=device, trust_remote_code=trust_remote_code)
    run, models = _run_and_models(what, model, options)
    explorer = Explorer(_answers(run, models, options), link=link, port=port)
    if browser and not in_notebook():
        explorer.open()
    return explorer


class Explorer:
    """An open explorer: `url` in a browser, or shown by a notebook; `stop()` ends it."""

    def __init__(self, answers: Answers, *, link: str = "", port: int = 0) -> None:
        self.answers = answers  # what the page asks for
        self.link = "#" + link.lstrip("#") if link else ""
        self._port = port
        self._server: Server | None = None
        self._page: Page | None = None

    @property
    def url(self) -> str:
        """The address of the page; the server starts when it is first asked for."""
        return self._running_server().url + self.link

    def _running_server(self) -> "Server":
        if self._server is None:
            from glauber.interfaces.explorer.server import Server

            self._server = Server(self.answers, port=self._port).start()
        return self._server

    def open(self) -> bool:
        """Open the page in a browser; whether there was one."""
        address = self.url
        try:
            return has_screen() and webbrowser.open(address)
        except webbrowser.Error:
            return False

    def wait(self) -> None:
        """Answer until Ctrl-C, then stop."""
        try:
            self._running_server().wait()
        except KeyboardInterrupt:
            pass
        finally:
            self.stop()

    def stop(self) -> bool:
        """End server and page; whether no answer is still being computed."""
        self.answers.close()
        links, self._server, self._page = (self._server, self._page), None, None
        return all([link.stop() for link in links if link is not None])

    def __enter__(self) -> "Explorer":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return "<Explorer>" if self._server is None else f"<Explorer {self.url}>"

    def _repr_mimebundle_(self, **options: object) -> object:
        """What Jupyter and VS Code show."""
        return self._display_()._repr_mimebundle_(**options)

    def _display_(self) -> "Page":
        """What marimo shows."""
        if self._page is None:
            from glauber.interfaces.explorer.notebook import Page

            self._page = Page(self.answers, link=self.link)
        return self._page


def has_screen() -> bool:
    """Whether a browser would have a window: one inside the terminal is not opened."""
    display = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    return display or sys.platform in ("darwin", "win32")


def in_notebook() -> bool:
    """Whether a notebook shows the value of a cell's last line."""
    marimo = getattr(sys.modules.get("marimo"), "running_in_notebook", None)
    if marimo is not None and marimo():
        return True
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


def _run_and_models(
    what: Run | str | Path | Conditionals | None,
    model: str | Conditionals | Sequence[str | Conditionals] | None,
    options: LoadOptions,
) -> tuple[Run | None, Models]:
    """The run, if there is one, and all models that the page may use; none is loaded yet."""
    check_device(options["device"])
    run = what if isinstance(what, Run) else _open_run(what)
    more = model if isinstance(model, list | tuple) else [model]
    choices = [
        choice for choice in (None if run is not None else what, *more) if choice is not None
    ]
    for choice in choices:
        check_name(choice)
    loaders: dict[str, Loader] = dict(named_loader(choice, **options) for choice in choices)
    if run is not None and run.spec.model not in ("", *loaders):
        # The model of chains is compared with the run's fingerprint.
        loaders[run.spec.model] = (
            partial(model_of, run, **options)
            if run.spec.unmasking is None
            else partial(load, run.spec.model, dtype=run.spec.dtype, **options)
        )
    for name in bundled_names():
        loaders.setdefault(*named_loader(f"bundled:{name}", **options))
    return run, Models(loaders)


def _open_run(what: object) -> Run | None:
    """The run in a folder; None for a model or nothing."""
    if not isinstance(what, str | Path):
        return None
    folder, name = Path(what), str(what)
    if name.startswith("bundled:") or name.endswith(".gguf") or (folder / "config.json").is_file():
        return None
    if isinstance(what, str) and not folder.exists() and reachable(split_name(name)[0]):
        return None
    return Run.of(folder, generations=True)


def _answers(run: Run | None, models: Models, options: LoadOptions) -> Answers:
    """Everything that the page can ask."""
    from glauber.interfaces.explorer.filling import Filling
    from glauber.interfaces.explorer.live import LiveChains
    from glauber.interfaces.explorer.saved import save
    from glauber.interfaces.explorer.stored import StoredRun

    stored = None if run is None else StoredRun(run, models=models, **options)
    live = LiveChains(models, from_run=None if stored is None else stored.begin)
    filling = Filling(models)
    questions: dict[str, Question] = {name: _by_source(live, stored, name) for name in BY_SOURCE}
    questions |= {
        "encode": live.encode,
        "tokens": live.tokens,
        "fill": filling.fill,
        "translate": filling.translate,
        "about": partial(_about, stored, models),
        "save": lambda state: save(answers, live, None if stored is None else stored.now(), state),
    }
    if stored is not None:
        questions |= {"run": stored.about, "bands": stored.bands}
    close = (lambda: None) if stored is None else stored.close
    answers: Answers = Answers(questions, close=close)
    return answers


def _by_source(live: "LiveChains", stored: "StoredRun | None", name: str) -> Question:
    """A question about the opened run or about live chains, as the source says."""

    @wraps(getattr(live, name))
    def question(source: object, **arguments: object) -> Answer:
        if source == "run" and stored is None:
            raise GlauberError("no run is open here: start with its folder.")
        chains = arguments.get("chains")
        if chains is not None and not (isinstance(chains, list) and chains):
            raise GlauberError("chains are a list of numbers.")
        method: Question = getattr(stored if source == "run" else live, name)
        return method(source, **arguments)

    return question


def _about(stored: "StoredRun | None", models: Models) -> Answer:
    """What the page shows before anything is asked."""
    from glauber import __version__
    from glauber.translation.translate import translator_folder

    return {
        "version": __version__,
        "models": models.names,
        "run": None if stored is None else stored.about(),
        "translator": translator_folder(None).is_dir(),
        "passages": [{"topic": topic, "text": text} for topic, text in passages()[:PASSAGES]],
        "scans": list(OFFERED),
        "views": ["run"] * (stored is not None) + ["live", "pair", "fill"],
    }
