"""The one place that renders HTML: self-contained pages, every value escaped."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from curvedp import __version__
from curvedp.numbers import RAISED, finite, mantissa

# Line charts as inline SVG: no script, no network, colours from the page's own style sheet.

WIDTH, HEIGHT = 720.0, 360.0
LEFT, RIGHT, TOP, BOTTOM = 72.0, 20.0, 16.0, 52.0
COLOURS = 6  # the style sheet defines .line-0 … .line-5


@dataclass(frozen=True)
class Series:
    """One labelled curve; a `reference` is drawn thin and grey."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    reference: bool = False

    def style(self, index: int) -> str:
        """The colour class of the curve at this place."""
        return "reference" if self.reference else str(index % COLOURS)


@dataclass(frozen=True)
class Axis:
    """A range with a label; `log` puts powers of ten at equal distances."""

    label: str
    low: float
    high: float
    log: bool = False

    def position(self, value: float) -> float:
        """Where `value` lies between 0 (low) and 1 (high), clamped."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)

    def percent(self, value: float) -> str:
        return f"{100 * self.position(value):.2f}%"

    def ticks(self) -> list[float]:
        """Powers of ten (with 2 and 5 when they are few) on a log axis; steps of 1, 2 or 5 otherwise."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            stride = max(1, math.ceil((last - first + 1) / 8))
            mantissas = (1.0, 2.0, 5.0) if last - first <= 2 else (1.0,)
            candidates = [a * 10.0**k for k in range(first - 1, last + 1, stride) for a in mantissas]
        else:
            rough = (self.high - self.low) / 6
            size = 10.0 ** math.floor(math.log10(rough))
            step = next(a * size for a in (1, 2, 5, 10) if a * size >= rough)
            start = math.ceil(self.low / step)
            candidates = [k * step for k in range(start, start + 10)]
        slack = 1e-9 * (abs(self.low) + abs(self.high))
        return [t for t in candidates if self.low - slack <= t <= self.high + slack]


def power(value: float, digits: int = 4) -> Markup:
    """`value` to so many digits, for people: 0.25, −12,000, or 3 × 10⁻⁷ with a real superscript."""
    if not math.isfinite(value):
        return Markup("∞" if value > 0 else "−∞" if value < 0 else "—")
    lead, exponent = mantissa(value, digits)
    if exponent is None:
        return Markup(lead)
    return Markup(f"{'' if lead == '1' else f'{lead} × '}10<sup>{exponent}</sup>".replace("-", "−"))


def _tick_text(value: float, axis: Axis) -> str:
    if not axis.log or 1e-3 <= abs(value) < 1e4:
        return f"{value:,.4g}"
    return f"10{str(round(math.log10(value))).translate(RAISED)}"


def line_chart(
    title: str, x: Axis, y: Axis, series: Sequence[Series], mark: tuple[float, float, str] | None = None
) -> Markup:
    """The curves as one `<svg>`; `mark` is a point (x, y, text) drawn with guide lines to both axes."""
    inner_w, inner_h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def px(value: float) -> float:
        return LEFT + inner_w * x.position(value)

    def py(value: float) -> float:
        return TOP + inner_h * (1.0 - y.position(value))

    parts = [
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for tick in x.ticks():
        at = px(tick)
        parts += [
            f'<line class="grid" x1="{at:.1f}" y1="{TOP:g}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM:g}"/>',
            f'<text class="tick" x="{at:.1f}" y="{HEIGHT - BOTTOM + 18:g}">{_tick_text(tick, x)}</text>',
        ]
    for tick in y.ticks():
        at = py(tick)
        parts += [
            f'<line class="grid" x1="{LEFT:g}" y1="{at:.1f}" x2="{WIDTH - RIGHT:g}" y2="{at:.1f}"/>',
            f'<text class="tick y" x="{LEFT - 8:g}" y="{at + 4:.1f}">{_tick_text(tick, y)}</text>',
        ]
    turned = f"translate(16 {TOP + inner_h / 2:g}) rotate(-90)"
    parts += [
        f'<text class="label" x="{LEFT + inner_w / 2:g}" y="{HEIGHT - 10:g}">{escape(x.label)}</text>',
        f'<text class="label" transform="{turned}">{escape(y.label)}</text>',
    ]
    for index, curve in enumerate(series):
        ends = [end for end in zip(curve.x, curve.y, strict=True) if all(map(math.isfinite, end))]
        points = " ".join(f"{px(a):.1f},{py(b):.1f}" for a, b in ends)
        parts.append(
            f'<polyline class="line line-{curve.style(index)}" points="{points}">'
            f"<title>{escape(curve.label)}</title></polyline>"
        )
    if mark is not None:
        at_x, at_y = px(mark[0]), py(mark[1])
        side, shift = (" left", -10.0) if x.position(mark[0]) > 0.7 else ("", 10.0)
        parts.append(
            f'<path class="guide" d="M{LEFT:g} {at_y:.1f} H{at_x:.1f} V{HEIGHT - BOTTOM:g}"/>'
            f'<circle class="mark" cx="{at_x:.1f}" cy="{at_y:.1f}" r="5"/>'
            f'<text class="note{side}" x="{at_x + shift:.1f}" y="{at_y - 10:.1f}">{escape(mark[2])}</text>'
        )
    parts.append("</svg>")
    return Markup("".join(parts))


Whisker = tuple[str, float, tuple[float, float] | None]  # a name, a value, its interval where it is known


def interval_chart(
    title: str, whiskers: Sequence[Whisker], *, bars: bool = False, exp: bool = False
) -> Markup:
    """One line of the page per value: its name, a whisker over one common axis, or a bar from 0, and a dotted
    line at 0. With `exp`, values are logarithms, and what is written beside them are their exponentials.

    Lines of text and of the picture share a grid of the page, so that names stay readable on a phone.
    """
    ends = [0.0, *(end for _, value, interval in whiskers for end in ((value,) if bars else interval or ()))]
    margin = 0.04 * (max(ends) - min(ends)) or 1.0
    axis = Axis("", min(ends) - margin, max(ends) + margin)
    ticks, zero, body = axis.ticks(), 100 * axis.position(0.0), ""
    lines = [("grid", axis.percent(tick)) for tick in ticks] + [("zero", axis.percent(0.0))]
    grid = "".join(f'<line class="{kind}" x1="{at}" x2="{at}" y1="0" y2="100%"/>' for kind, at in lines)

    def written(value: float) -> Markup:
        return power(math.exp(min(value, 700.0)) if exp else value)

    for label, value, interval in whiskers:
        at, words = 100 * axis.position(value), str(written(value))
        if bars:
            span = f'x="{min(at, zero):.2f}%" y="25%" width="{abs(at - zero):.2f}%"'
            drawn = f'<rect class="bar" {span} height="50%" rx="2"/>'
        elif interval is None:
            drawn = f'<circle class="unknown" cx="{at:.2f}%" cy="50%" r="4"/>'
            words += ", interval not resolved"
        else:
            low, high = map(axis.percent, interval)
            whole = [(low, high, "50%", "50%"), (low, low, "30%", "70%"), (high, high, "30%", "70%")]
            line = '<line class="whisker" x1="{}" x2="{}" y1="{}" y2="{}"/>'
            drawn = "".join(line.format(*place) for place in whole)
            drawn += f'<circle class="dot" cx="{at:.2f}%" cy="50%" r="4.5"/>'
            words += f" [{written(interval[0])}, {written(interval[1])}]"
        body += (
            f'<div class="row" data-name="{escape(label)}"><span class="name">{breakable(label)}</span>'
            f'<svg aria-hidden="true">{grid}{drawn}</svg><span class="words">{words}</span></div>'
        )
    labels = "".join(
        f'<text x="{axis.percent(t)}" y="14">'
        f"{f'{math.exp(min(t, 700.0)):,.3g}' if exp else f'{t:,.6g}'.replace('-', '−')}</text>"
        for t in ticks[:: max(1, math.ceil(len(ticks) / 5))]
    )
    foot = f'<div class="row foot" aria-hidden="true"><span></span><svg>{labels}</svg><span></span></div>'
    style = "intervals bars" if bars else "intervals"
    return Markup(f'<figure class="{style}" aria-label="{escape(title)}">{body}{foot}</figure>')


def legend(series: Sequence[Series]) -> Markup:
    """The labels of the curves, in their colours."""
    swatch = '<li><span class="swatch swatch-{}"></span>{}</li>'
    items = "".join(swatch.format(s.style(i), escape(s.label)) for i, s in enumerate(series))
    return Markup(f'<ul class="legend">{items}</ul>')


def framed(figure: Markup, height: float = HEIGHT + 90) -> str:
    """A figure with the style of our pages in a frame of its own: for a notebook, which has none of it."""
    style = files("curvedp").joinpath("templates/page.css").read_text(encoding="utf-8")
    page = f"<!doctype html><meta charset='utf-8'><style>{style}</style><body>{figure}</body>"
    frame = f"border:0;width:100%;max-width:{WIDTH + 16:g}px;height:{height:g}px"
    return f'<iframe title="figure" style="{frame}" srcdoc="{escape(page)}"></iframe>'


def breakable(text: str) -> Markup:
    """A name that may be broken after a sign between its words, and not within one."""
    return Markup(re.sub("[_=:/·]|[a-z](?=[A-Z])", r"\g<0><wbr>", str(escape(text))))


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
    made.filters["power"] = lambda value, *digits: value if isinstance(value, str) else power(value, *digits)
    made.filters["symbol"] = _symbol
    made.filters["moment"] = lambda time: time.replace("T", " ").replace("+00:00", " UTC")
    made.filters["minus"] = lambda text: text.replace("-", "−")
    made.filters["for_machines"] = _for_machines
    made.filters["breakable"] = breakable
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


def _symbol(text: str) -> Markup:
    """`Δ_c` with a real subscript."""
    base, _, index = text.partition("_") if text[1:2] == "_" else (text, "", "")
    return Markup("{}<sub>{}</sub>").format(base, index) if index else escape(base)
