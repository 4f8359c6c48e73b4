"""The one place that renders HTML: self-contained pages, every value escaped."""

from __future__ import annotations

from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from curvedp import __version__
from curvedp.charts import power


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
    made.filters["exact"] = lambda value: repr(value) if isinstance(value, float) else str(value)
    return made


def _power(value: float | str, digits: int = 4) -> Markup | str:
    return value if isinstance(value, str) else power(float(value), digits)


def _symbol(text: str) -> Markup:
    """`Δ_c` with a real subscript."""
    base, _, index = text.partition("_") if text[1:2] == "_" else (text, "", "")
    return Markup("{}<sub>{}</sub>").format(base, index) if index else escape(base)
