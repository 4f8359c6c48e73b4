"""The one place that renders HTML: self-contained pages, every value escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from curvedp import __version__
from curvedp.charts import power
from curvedp.receipt import finite


@cache
def environment(*packages: str) -> Environment:
    """Templates of curvedp, and of `packages` before them; `version` is known to every page."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "curvedp")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    made.globals["version"] = __version__
    made.filters["power"] = _power
    made.filters["symbol"] = _symbol
    made.filters["moment"] = lambda time: time.replace("T", " ").replace("+00:00", " UTC")
    made.filters["minus"] = lambda text: text.replace("-", "−")
    made.filters["for_machines"] = _for_machines
    made.filters["exact"] = lambda value: repr(value) if isinstance(value, float) else str(value)
    return made


def rendered(template: str, **context: Any) -> str:
    """One of the pages of curvedp."""
    return environment().get_template(template).render(**context)


def _for_machines(document: Mapping[str, Any]) -> Markup:
    """Plain values as JSON that no HTML can end: `document_in` finds it again."""
    text = json.dumps(finite(document), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def document_in(page: str) -> str | None:
    """The JSON of what was released, in the page that shows it; None where there is none, or are several."""
    found = re.findall(r'<template id="released">(.*?)</template>', page, re.DOTALL)
    return str(found[0]) if len(found) == 1 else None


def _power(value: float | str, digits: int = 4) -> Markup | str:
    return value if isinstance(value, str) else power(float(value), digits)


def _symbol(text: str) -> Markup:
    """`Δ_c` with a real subscript."""
    base, _, index = text.partition("_") if text[1:2] == "_" else (text, "", "")
    return Markup("{}<sub>{}</sub>").format(base, index) if index else escape(base)
