"""Which model is meant? A name, a folder or an object becomes something that studies can ask.

The one place where studies turn what they were given into a model.
"""

from typing import Any

from glauber.conditionals.base import Conditionals
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.starts import starts
from glauber.errors import GlauberError

__all__ = ["Model", "load", "refuse_int8", "starts"]

Model = Any  # MaskedLM, CausalLM, or another object with what MaskedLM shows to studies


def load(
    model: str | Conditionals = "bundled:english",
    *,
    device: str = "auto",
    dtype: str = "float32",
    trust_remote_code: bool = False,
) -> Model:
    """The model of that name (`bundled:NAME`, a folder, a hub name), or the object itself."""
    if not isinstance(model, str):
        return model
    return MaskedLM.load(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)


def refuse_int8(model: Model) -> None:
    """What is measured or certified needs the model's own precision."""
    if model.dtype == "int8":
        raise GlauberError("int8 is for drawing samples only: use float32 or float64 here.")
