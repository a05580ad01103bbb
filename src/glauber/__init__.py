"""The dynamics of masked language models.

    model = glauber.load("bundled:english")
    run = glauber.sample(model, texts, steps=2000, temperature=0.7, seed=0)
    glauber.traps(run)                       # prints, tabulates, draws and serialises itself
    glauber.couple(model, pairs=12, temperature=1.5).frame()

Every question is a function here, and the same function is a command: `glauber couple --help`.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

import glauber.models
import glauber.studies.proteins  # its family of models, before any is loaded
from glauber.foundation import lazy

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
        "models": "interfaces.doctor.models",
    },
    "Could it be one law?": {
        "rectangles": "studies.compatibility.rectangles",
        "single_mask": "studies.compatibility.single_mask",
        "entropy_production": "studies.compatibility.entropy_production",
        "potential": "studies.compatibility.potential",
        "score": "studies.compatibility.score",
        "likelihood_bound": "studies.compatibility.likelihood_bound",
    },
    "How fast is the start forgotten?": {
        "influence": "studies.mixing.influence",
        "couple": "studies.mixing.couple",
        "phase": "studies.mixing.phase",
        "semantic_drift": "studies.mixing.semantic_drift",
        "coherence": "studies.mixing.coherence",
        "diagnose": "studies.mixing.diagnostics",
        "unbiased": "studies.mixing.unbiased",
        "scan_bias": "studies.mixing.scan_bias",
    },
    "Where does it get stuck?": {
        "margins": "studies.metastability.margins",
        "drift": "studies.metastability.drift",
        "traps": "studies.metastability.traps",
        "quoted_traps": "studies.metastability.quoted_traps",
        "basins": "studies.metastability.basins",
    },
    "What is it about?": {
        "topics": "studies.landscape.topics",
        "prefixes": "studies.landscape.prefixes",
        "persistence": "studies.landscape.persistence",
        "compare": "studies.landscape.comparison",
        "report": "interfaces.report.report",
    },
    "Writing and filling in": {
        "generate": "sampling.generate",
        "infill": "sampling.infill",
        "parallel_cost": "studies.decoding.parallel_cost",
        "calibrate": "studies.decoding.calibrate",
        "frontier": "studies.decoding.frontier",
        "correction": "studies.decoding.correction",
    },
    "Proteins": {
        "mutate": "studies.proteins.variants",
        "scan_mutations": "studies.proteins.single_mutants",
        "design": "studies.proteins.design",
    },
    "Translation": {
        "translate": "translation.translate",
        "train_translator": "translation.recipe",
        "evaluate_translator": "translation.evaluation",
        "time_translator": "translation.timing",
    },
    "Papers": {
        "paper": "papers.paper",
    },
    "This machine": {
        "doctor": "interfaces.doctor.doctor",
    },
}
# What is no command by itself.
OTHERS = {
    "explore": "interfaces.explorer.explore",
    "load": "models.load",
    "read_texts": "texts.read",
    "Corpus": "texts.read",
    "constrain": "dynamics.constrained",
    "DiffusionLM": "models.diffusion_lm",
    "MaskedLM": "models.masked_lm",
    "CausalLM": "models.causal_lm",
    "Conditionals": "models.base",
    "Run": "runs.run",
    "Result": "foundation.study",
    "GlauberError": "foundation.errors",
    "GlauberWarning": "foundation.errors",
    "allow_long": "foundation.progress",
}
ROOMS = {  # with studies or objects of their own
    "ising": "studies.ising",
    "exact": "exact",
    "sweeps": "sampling.sweeps",
    "evaluation": "interfaces.evaluation",
}
_HOMES = OTHERS | {name: home for group in STUDIES.values() for name, home in group.items()}
_import_name = lazy(_HOMES)
__all__ = sorted({*_HOMES, *ROOMS})


def __getattr__(name: str) -> Any:
    """Imports what is asked for when it is asked for: torch takes seconds to load."""
    if name in ROOMS:
        return import_module(f"glauber.{ROOMS[name]}")
    return _import_name(name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Models(ModuleType):
    """The package `glauber.models` has the name of a study: a call lists the models."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from glauber.interfaces.doctor import models

        return models.models(*args, **kwargs)


glauber.models.__class__ = _Models
