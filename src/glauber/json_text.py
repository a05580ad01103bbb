"""Reads JSON that somebody else may have written."""

import json
from typing import Any

Record = dict[str, object]  # a JSON object: a result, or a row of a table


def parse_json(content: str | bytes) -> Any:
    """The value of a JSON text; a ValueError for one that is damaged or nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
