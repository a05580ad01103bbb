"""How do plain ES modules become one script? For pages in one file and for notebooks.

A browser loads modules from a server by their names, but not from a file or a notebook cell. So
their text is joined here, each in a scope of its own, in the order of their imports. The modules
keep to two forms, one line or several: `import { a, b } from "./x.js";` at the top, and
`export function|class|const|async function` or `export { a };`.
"""

import re
from functools import cache
from pathlib import Path

WEB = Path(__file__).parent / "web"
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(
    r"^export (?=(?:async function\*?|function\*?|class|const) ([\w$]+))", re.MULTILINE
)
LISTED = re.compile(r"^export \{([^}]*)\};$", re.MULTILINE)


@cache
def script(entry: str) -> str:
    """One script of a module and all that it imports; the entry's exports are its last value.

    Run as `const page = (…)`: the script is an expression.
    """
    order: list[str] = []
    _collect(entry, order, ())
    modules = "\n".join(_module_code(name) for name in order)
    head = '"use strict";\nconst modules = {};'
    return f"(() => {{\n{head}\n{modules}\nreturn modules[{entry!r}];\n}})()"


def inline(entry: str) -> str:
    """The same script as it may stand inside a page: nothing in it ends or hides the script."""
    code = re.sub(r"</(?=script)", r"<\\/", script(entry), flags=re.IGNORECASE)
    return code.replace("<!--", "<\\!--")


@cache
def css() -> str:
    """The style of every page with a player in it."""
    return "\n".join(
        (WEB / name).read_text(encoding="utf-8")
        for name in ("vendor/uplot.css", "style.css", "views.css")
    )


def _collect(name: str, order: list[str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"the modules {' -> '.join((*above, name))} import each other")
    if name in order:
        return
    for _, other in IMPORT.findall(_text(name)):
        _collect(_beside(name, other), order, (*above, name))
    order.append(name)


def _text(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")


def _beside(name: str, other: str) -> str:
    return str(Path(name).parent / other)


def _module_code(name: str) -> str:
    text = _text(name)
    names = [export for export in EXPORT.findall(text)]
    names += [
        name.strip()
        for listed in LISTED.findall(text)
        for name in listed.split(",")
        if name.strip()
    ]
    text = IMPORT.sub(
        lambda m: f"const {{{_destructure(m[1])}}} = modules[{_beside(name, m[2])!r}];", text
    )
    text = LISTED.sub("", EXPORT.sub("", text))
    left = re.search(r"^(?:import|export)\b.*", text, re.MULTILINE)
    if left:
        raise ValueError(f"{name}: {left[0]!r} is a form that the bundle does not know")
    return f"modules[{name!r}] = (() => {{\n{text}\nreturn {{ {', '.join(names)} }};\n}})();"


def _destructure(listed: str) -> str:
    """What is imported, as a destructuring: `a as b` is `a: b`."""
    return re.sub(r"\b(\w+) as (\w+)\b", r"\1: \2", listed)
