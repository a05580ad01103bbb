"""Who may import whom: the folder is the architecture."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "glauber"
MODULES = sorted(SOURCE.rglob("*.py"))

# Each room and the rooms of the package that it may import.
ARROWS = {
    "conditionals": {"conditionals", "threads"},
    "dynamics": {"conditionals", "dynamics", "threads"},
    "exact": {"conditionals", "exact"},
    "compatibility": {"conditionals", "compatibility", "runs.run", "runs.spec", "runs.export"},
    "mixing": {"conditionals", "dynamics", "mixing", "threads", "runs.run", "runs.export"},
    "metastability": {
        "conditionals", "dynamics", "metastability", "runs.run", "runs.spec", "runs.export",
    },
    "landscape": {"conditionals", "landscape", "mixing", "runs", "sampling"},
    "comparison": {
        "comparison", "compatibility", "conditionals", "landscape", "mixing", "runs", "sampling",
    },
    "runs": {"runs", "conditionals.vocabulary"},
    "sampling": {"conditionals", "dynamics", "runs", "sampling"},
    "sweeps": {"conditionals", "dynamics", "mixing", "runs", "sampling", "sweeps"},
    "plots": {
        "plots", "runs.timeline", "comparison", "exact", "landscape", "metastability", "mixing",
        "translation",
    },
    "explorer": {"conditionals", "explorer", "landscape", "metastability", "plots", "runs"},
    "papers": {
        "compatibility", "conditionals", "exact", "landscape", "metastability", "mixing", "papers",
        "plots", "runs.run", "runs.spec", "sampling", "sweeps", "translation",
    },
    "cli": {
        "cli", "comparison", "compatibility", "conditionals", "dynamics", "exact", "explorer",
        "landscape",
        "metastability", "mixing", "papers", "plots", "runs", "sampling", "sweeps", "translation",
    },
    "translation": {"translation", "dynamics.noise"},
    "threads": set(),
    "errors": set(),
}  # fmt: skip
# What the core may import when it is loaded, so that it runs on a bare GPU machine.
BARE = {"torch", "transformers", "numpy", "scipy", "glauber", "triton"}
CORE = (
    "conditionals", "dynamics", "exact", "compatibility", "mixing", "metastability", "translation",
    "threads",
)  # fmt: skip
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


def room(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrows(path):
    if room(path) == "__init__":
        return
    allowed = ARROWS[room(path)] | {"errors", "__version__"}
    for name in imports(path):
        if not name.startswith("glauber."):
            continue
        inside = name.removeprefix("glauber.")
        assert any(inside == a or inside.startswith(a + ".") for a in allowed), f"{path} -> {name}"


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
        "conditionals/masked_lm.py",
        "conditionals/causal_lm.py",
        "conditionals/vocabulary.py",
        "landscape/entailment.py",
        "landscape/embedder.py",  # sentence_transformers, and the bar that transformers shows
    }
