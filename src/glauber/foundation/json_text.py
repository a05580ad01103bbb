"""Reads JSON that somebody else may have written."""

import json
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

Record = dict[str, object]  # a JSON object: a result, or a row of a table


def parse_json(content: str | bytes) -> Any:
    """The value of a JSON text; a ValueError for one that is damaged or nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def has_type(value: object, hint: Any) -> bool:
    """Whether a value read from JSON has a type: never one that JSON does not have."""
    origin, options = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(has_type(value, option) for option in options)
    if origin in (list, Sequence):
        return isinstance(value, list) and all(has_type(item, options[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(has_type(v, options[1]) for v in value.values())
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return hint in (str, bool, None, NoneType) and isinstance(
        value, NoneType if hint is None else hint
    )
