"""The dynamics of masked language models.

    model = glauber.load("bundled:english")
    run = glauber.sample(model, texts, steps=2000, temperature=0.7, seed=0)
    glauber.traps(run)                       # prints, tabulates, draws and serialises itself
    glauber.couple(model, pairs=12, temperature=1.5).frame()

Every question is a function here, and the same function is a command: `glauber couple --help`.
"""

from typing import Any

import glauber.proteins  # noqa: F401  # its family of models, before any is loaded

__version__ = "0.2.0"

# Every study: the room that answers it, by the question that people ask.
STUDIES = {
    "Chains": {
        "sample": "sampling.sample",
        "resume": "sampling.sample",
        "extend": "sampling.sample",
        "show": "runs.timeline",
        "export": "runs.export",
        "verify": "runs.verify",
        "repair": "runs.verify",
        "cite": "runs.cite",
        "models": "machine.models",
    },
    "Could it be one law?": {
        "rectangles": "compatibility.rectangles",
        "single_mask": "compatibility.single_mask",
        "entropy_production": "compatibility.entropy_production",
        "potential": "compatibility.potential",
        "score": "compatibility.score",
        "likelihood_bound": "compatibility.likelihood_bound",
    },
    "How fast is the start forgotten?": {
        "influence": "mixing.influence",
        "couple": "mixing.couple",
        "phase": "mixing.phase",
        "semantic_drift": "mixing.semantic_drift",
        "diagnose": "mixing.diagnostics",
        "unbiased": "mixing.unbiased",
        "scan_bias": "mixing.scan_bias",
    },
    "Where does it get stuck?": {
        "margins": "metastability.margins",
        "drift": "metastability.drift",
        "traps": "metastability.traps",
        "basins": "metastability.basins",
    },
    "What is it about?": {
        "topics": "landscape.topics",
        "prefixes": "landscape.prefixes",
        "compare": "landscape.comparison",
        "report": "figures.report",
    },
    "Writing and filling in": {
        "generate": "generation.generate",
        "infill": "generation.infill",
        "parallel_cost": "generation.parallel_cost",
        "calibrate": "generation.calibrate",
        "frontier": "generation.frontier",
        "correction": "generation.correction",
    },
    "Proteins": {
        "mutate": "proteins.variants",
        "scan_mutations": "proteins.single_mutants",
        "design": "proteins.design",
    },
    "Translation": {
        "translate": "translation.translate",
        "train_translator": "translation.training",
        "evaluate_translator": "translation.evaluation",
    },
    "Papers": {
        "paper": "papers.paper",
    },
    "This machine": {
        "doctor": "machine.doctor",
    },
}
# What is no command by itself.
OTHERS = {
    "explore": "explorer.explore",
    "load": "conditionals.load",
    "read_texts": "conditionals.texts",
    "Corpus": "conditionals.texts",
    "constrain": "dynamics.constrained",
    "DiffusionLM": "conditionals.diffusion_lm",
    "MaskedLM": "conditionals.masked_lm",
    "CausalLM": "conditionals.causal_lm",
    "Conditionals": "conditionals.base",
    "Run": "runs.run",
    "Result": "result",
    "GlauberError": "errors",
    "GlauberWarning": "errors",
    "allow_long": "progress",
}
ROOMS = {"ising", "exact", "sweeps", "evaluation"}  # with studies or objects of their own
_HOMES = OTHERS | {name: home for group in STUDIES.values() for name, home in group.items()}
__all__ = sorted({*_HOMES, *ROOMS})


def __getattr__(name: str) -> Any:
    """Imports what is asked for when it is asked for: torch takes seconds to load."""
    from importlib import import_module

    if name in ROOMS:
        return import_module(f"glauber.{name}")
    if name not in _HOMES:
        from difflib import get_close_matches

        near = get_close_matches(name, _HOMES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module 'glauber' has no attribute {name!r}{hint}")
    return getattr(import_module(f"glauber.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
