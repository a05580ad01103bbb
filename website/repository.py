"""How does a link from a page to a file of the repository work on the site too?

One convention: a link is the relative path between the two files as they lie in the repository,
so that every forge follows it: `../src/glauber/models/english/README.md` in a page of docs/,
`docs/runs.md` in CHANGELOG.md. The file becomes a page of the site: Markdown as it is, a notebook
of examples/ as a tutorial, other texts as code, a folder as its README or the list of its files.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from website.notebooks import pictures, spelled

ROOT = Path(__file__).parent.parent
# On the site without being linked: the pages of the root, and what the site itself needs.
ALWAYS = [path.name for path in sorted(ROOT.glob("*.md"))]
ASSETS = {"assets/site.css": "site.css", "assets/iframe-worker.js": "iframe-worker.js"}
UNSOUGHT = "---\nsearch: {exclude: true}\n---\n\n"  # what the search leaves out
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"^(```|~~~).*?^\1[ ]*$|^ {4}[^\n]*$|`[^`\n]+`", re.M | re.S)


def links(text: str, change: Callable[[str], str]) -> str:
    """The text with the target of each relative link changed; code stays as it is."""
    done, at = [], 0
    for code in [*CODE.finditer(text), None]:
        prose = text[at : code.start() if code else len(text)]
        done.append(prose)
        done.append("\0" if code else "")
        at = code.end() if code else at
    joined = LINK.sub(lambda one: one[1] + change(one[2]) + one[3], "".join(done))
    kept = iter(CODE.finditer(text))
    return re.sub("\0", lambda _: next(kept)[0], joined)


def site_path(path: str) -> str:
    """Where the site keeps a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples/") and path.endswith(".ipynb"):
        return f"tutorials/{Path(path).stem}.md"
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def target(page: str, link: str) -> str:
    """The file in the repository that a link of the file `page` means; a folder's is its README."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return f"{found}/README.md" if (ROOT / found / "README.md").is_file() else found


def linked(page: str, text: str) -> list[str]:
    """Files and folders outside docs/ that a page of the repository links to and that exist."""
    seen: list[str] = []
    links(text, lambda link: seen.append(target(page, link)) or link)  # type: ignore[func-returns-value]
    return [
        path for path in seen if not path.startswith(("docs/", "..")) and (ROOT / path).exists()
    ]


def content(path: str) -> str:
    """A file of the repository as Markdown."""
    at = ROOT / path
    if at.is_dir():
        names = sorted(
            one.name + "/" * one.is_dir() for one in at.iterdir() if one.name[0] not in "._"
        )
        return "\n".join([f"# `{path}/`", "", *(f"- `{name}`" for name in names)])
    if path.endswith(".ipynb"):
        return spelled(at)
    text = at.read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# `{path}`\n\n````{at.suffix.removeprefix('.') or 'text'}\n{text}\n````\n"


def taken(files: Files) -> dict[str, str]:
    """Every file outside docs/ that the site shows, with its text: the linked ones, and theirs."""
    notebooks = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("examples/*.ipynb"))]
    waiting = [*ALWAYS, *notebooks]
    for file in files.documentation_pages():
        waiting += linked(f"docs/{file.src_uri}", file.content_string)
    texts: dict[str, str] = {}
    while waiting:
        path = waiting.pop()
        if path not in texts:
            texts[path] = content(path)
            waiting += linked(path, texts[path])
    return texts


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """In the navigation, the name of a folder stands for its pages."""
    config.nav = [_unfolded(entry, Path(config.docs_dir)) for entry in config.nav or ()]
    return config


def _unfolded(entry: Any, docs: Path) -> Any:
    if isinstance(entry, list):
        return [_unfolded(one, docs) for one in entry]
    if not isinstance(entry, dict):
        return entry
    return {name: _pages(value, docs) or _unfolded(value, docs) for name, value in entry.items()}


def _pages(value: Any, docs: Path) -> list[str]:
    """The pages of a folder in the order of their names, a README first."""
    names = [] if not isinstance(value, str) else [one.name for one in (docs / value).glob("*.md")]
    return [f"{value}/{name}" for name in sorted(names, key=lambda one: (one != "README.md", one))]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the linked files of the repository, the tutorials and their pictures."""
    for path, text in taken(files).items():
        turned = links(text, lambda link, path=path: moved(path, link))  # type: ignore[misc]
        if path.endswith(".ipynb"):
            files.append(File.generated(config, site_path(path), content=turned))
            for name, image in pictures(ROOT / path).items():
                files.append(File.generated(config, f"tutorials/{name}", content=image))
        else:
            kept = {"content": UNSOUGHT + turned, "inclusion": InclusionLevel.NOT_IN_NAV}
            files.append(File.generated(config, site_path(path), **kept))
    for place, name in ASSETS.items():
        at = str(Path(__file__).parent / name)
        files.append(File.generated(config, place, abs_src_path=at))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads the links of docs/ that leave it to where the site keeps the file."""
    if page.file.generated_by:
        return markdown
    return links(markdown, lambda link: moved(f"docs/{page.file.src_uri}", link))


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> Environment:
    """The theme uses a filter that Jinja has from 3.1 on, and PCCA+ holds it at 3.0."""
    env.filters.setdefault("items", lambda mapping: mapping.items())
    return env


def moved(path: str, link: str) -> str:
    """A link of a file of the repository as its page on the site says it."""
    aim = target(path, link)
    if not (ROOT / aim).exists() or _is_own(path, link):
        return link
    return posixpath.relpath(site_path(aim), posixpath.dirname(site_path(path)))


def _is_own(path: str, link: str) -> bool:
    """A picture of a tutorial lies beside it on the site and nowhere in the repository."""
    return path.endswith(".ipynb") and link.endswith(".png")
