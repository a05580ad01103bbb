"""The command `paper`: what it makes is kept in a folder, whose default is papers/."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glauber.cli.command import command
from glauber.papers import paper as papers


@contextmanager
def in_papers(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A piece without a folder is kept under papers/, where the next one finds its chains."""
    yield {"out": asked["out"] or Path("papers")}


paper = command(papers.paper, around=in_papers)
