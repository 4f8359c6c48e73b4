"""What a release promises, as a value: (ε, δ), the theorem, the public parameters, the whole δ(ε) curve."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from curvedp.errors import InvalidInput
from curvedp.numbers import rounded_up, shown
from curvedp.privacy.budget import Adjacency, Budget, Neighbours
from curvedp.privacy.gaussian import OTHER_SHARE, Cost

if TYPE_CHECKING:
    from curvedp.privacy.profiles import Curve

Value = float | int | str


@dataclass(frozen=True)
class Parameter:
    """One public number of a mechanism. `is_noise` says that it is a size of noise.

    One without a value is a name of the theory; calling it with a value makes a parameter.
    """

    name: str
    symbol: str
    meaning: str
    value: Value = ""
    is_noise: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        value = self.value.item() if isinstance(self.value, np.generic) else self.value
        if not isinstance(value, str) and not (isinstance(value, (int, float)) and math.isfinite(value)):
            raise InvalidInput(f"the public parameter {self.name!r} must be a finite number or a text")
        object.__setattr__(self, "value", value)

    def __call__(self, value: Value) -> Parameter:
        return replace(self, value=value)


class Parameters(Mapping[str, Value]):
    """Parameters in order, read as a mapping from name to value."""

    def __init__(self, *parameters: Parameter) -> None:
        self._by_name = {parameter.name: parameter for parameter in parameters}
        if len(self._by_name) < len(parameters):
            raise InvalidInput("two public parameters have one name")

    @property
    def described(self) -> tuple[Parameter, ...]:
        """With symbols and meanings."""
        return tuple(self._by_name.values())

    def __getitem__(self, name: str) -> Value:
        return self._by_name[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(f'{name}={self[name]!r}' for name in self)})"


# The vocabulary that several mechanisms share, in the order of the theory.
L = Parameter("L", "L", "smoothness of one record's loss")
M = Parameter("m", "m", "degrees of freedom of the random curvature W", is_noise=True)
SIGMA2 = Parameter("sigma2", "σ²", "scale of the random curvature σ²W", is_noise=True)
SIGMA0 = Parameter("sigma0", "σ₀", "standard deviation of the linear noise a", is_noise=True)
SIGMA = Parameter("sigma", "σ", "standard deviation of the Gaussian noise", is_noise=True)
CENTER_SENSITIVITY = Parameter(
    "center_sensitivity", "Δ_c", "how far one record moves the gradient at the centre"
)
MU = Parameter("mu", "μ", "shift between neighbours in all Gaussian releases together", is_noise=True)
MU_COUNT = Parameter("mu_count", "μₙ", "its part for the number of rows")
PARTS = {  # of μ, by the names of `mechanisms.rule.Shifts`
    "count": MU_COUNT,
    "columns": Parameter("mu_columns", "μ_c", "its part for histograms of single columns"),
    "extent": Parameter("mu_extent", "μₑ", "its part for the histogram of lengths in the given coordinates"),
    "pilot": Parameter("mu_pilot", "μₚ", "its part for a first look at the Gram matrix"),
    "lengths": Parameter("mu_lengths", "μₗ", "its part for the histogram of record lengths"),
    "curvature": Parameter("mu_curvature", "μ_S", "its part for the Gram matrix in the pilot's metric"),
    "spread": Parameter(
        "mu_spread", "μ_R", "its part for the histogram of record lengths in the metric of S"
    ),
    "scale": Parameter("mu_scale", "μ_0", "its part for the histogram of gradient lengths, or residuals"),
    "clip": Parameter("mu_clip", "μₖ", "its part for the histogram that chooses the clip"),
    "rest": Parameter("mu_rounds", "μ_T", "its part for the rounds and the constant answer together"),
    "bread": Parameter("mu_bread", "μ_J", "its part for the curvature of the loss"),
    "tail": Parameter("mu_tail", "μ_h", "its part for the histogram of gradient lengths"),
    "meat": Parameter("mu_meat", "μ_M", "its part for the covariance of gradients"),
    "beyond": Parameter("mu_beyond", "μ_d", "its part for where clipped gradients point"),
}
ROUNDS = Parameter("rounds", "T", "gradient rounds, at most", is_noise=True)
SCALE = Parameter("scale", "σ", "scale of the noise on each entry of XᵀX", is_noise=True)
XY_SCALE = Parameter(
    "xy_scale", "σ_xy", "standard deviation of the noise on each entry of Xᵀy", is_noise=True
)


@dataclass(frozen=True)
class Guarantee:
    """An (ε, δ) promise for some neighbours, and the theorem and public parameters it rests on.

    Refused unless its own profile proves it: profile.delta_at(epsilon) ≤ delta.

    Parameters
    ----------
    budget : Budget
        The promised (ε, δ).
    neighbours : Neighbours
        Between which tables it holds.
    mechanism, accounting, theorem : str
        What was run, how it is accounted, and which theorem of docs/theory.md proves it.
    parameters : Parameters
        The public numbers of the mechanism.
    profile : Curve
        The whole curve δ(ε).
    private : bool, default=True
        False for runs that promise nothing: a fixed seed, a study mode.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateRidge
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])
    >>> model.privacy_.epsilon, model.privacy_.theorem
    (1.0, '(P-9)')
    >>> model.privacy_.delta_at(2.0) < model.privacy_.delta
    True
    """

    budget: Budget
    neighbours: Neighbours
    mechanism: str
    accounting: str
    theorem: str
    parameters: Parameters
    profile: Curve = field(repr=False, compare=False)
    private: bool = True

    def __post_init__(self) -> None:
        if not self.profile.delta_at(self.epsilon) <= self.delta:
            raise InvalidInput(
                f"the profile does not prove ({self.epsilon!r}, {self.delta!r}); claim what it proves"
            )

    @property
    def epsilon(self) -> float:
        """The ε of the promise."""
        return self.budget.epsilon

    @property
    def delta(self) -> float:
        """The δ of the promise."""
        return self.budget.delta

    @property
    def adjacency(self) -> Adjacency:
        """The kind of neighbours: "replace" or "add_remove"."""
        return self.neighbours.adjacency

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """What a Gaussian budget may take for it: (μ, 0, d), and (e, d) at a small d ("Filters")."""
        leftover = OTHER_SHARE * self.delta
        gaussian = self.profile.gaussian_cost(leftover)
        epsilon = self.epsilon if self.delta == 0 else self.profile.epsilon_at(leftover)
        other = Cost(0.0, epsilon, leftover) if math.isfinite(epsilon) else None
        return tuple(cost for cost in (gaussian, other) if cost is not None)

    def delta_at(self, epsilon: float) -> float:
        """The δ that holds at another ε."""
        return self.profile.delta_at(epsilon)

    def epsilon_at(self, delta: float) -> float:
        """The ε that holds at another δ."""
        return self.profile.epsilon_at(delta)

    def to_pld(self) -> Any:
        """A pessimistic dp_accounting PrivacyLossDistribution, to compose with others fixed beforehand."""
        return self.profile.to_pld()

    def without_privacy(self) -> Guarantee:
        """The same numbers for a run that promises nothing, because its noise can be repeated."""
        return replace(self, private=False)

    def to_dict(self) -> dict[str, Any]:
        """The public values, ready for JSON."""
        return {
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "adjacency": self.adjacency,
            "unit": self.neighbours.unit,
            "mechanism": self.mechanism,
            "accounting": self.accounting,
            "theorem": self.theorem,
            "parameters": dict(self.parameters),
            "private": self.private,
        }

    def _repr_html_(self) -> str:
        return Promise(self).html()


CURVE_POINTS = 25  # of the curve that is shown and filed
FALSE_ALARMS = 0.05  # the false-alarm rate at which the attacker's best detection rate is stated
NEAR_EPSILON = 1.0  # up to which probabilities are called nearly the same
LARGE_EPSILON = 10.0  # beyond which a guarantee says little by itself
LARGE_DELTA = 1e-3  # from which failures are to be expected


@dataclass(frozen=True)
class PrivacyCurve:
    """Points (ε, δ(ε)) of a guarantee, from ε = 0 until δ falls below `floor` or falls no more."""

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
            if delta < floor or (delta <= asked and deltas[-1:] == [delta]):
                break
            epsilons.append(float(epsilon))
            deltas.append(delta)
        return cls(tuple(epsilons), tuple(deltas), floor)

    def detection_rate(self, false_alarms: float = FALSE_ALARMS) -> float:
        """min over ε of e^ε·α + δ(ε): the most an attacker with false-alarm rate α can detect."""
        rates = [factor(e) * false_alarms + d for e, d in zip(self.epsilons, self.deltas, strict=True)]
        return min([1.0, *rates])


@dataclass(frozen=True)
class Promise:
    """The sentences of a guarantee, none of them longer than what it proves."""

    guarantee: Guarantee

    @cached_property
    def curve(self) -> PrivacyCurve:
        """δ(ε)."""
        return PrivacyCurve.of(self.guarantee)

    @property
    def is_weak(self) -> bool:
        """Whether ε > 10, δ ≥ 10⁻³, or nothing is promised: what must be said in red."""
        g = self.guarantee
        return g.epsilon > LARGE_EPSILON or g.delta >= LARGE_DELTA or not g.private

    @property
    def counterfactual(self) -> str:
        """The other table."""
        who = self.guarantee.neighbours.who
        public = self.guarantee.neighbours.count_is_public
        return f"had that {who} been any other {who}" if public else f"had that {who} been left out"

    @property
    def odds(self) -> str:
        """The largest factor between the two tables' probabilities."""
        return f"e^ε = {shown(rounded_up(factor(self.guarantee.epsilon)))}"

    @property
    def detected(self) -> float:
        """Detections in 100 cases at 5 false alarms, rounded up to a tenth."""
        return math.ceil(1000 * self.curve.detection_rate()) / 10

    @property
    def conclusion(self) -> str:
        """What the two numbers mean."""
        g, who, odds = self.guarantee, self.guarantee.neighbours.who, self.odds
        if g.epsilon > LARGE_EPSILON:
            said = (
                f"This promises that {who} very little: whatever someone concludes from the release may be "
                f"up to {odds} times as probable as it would be {self.counterfactual}"
            )
        elif g.epsilon > NEAR_EPSILON or self.is_weak:
            said = (
                "Whatever someone concludes from this release, the probability that they do is at most "
                f"{odds} times what it would be {self.counterfactual}"
            )
        else:
            said = (
                "Whatever someone concludes from this release, they would have concluded with nearly the "
                f"same probability {self.counterfactual}: the two probabilities differ by a factor of at "
                f"most {odds}"
            )
        return f"Take any one {who} in the data. {said}{self._failures}"

    @property
    def _failures(self) -> str:
        delta, who = self.guarantee.delta, self.guarantee.neighbours.who
        if delta == 0:
            return ", without exception."
        if delta < LARGE_DELTA:
            return f", up to a failure probability of δ = {shown(delta, 15)}."
        times = f"once in {math.floor(1 / delta):,} releases" if delta <= 0.5 else "more often than not"
        return (
            f". And not even that always: with probability δ = {shown(delta, 15)}, {times}, anything may "
            f"happen, and the {who} may be there for all to read."
        )

    @property
    def test(self) -> str:
        """What the best attacker can do."""
        who = self.guarantee.neighbours.who
        return (
            f"As a test: an attacker who already knows every other {who}, and who may raise a false alarm in "
            f"5 cases of 100, can detect the {who} in at most {self.detected:.1f} cases of 100. With no "
            "release at all it would be 5.0."
        )

    @property
    def neighbours(self) -> str:
        """Between which tables it holds, and what that leaves public."""
        n = self.guarantee.neighbours
        count = (
            f"Their number of {n.who}s is the same, and public."
            if n.count_is_public
            else f"How many {n.who}s there are is not public, and whether one is there at all is protected."
        )
        whose = (
            "A record is one row; what a person with several rows would need is not promised."
            if n.unit is None
            else f"A person is protected with all rows, which the column {n.unit!r} tells."
        )
        return f"Two tables are neighbours when they differ in one {n.who} ({n.words}). {count} {whose}"

    def html(self) -> str:
        """For a notebook, every value escaped; the public parameters folded."""
        g = self.guarantee
        rows = "".join(
            f"<tr><td>{escape(p.symbol)}</td><td style='text-align:left'>{escape(p.meaning)}</td>"
            f"<td>{escape(p.value if isinstance(p.value, str) else shown(float(p.value)))}</td></tr>"
            for p in g.parameters.described
        )
        seeded = "<p><strong>This run is not private: a seed, or a mode for studies.</strong></p>"
        colour = " style='color:#b3261e'" if self.is_weak else ""
        return (
            f"<div><p><strong>(ε, δ) = ({shown(g.epsilon, 15)}, {shown(g.delta, 15)})</strong>, "
            f"{escape(g.neighbours.words)}.</p>{'' if g.private else seeded}"
            f"<p{colour}>{escape(self.conclusion)}</p><p>{escape(self.test)}</p>"
            f"<details><summary>{escape(g.mechanism)}, {escape(g.theorem)}, {escape(g.accounting)} "
            f"accounting: its public parameters</summary><table><tbody>{rows}</tbody></table></details></div>"
        )


def factor(epsilon: float) -> float:
    """e^ε, ∞ where that is no double."""
    return math.exp(epsilon) if epsilon < 700 else math.inf
