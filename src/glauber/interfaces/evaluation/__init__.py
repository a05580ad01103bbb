"""Masked models in lm-evaluation-harness: `glauber.evaluation.HarnessLM`.

In Python `lm_eval.simple_evaluate(model=HarnessLM("bundled:english"), tasks=[…])`; in a terminal
`python -m glauber.interfaces.evaluation --model glauber --model_args
pretrained=bundled:english --tasks …`.
"""

from typing import Any

from glauber.foundation.extras import need

__all__ = ["HarnessLM"]


def __getattr__(name: str) -> Any:
    """Imports the adapter, and lm_eval with it, when it is asked for."""
    if name != "HarnessLM":
        raise AttributeError(f"module 'glauber.evaluation' has no attribute {name!r}")
    need("harness", "lm-evaluation-harness")
    from glauber.interfaces.evaluation.harness import HarnessLM

    return HarnessLM
