"""Parameters that many studies share: type, one line of help, check and, in groups, default."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypedDict

from glauber.foundation.checks import check_seed
from glauber.foundation.study import Default
from glauber.models.base import Conditionals, check_temperature

ModelOrName = Annotated[
    str | Conditionals,
    "bundled:english, a local folder, or a name on the hub; NAME?kind=masked sets the kind "
    "(masked, causal, diffusion). In Python also any Conditionals.",
]
Texts = Annotated[
    str | Path | Sequence[str] | None,
    "Texts to start from (default: the bundled passages, for English models).",
]
Temperature = Annotated[
    float,
    "Softmax temperature; 1 samples from the model as it is.",
    lambda name, temperature: check_temperature(temperature),
]
Seed = Annotated[int, "Random seed.", check_seed]
Length = Annotated[
    int | None, "Tokens of each text, without the special ones; shorter are left out."
]
LengthOrWhole = Annotated[
    int | None, "Tokens of each text, without the special ones; shorter texts are taken whole."
]
Device = Annotated[str, "auto, cpu, cuda or mps."]
Dtype = Annotated[str, "float32, bfloat16 or float64."]
RunModel = Annotated[
    str | Conditionals | None, "The model that made the run, if its name does not lead to it."
]
RunDevice = Annotated[str | None, "Another device than the run's."]
Trust = Annotated[bool, "Run code that comes with the model."]
MaskToken = Annotated[
    str | None, "The mask token, by spelling or number, of a model that names none."
]
Freeze = Annotated[
    Sequence[int] | str,
    "Sites never redrawn, such as 0-4,9: counted from 0, without special tokens and prefix.",
]
HiddenSites = Annotated[
    str | Sequence[int], "Hidden tokens, such as 2,5,9-12: from 0, without special ones."
]
Unknown = Annotated[
    str, "Characters outside the vocabulary: error, or token (read as the unknown token)."
]


class Where(TypedDict, total=False):
    """Where a model runs; `load(model, **where)` reads it."""

    device: Annotated[Device, Default("auto")]
    trust_remote_code: Annotated[Trust, Default(False)]


class WhereAndDtype(Where, total=False):
    """Where a model runs, and in which precision."""

    dtype: Annotated[Dtype, Default("float32")]


def check_temperatures(name: str, value: object) -> None:
    """A check of one temperature or several."""
    for temperature in value if isinstance(value, list | tuple) else (value,):
        check_temperature(temperature)
