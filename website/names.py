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
from website.api import ROOT, pages

NAME = re.compile(r"`(glauber[ .][\w-]+|docs/[\w/-]+\.md)[^`\n]*`")
# What stays as it is: headings, blocks of code, and links.
KEPT = re.compile(
    r"(^(?:#| {4})[^\n]*$|^(?:```|~~~).*?^(?:```|~~~)[ ]*$|\[(?:[^\[\]]|\[[^\]]*\])*\]\([^)]*\))",
    re.M | re.S,
)
ENTRY = re.compile(r"^::: (glauber\.\S+)\n.*\n +heading: (glauber\.\w+)$", re.M)  # of the API


@cache
def places() -> dict[str, str]:
    """Where each command, each function and each page is told, as prose names it."""
    names = [name.replace("_", "-") for group in glauber.STUDIES.values() for name in group]
    found = {f"glauber {name}": f"commands.md#glauber-{name}" for name in names}
    found |= {f"glauber.{room}": f"api/{room}.md" for room in glauber.ROOMS}
    for place, (_, text) in pages().items():
        found |= {name: f"{place}#{home}" for home, name in ENTRY.findall(text)}
    docs = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
    return found | {path.as_posix(): path.relative_to("docs").as_posix() for path in docs}


def linked(text: str, page: str) -> str:
    """The text of a page with its names linked."""

    def link(one: re.Match[str]) -> str:
        place = places().get(one[1])
        at = place and posixpath.relpath(place, posixpath.dirname(page))
        return f"[{one[0]}]({at})" if at else one[0]

    parts = KEPT.split(text)  # every other one is kept
    parts[::2] = [NAME.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links the names, but for where they are told themselves."""
    told = page.file.src_uri.startswith(("api/", "commands.md"))
    return markdown if told else linked(markdown, page.file.src_uri)
