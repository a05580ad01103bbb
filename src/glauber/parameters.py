"""What do the parameters that many studies share mean? Their types and one line of help each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from glauber.conditionals.base import Conditionals

ModelOrName = Annotated[
    str | Conditionals,
    "bundled:english, a local folder, or a name on the hub; NAME?kind=masked sets the kind "
    "(masked, causal, diffusion). In Python also any Conditionals.",
]
Texts = Annotated[
    str | Path | Sequence[str] | None,
    "Texts to start from (default: the bundled passages, for English models).",
]
Temperature = Annotated[float, "Cold (0.3) repeats itself, hot (2) is noise."]
Seed = Annotated[int, "The same seed gives the same answer."]
Length = Annotated[
    int | None, "Tokens of each text, without the special ones; shorter are left out."
]
LengthOrWhole = Annotated[
    int | None, "Tokens of each text, without the special ones; shorter texts are taken whole."
]
Device = Annotated[str, "auto, cpu, cuda or mps."]
Dtype = Annotated[str, "float32, bfloat16 or float64."]
Trust = Annotated[bool, "Run code that comes with the model."]
MaskToken = Annotated[
    str | None, "The mask token, by spelling or number, of a model that names none."
]
Freeze = Annotated[
    Sequence[int] | str,
    "Sites never redrawn, such as 0-4,9: counted from 0, without special tokens and prefix.",
]
Unknown = Annotated[
    str, "Characters outside the vocabulary: error, or token (read as the unknown token)."
]
