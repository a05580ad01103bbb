"""The commands that need more than their study: a live screen, a folder, a page that stays open.

Those that make steps show a chain's text as it changes, and stop cleanly on Ctrl-C.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

from glauber.foundation import progress
from glauber.foundation.study import Result, one_line
from glauber.interfaces.cli.command import Values, command, disguise, spellings
from glauber.sampling import sample as sampling
from glauber.sampling.advance import Progress, Session, stopped_by_interrupt


@contextmanager
def screen(arguments: Values) -> Iterator[Values]:
    """A session for the study: a bar with one chain's live text, stopped by Ctrl-C."""
    with _live_text() if progress.is_watched() else nullcontext(lambda now: None) as show:

        def report(now: Progress) -> None:
            progress.judge("steps", now.seconds, now.step, now.steps)
            show(now)

        session = Session(report)
        with stopped_by_interrupt(session):
            yield {"session": session}


@contextmanager
def new_folder(arguments: Values) -> Iterator[Values]:
    """The same; a run without a name gets one under runs/, where it outlives the command."""
    names = (arguments["model"], arguments["temperature"], arguments["seed"])
    out = arguments["out"]
    out = sampling.unused_folder(Path("runs"), *names) if out is None else out
    with screen(arguments) as more:
        yield more | {"out": out}


@contextmanager
def _live_text() -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    console = Console(stderr=True)
    bar = Bar(
        TextColumn("step {task.completed:,.0f} of {task.total:,.0f}"),
        BarColumn(),
        TextColumn("{task.fields[rate]:,.0f} steps/s"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[changed]:.0%} changed{task.fields[remembered]}"),
        console=console,
    )
    task = bar.add_task("", total=None, rate=0.0, changed=0.0, remembered="")
    with Live(console=console, refresh_per_second=4, transient=True) as live:

        def report(now: Progress) -> None:
            known = "" if now.remembered is None else f", {now.remembered:.0%} remembered"
            bar.update(
                task,
                total=now.steps,
                completed=now.step,
                rate=now.updates / now.seconds,
                changed=now.changed,
                remembered=known,
            )
            text = Text("  " + one_line(now.text), "dim", overflow="ellipsis", no_wrap=True)
            live.update(Group(bar, text))

        yield report


@contextmanager
def papers_folder(arguments: Values) -> Iterator[Values]:
    """A piece without a folder is kept under papers/, where the next one finds its chains."""
    yield {"out": arguments["out"] or Path("papers")}


def explore_command(study: Callable[..., Any]) -> Callable[..., None]:
    """Prints the address of the page and answers it until Ctrl-C; --model may be repeated."""

    def explore(*, browser: bool, **arguments: Any) -> None:
        page = study(**arguments, browser=False)
        print(f"glauber explore: {page.url}\nCtrl-C stops it.", flush=True)
        if browser:
            page.open()
        page.wait()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # an answer that is still computed writes nothing and is not waited for

    spelled = spellings(study)
    option = get_args(spelled["model"].annotation)[1]
    spelled["model"] = spelled["model"]._replace(annotation=Annotated[list[str] | None, option])
    return disguise(explore, "explore", " ".join((inspect.getdoc(study) or "").split()), spelled)


# What makes a command of these studies.
COMMANDS: dict[str, Callable[[Callable[..., Result]], Callable[..., None]]] = {
    "sample": partial(command, around=new_folder),
    "resume": partial(command, around=screen),
    "extend": partial(command, around=screen),
    "paper": partial(command, around=papers_folder),
    "explore": explore_command,
}
