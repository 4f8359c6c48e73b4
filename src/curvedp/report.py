"""What a reader of a release sees: one self-contained HTML page, made of released and public numbers only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from curvedp import __version__
from curvedp.charts import Axis, Series, legend, line_chart, power
from curvedp.ledger import LedgerState
from curvedp.planning import PlanTable, Verdict
from curvedp.privacy.guarantee import Guarantee

SCALES = (
    "m",
    "sigma2",
    "sigma0",
    "sigma",
    "scale",
    "xy_scale",
    "mu",
    "Delta",
    "Lambda",
    "rounds",
    "sigma_tilde",
)
CURVE_POINTS = 25
FALSE_ALARMS = 0.05  # the false-alarm rate at which the page states the attacker's best detection rate

PARAMETERS: Mapping[str, tuple[str, str]] = {
    "d": ("d", "model columns, intercept included"),
    "L": ("L", "smoothness of one record's loss"),
    "m": ("m", "degrees of freedom of the random curvature W"),
    "sigma2": ("σ²", "scale of the random curvature σ²W"),
    "sigma0": ("σ₀", "standard deviation of the linear noise a"),
    "sigma_tilde": ("σ̃", "standard deviation of the output noise b"),
    "sigma": ("σ", "standard deviation of the Gaussian noise"),
    "sigma_round": ("σₜ", "standard deviation of the noise of each gradient round"),
    "sigma_h": ("σₕ", "standard deviation of the noise on each histogram count"),
    "eta": ("η", "certified distance of the solve from the exact minimiser"),
    "center_sensitivity": ("Δ_c", "how far one record moves the gradient at the centre"),
    "radius": ("‖θ‖", "public guess of the size of the answer, used to calibrate only"),
    "rank": ("ρ", "rank of one record's Hessian"),
    "rounds": ("T", "gradient rounds"),
    "clip": ("c", "norm that each record's gradient is clipped to"),
    "x_norm": ("B", "norm that each row is clipped to"),
    "mu": ("μ", "Gaussian shift that one record can cause, all Gaussian releases together"),
    "mu_count": ("μₙ", "its part for the number of rows"),
    "mu_pilot": ("μₚ", "its part for a first look at the Gram matrix"),
    "mu_lengths": ("μₗ", "its part for the histogram of record lengths"),
    "mu_clip": ("μₖ", "its part for the histogram that chooses the clip"),
    "mu_first_round": ("μ₁", "its part for each of the first rounds"),
    "mu_later_round": ("μₜ", "its part for each later round"),
    "mu_round": ("μₜ", "its part for each round"),
    "zcdp_rho": ("μ²/2", "what a zCDP budget counts"),
    "first_rounds": ("T₁", "first rounds, which only find the neighbourhood"),
    "rho": ("ρ", "rank of one record's Hessian"),
    "Delta": ("Δ", "added quadratic curvature"),
    "zeta": ("ζ", "bound on one record's gradient"),
    "Lambda": ("Λ", "added quadratic curvature"),
    "step": ("s", "step of a gradient round"),
    "noise": ("", "law of the noise"),
    "scale": ("σ", "standard deviation of the noise on each entry of XᵀX"),
    "xy_scale": ("σ_xy", "standard deviation of the noise on each entry of Xᵀy"),
}


@dataclass(frozen=True)
class Coefficient:
    """One released number in the user's units.

    `deviation` is the standard deviation that the noise gives it, where that follows from released numbers;
    `width` the declared range of its column (None for an intercept); `output` the class it belongs to.
    """

    name: str
    value: float
    deviation: float | None = None
    width: float | None = None
    output: str = ""

    @property
    def effect(self) -> float | None:
        """How far the answer moves when the column crosses its declared range."""
        return None if self.width is None else self.value * self.width


@dataclass(frozen=True)
class Parameter:
    """One public number of the mechanism, with its symbol."""

    name: str
    symbol: str
    meaning: str
    value: float | str


@dataclass(frozen=True)
class Curve:
    """Points (ε, δ(ε)) of a guarantee, from ε = 0 until δ falls below `floor`."""

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    floor: float

    @classmethod
    def of(cls, guarantee: Guarantee) -> Curve:
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


def parameter_table(guarantee: Guarantee) -> list[Parameter]:
    """The public numbers of a guarantee, the known symbols first and in the order of the theory."""
    numbers = {
        k: v for k, v in guarantee.parameters.items() if isinstance(v, (int, float, str)) and v is not None
    }
    order = {name: i for i, name in enumerate(PARAMETERS)}
    rows = []
    for name in sorted(numbers, key=lambda k: (order.get(k, len(order)), k)):
        symbol, meaning = PARAMETERS.get(name, (name, name.replace("_", " ")))
        rows.append(Parameter(name, symbol, meaning, numbers[name]))
    return rows


def noise_scales(guarantee: Guarantee) -> list[Parameter]:
    """The parameters that are sizes of noise, for one line of a table."""
    return [p for p in parameter_table(guarantee) if p.name in SCALES and isinstance(p.value, (int, float))]


def privacy_curve(guarantee: Guarantee, curve: Curve) -> Markup:
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
) -> str:
    """The HTML of one release."""
    curve = Curve.of(guarantee)
    reach = max(
        ((abs(c.value) + 2 * (c.deviation or 0.0)) * (c.width or 0.0) for c in coefficients), default=0.0
    )
    outputs = sorted({c.output for c in coefficients})
    deviations = any(c.deviation is not None for c in coefficients)
    replaced = guarantee.adjacency == "replace"
    context = {
        "title": title,
        "subtitle": subtitle,
        "adjacency_words": "one record replaced" if replaced else "one record added or removed",
        "counterfactual": (
            "had that record been any other record" if replaced else "had that record been left out"
        ),
        "odds": math.ceil(100 * math.exp(guarantee.epsilon)) / 100,  # bounds are shown rounded up
        "attack": math.ceil(1000 * curve.detection_rate()) / 10,
        "curve": privacy_curve(guarantee, curve),
        "parameters": parameter_table(guarantee),
        "coefficients": [(c, _bar(c, reach or 1.0)) for c in coefficients],
        "outputs": outputs,
        "has_deviations": deviations,
        "ledger": ledger,
        "budget_share": 0.0 if ledger is None else _used_share(ledger),
        "verdict": verdict,
    }
    return _environment().get_template("release.html").render(r=context, g=guarantee, version=__version__)


def plan_page(table: PlanTable) -> str:
    """The HTML of `curvedp plan`: what each mechanism would cost and give, before any data are touched."""
    curves = [Series(row.label, table.epsilons, row.scores_by_epsilon) for row in table.rows]
    best = Series("no privacy", table.epsilons, [table.nonprivate_score] * len(table.epsilons), True)
    series = [*curves, best]
    chart = line_chart(
        "Expected score against ε",
        Axis("ε", min(table.epsilons), max(table.epsilons), log=True),
        Axis(f"expected {table.score_name}", table.constant_score - 0.05, 1.05 * table.nonprivate_score),
        series,
    )
    return (
        _environment()
        .get_template("plan.html")
        .render(t=table, chart=chart, legend=legend(series), scales=noise_scales, version=__version__)
    )


def write(path: Path, page: str) -> None:
    """The page as a UTF-8 file."""
    path.write_text(page, encoding="utf-8")


def _used_share(ledger: LedgerState) -> float:
    """The larger used share of ε and δ, in [0, 1]."""
    pairs = ((ledger.spent_epsilon, ledger.epsilon), (ledger.spent_delta, ledger.delta))
    return min(1.0, max(spent / total for spent, total in pairs if total > 0))


def _bar(coefficient: Coefficient, reach: float) -> Markup:
    """The effect as a bar from the middle, with a line of two standard deviations to each side."""
    if coefficient.effect is None or coefficient.width is None:
        return Markup("")
    value = coefficient.effect / reach
    whisker = ""
    if coefficient.deviation is not None:
        spread = 2 * coefficient.deviation * coefficient.width / reach
        a, b = 50 + 50 * (value - spread), 50 + 50 * (value + spread)
        whisker = f'<line class="spread" x1="{a:.2f}%" x2="{b:.2f}%" y1="8" y2="8"/>'
    left, width = 50 + 50 * min(value, 0.0), 50 * abs(value)
    return Markup(
        f'<svg aria-hidden="true"><rect x="{left:.2f}%" y="3" width="{width:.2f}%" height="10" rx="2"/>'
        f'<line class="zero" x1="50%" x2="50%" y1="0" y2="16"/>{whisker}</svg>'
    )


def _power(value: float | str, digits: int = 4) -> Markup | str:
    return power(float(value), digits) if isinstance(value, (int, float)) else value


def _symbol(text: str) -> Markup:
    """`Δ_c` with a real subscript."""
    base, _, index = text.partition("_") if text[1:2] == "_" else (text, "", "")
    return Markup("{}<sub>{}</sub>").format(base, index) if index else escape(base)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("curvedp"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["power"] = _power
    environment.filters["symbol"] = _symbol
    environment.filters["exact"] = lambda value: repr(value) if isinstance(value, float) else str(value)
    return environment
