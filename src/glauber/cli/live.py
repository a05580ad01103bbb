"""The commands that make steps show a chain's text as it changes, and stop cleanly on Ctrl-C."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from glauber import progress
from glauber.cli.command import command
from glauber.result import one_line
from glauber.sampling import sample as sampling
from glauber.sampling.advance import Progress, Session, stopped_by_interrupt


@contextmanager
def screen(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A session for the study: a bar with one chain's live text, stopped by Ctrl-C."""
    with ExitStack() as stack:
        show = stack.enter_context(_live()) if progress.watched() else None

        def report(now: Progress) -> None:
            progress.judge("steps", now.seconds, now.step, now.steps)
            if show is not None:
                show(now)

        session = Session(report)
        stack.enter_context(stopped_by_interrupt(session))
        yield {"session": session}


@contextmanager
def new_folder(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same; a run without a name gets one under runs/, where it outlives the command."""
    names = (asked["model"], asked["temperature"], asked["seed"])
    out = asked["out"]
    out = sampling.unused_folder(Path("runs"), *names) if out is None else out
    with screen(asked) as more:
        yield more | {"out": out}


@contextmanager
def _live() -> Iterator[Any]:
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


sample = command(sampling.sample, around=new_folder)
resume = command(sampling.resume, around=screen)
extend = command(sampling.extend, around=screen)
