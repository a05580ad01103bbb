"""A bar over the looks at a run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from glauber.cli.screen import err


@contextmanager
def looking(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A listener that shows a bar of the looks done."""
    words = TextColumn("look {task.completed:,.0f} of {task.total:,.0f}")
    with Progress(
        words, BarColumn(), TimeRemainingColumn(), console=err, transient=True, disable=quiet
    ) as bar:
        task = bar.add_task("", total=1)
        yield lambda done, total: bar.update(task, completed=done, total=total)
