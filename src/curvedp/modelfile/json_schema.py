"""The JSON Schema of model files, for those who read them without curvedp."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def model_schema() -> dict[str, Any]:
    """Read the JSON Schema (draft 2020-12) of the model files that this version writes.

    Returns
    -------
    schema : dict
        For any validator of JSON Schema. `curvedp.load` checks more: that shapes agree with the declared
        columns, that a matrix is positive.

    Examples
    --------
    >>> from curvedp.modelfile.json_schema import model_schema
    >>> model_schema()["properties"]["format_version"]
    {'const': 2}
    """
    text = files("curvedp").joinpath("templates/model.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
