"""What a reader of a release sees: one self-contained HTML page, made of released and public numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from markupsafe import Markup

from curvedp.charts import Axis, Series, Whisker, bar_chart, interval_chart, line_chart
from curvedp.forecast import Verdict
from curvedp.ledger import LedgerState
from curvedp.pages import environment
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.promise import PrivacyCurve, Promise
from curvedp.record import ReleaseRecord
from curvedp.schema.sources import NOT_STATED

SHOWN = 30  # coefficients in the figure of a release
INNER_DOUBLES = ("m", "Delta")  # parameters of matrices and linear noise drawn as doubles
FEW_LEVELS = 12  # that stand in a table as they are


@dataclass(frozen=True)
class Coefficient:
    """One released number in the user's units.

    `width` is the declared range of its column (None for an intercept), `output` the class it belongs to,
    `interval` what holds it with 95 % probability: NaN where not resolved, None where nothing is stated;
    `noise` the deviation that privacy noise alone gives it, None where nothing tells it; `place` that of its
    output among several.
    """

    name: str
    value: float
    width: float | None = None
    output: str = ""
    interval: tuple[float, float] | None = None
    noise: float | None = None
    place: int = 0

    @property
    def label(self) -> str:
        """Its name, with the class where there are several."""
        return f"{self.name} · {self.output}" if self.output else self.name

    @property
    def reach(self) -> tuple[float, float] | None:
        """The interval of the effect; None where not resolved."""
        if self.interval is None or self.width is None or not all(map(math.isfinite, self.interval)):
            return None
        return self.interval[0] * self.width, self.interval[1] * self.width

    @property
    def effect(self) -> float | None:
        """How far the answer moves when the column crosses its declared range."""
        return None if self.width is None else self.value * self.width


@dataclass(frozen=True)
class DeclaredColumn:
    """One column as it was declared: what for, between which bounds or with which levels, from where.

    `source` is "" where nothing was stated; `follows` says that the bounds are computed from declared ones.
    """

    name: str
    use: str
    low: float | str | None = None
    high: float | str | None = None
    levels: tuple[str, ...] = ()
    source: str = ""
    missing: str = ""
    needs_source: bool = True
    follows: bool = False
    is_feature: bool = False

    @property
    def declaration(self) -> DeclaredColumn:
        """The same without its name: what several columns may have in common."""
        return replace(self, name="")

    @property
    def few(self) -> bool:
        """Whether its levels stand in a table as they are."""
        return len(self.levels) <= FEW_LEVELS

    @property
    def said_source(self) -> str:
        """The source in words."""
        if self.source or not self.needs_source:
            return self.source or "by its kind"
        return "follow from the columns it is computed from" if self.follows else NOT_STATED


@dataclass(frozen=True)
class Caution:
    """What a reader must know before relying on a release; red: do not share before it is resolved."""

    level: Literal["red", "amber"]
    text: str


def privacy_curve(guarantee: Guarantee, curve: PrivacyCurve) -> Markup:
    """δ(ε), with the point that was asked for marked."""
    return line_chart(
        "Privacy curve: δ against ε",
        Axis("ε", 0.0, 1.5 * guarantee.epsilon),
        Axis("δ", curve.floor, 1.0, log=True),
        [Series("δ(ε)", curve.epsilons, curve.deltas)],
        (guarantee.epsilon, max(guarantee.delta, curve.floor), "what was asked for"),
    )


def effects(coefficients: Sequence[Coefficient]) -> list[Coefficient]:
    """Those of the figure: in their order, or the `SHOWN` largest across their ranges if there are more."""
    drawn = [c for c in coefficients if c.effect is not None]
    if len(drawn) <= SHOWN:
        return drawn
    return sorted(drawn, key=lambda c: -abs(c.effect or 0.0))[:SHOWN]


def effects_figure(coefficients: Sequence[Coefficient]) -> Markup:
    """Effects across declared ranges: with their intervals where there are some, as bars otherwise."""
    if any(c.interval is not None for c in coefficients):
        whiskers = [Whisker(c.label, c.effect or 0.0, c.reach) for c in coefficients]
        return interval_chart("Coefficients with their 95 % intervals", whiskers)
    return bar_chart("Coefficients across their ranges", [(c.label, c.effect or 0.0) for c in coefficients])


def release_page(
    title: str,
    subtitle: str,
    guarantee: Guarantee,
    coefficients: Sequence[Coefficient],
    *,
    ledger: LedgerState | None = None,
    verdict: Verdict | None = None,
    columns: Sequence[DeclaredColumn] = (),
    record: ReleaseRecord | None = None,
    cautions: Sequence[Caution] = (),
    protects: str = "",
) -> str:
    """The HTML of one release: the promise first, the coefficients last."""
    promise = Promise(guarantee)
    drawn = effects(coefficients)
    context = {
        "title": title,
        "subtitle": subtitle,
        "promise": promise,
        "cautions": cautions,
        "curve": privacy_curve(guarantee, promise.curve),
        "coefficients": coefficients,
        "several": len({c.output for c in coefficients}) > 1,
        "drawn": drawn,
        "figure": effects_figure(drawn) if drawn else "",
        "inferred": any(c.interval is not None for c in drawn),
        "with_range": sum(c.effect is not None for c in coefficients),
        "ledger": ledger,
        "budget_share": 0.0 if ledger is None else _used_share(ledger),
        "verdict": verdict,
        "columns": [
            (", ".join(column.name for column in alike), declaration)
            for declaration, alike in groupby(columns, lambda column: column.declaration)
        ],
        "record": record,
        "protects": protects,
        "inner_doubles": any(name in guarantee.parameters for name in INNER_DOUBLES),
    }
    return environment().get_template("release.html").render(r=context, g=guarantee)


def _used_share(ledger: LedgerState) -> float:
    """The larger used share of ε and δ, in [0, 1]; of ε alone where squares add up, at one δ."""
    pairs = [(ledger.spent_epsilon, ledger.epsilon), (ledger.spent_delta, ledger.delta)]
    return min(1.0, max(spent / total for spent, total in pairs[: 1 if ledger.spent.mu else 2] if total > 0))
