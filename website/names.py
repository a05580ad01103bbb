"""Where does `glauber couple` or `glauber.couple` in the prose of a page lead?

To the command and to the function, on the site; in the repository such a name is plain code.
"""

import posixpath
import re
from functools import cache

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

import glauber
from website.api import pages

# Code that begins with the name and stands neither in a link nor in a heading.
NAME = re.compile(r"(?<![\[`])`(glauber([ .])([\w-]+)[^`\n]*)`(?![\]`])")

ENTRY = r"^::: (glauber\.\S+)\n.*\n +heading: glauber\.(\w+)$"  # of a page of the API


@cache
def places() -> dict[str, str]:
    """Where each function and each command is told, by `.name` and ` name`."""
    homes = {name: home for group in glauber.STUDIES.values() for name, home in group.items()}
    found = {f" {name.replace('_', '-')}": _command(name) for name in homes}
    found |= {f".{room}": f"api/{room}.md" for room in glauber.ROOMS}
    for place, (_, text) in pages().items():
        for home, name in re.findall(
            r"^::: (glauber\.\S+)\n.*\n +heading: glauber\.(\w+)$", text, re.M
        ):
            found[f".{name}"] = f"{place}#{home}"
    return found


def _command(name: str) -> str:
    return f"commands.md#glauber-{name.replace('_', '-')}"


def linked(text: str, page: str) -> str:
    """The text of a page with its names linked."""

    def link(one: re.Match[str]) -> str:
        place = places().get(one[2] + one[3])
        if place is None:
            return one[0]
        return f"[{one[0]}]({posixpath.relpath(place, posixpath.dirname(page))})"

    kept = r"(^(?:#| {4})[^\n]*$|^(?:```|~~~).*?^(?:```|~~~)[ ]*$)"  # headings and blocks of code
    blocks = re.split(kept, text, flags=re.M | re.S)
    return "".join(part if place % 2 else NAME.sub(link, part) for place, part in enumerate(blocks))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    told = page.file.src_uri.startswith(("api/", "commands.md"))
    return markdown if told else linked(markdown, page.file.src_uri)
