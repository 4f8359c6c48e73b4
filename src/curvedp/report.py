"""What a reader of a release sees: one self-contained HTML page, made of released and public numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from curvedp.charts import Axis, Series, Whisker, interval_chart, legend, line_chart
from curvedp.forecast import Forecast, Verdict
from curvedp.ledger import LedgerState
from curvedp.pages import environment
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import Parameter

CURVE_POINTS = 25
FALSE_ALARMS = 0.05  # the false-alarm rate at which the page states the attacker's best detection rate


@dataclass(frozen=True)
class Coefficient:
    """One released number in the user's units.

    `width` is the declared range of its column (None for an intercept), `output` the class it belongs to,
    `interval` what holds it with 95 % probability: NaN where not resolved, None where nothing is stated.
    """

    name: str
    value: float
    width: float | None = None
    output: str = ""
    interval: tuple[float, float] | None = None

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
class DeclaredBounds:
    """The bounds of a column, where they come from ("" is public knowledge), what missing cells are."""

    name: str
    low: float
    high: float
    origin: str = ""
    missing: str = "the middle"


@dataclass(frozen=True)
class PrivacyCurve:
    """Points (ε, δ(ε)) of a guarantee, from ε = 0 until δ falls below `floor`."""

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    floor: float

    @classmethod
    def of(cls, guarantee: Guarantee) -> PrivacyCurve:
        """Down to a thousandth of the δ that was asked for, and as far as 1.5 times the ε."""
        asked = guarantee.delta
        floor = 10.0 ** math.floor(math.log10(max(1e-3 * asked, 1e-30))) if asked > 0 else 1e-12
        epsilons: list[float] = []
        deltas: list[float] = []
        for epsilon in np.linspace(0.0, 1.5 * guarantee.epsilon, CURVE_POINTS):
            delta = guarantee.delta_at(float(epsilon))
            if delta < floor:
                break
            epsilons.append(float(epsilon))
            deltas.append(delta)
        return cls(tuple(epsilons), tuple(deltas), floor)

    def detection_rate(self, false_alarms: float = FALSE_ALARMS) -> float:
        """min over ε of e^ε·α + δ(ε): the most an attacker with false-alarm rate α can detect."""
        rates = (math.exp(e) * false_alarms + d for e, d in zip(self.epsilons, self.deltas, strict=True))
        return min(1.0, *rates)


def noise_scales(guarantee: Guarantee) -> list[Parameter]:
    """The parameters that are sizes of noise, for one line of a table."""
    return [p for p in guarantee.parameters.described if p.is_noise and not isinstance(p.value, str)]


def privacy_curve(guarantee: Guarantee, curve: PrivacyCurve) -> Markup:
    """δ(ε), with the point that was asked for marked."""
    return line_chart(
        "Privacy curve: δ against ε",
        Axis("ε", 0.0, 1.5 * guarantee.epsilon),
        Axis("δ", curve.floor, 1.0, log=True),
        [Series("δ(ε)", curve.epsilons, curve.deltas)],
        (guarantee.epsilon, max(guarantee.delta, curve.floor), "what was asked for"),
    )


def release_page(
    title: str,
    subtitle: str,
    guarantee: Guarantee,
    coefficients: Sequence[Coefficient],
    ledger: LedgerState | None = None,
    verdict: Verdict | None = None,
    bounds: Sequence[DeclaredBounds] = (),
) -> str:
    """The HTML of one release."""
    curve = PrivacyCurve.of(guarantee)
    reach = max((abs(c.effect or 0.0) for c in coefficients), default=0.0)
    outputs = sorted({c.output for c in coefficients})
    inferred = [
        Whisker(c.name, c.effect, c.reach)
        for c in coefficients
        if c.interval is not None and c.effect is not None
    ]
    who = guarantee.neighbours.who
    context = {
        "title": title,
        "subtitle": subtitle,
        "counterfactual": (
            f"had that {who} been any other {who}"
            if guarantee.neighbours.count_is_public
            else f"had that {who} been left out"
        ),
        "odds": math.ceil(100 * math.exp(guarantee.epsilon)) / 100,  # bounds are shown rounded up
        "attack": math.ceil(1000 * curve.detection_rate()) / 10,
        "curve": privacy_curve(guarantee, curve),
        "coefficients": [(c, _bar(c, reach or 1.0)) for c in coefficients],
        "outputs": outputs,
        "intervals": interval_chart("Coefficients with their 95 % intervals", inferred) if inferred else "",
        "ledger": ledger,
        "budget_share": 0.0 if ledger is None else _used_share(ledger),
        "verdict": verdict,
        "bounds": bounds,
    }
    return environment().get_template("release.html").render(r=context, g=guarantee)


def forecast_page(forecast: Forecast) -> str:
    """The HTML of `curvedp plan`: what each mechanism would cost and give, before any data are touched."""
    epsilons = forecast.epsilons
    curves = [Series(row.label, epsilons, row.scores_by_epsilon) for row in forecast.rows]
    series = [*curves, Series("no privacy", epsilons, [forecast.nonprivate_score] * len(epsilons), True)]
    chart = line_chart(
        "Expected score against ε",
        Axis("ε", min(epsilons), max(epsilons), log=True),
        Axis(
            f"expected {forecast.score_name}",
            forecast.constant_score - 0.05,
            1.05 * forecast.nonprivate_score,
        ),
        series,
    )
    page = environment().get_template("plan.html")
    return page.render(t=forecast, chart=chart, legend=legend(series), scales=noise_scales)


def _used_share(ledger: LedgerState) -> float:
    """The larger used share of ε and δ, in [0, 1]."""
    pairs = ((ledger.spent_epsilon, ledger.epsilon), (ledger.spent_delta, ledger.delta))
    return min(1.0, max(spent / total for spent, total in pairs if total > 0))


def _bar(coefficient: Coefficient, reach: float) -> Markup:
    """The effect as a bar from the middle."""
    if coefficient.effect is None:
        return Markup("")
    value = coefficient.effect / reach
    left, width = 50 + 50 * min(value, 0.0), 50 * abs(value)
    return Markup(
        f'<svg aria-hidden="true"><rect x="{left:.2f}%" y="3" width="{width:.2f}%" height="10" rx="2"/>'
        '<line class="zero" x1="50%" x2="50%" y1="0" y2="16"/></svg>'
    )
