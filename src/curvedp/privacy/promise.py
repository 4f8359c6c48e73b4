"""An (ε, δ) guarantee in words: what it limits, and what an attacker can do all the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from curvedp.digits import rounded_up, shown

if TYPE_CHECKING:
    from curvedp.privacy.guarantee import Guarantee

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
    def detected(self) -> float:
        """Detections in 100 cases at 5 false alarms, rounded up to a tenth."""
        return math.ceil(1000 * self.curve.detection_rate()) / 10

    @property
    def conclusion(self) -> str:
        """What the two numbers mean."""
        g, who = self.guarantee, self.guarantee.neighbours.who
        odds = f"e^ε = {shown(rounded_up(factor(g.epsilon)))}"
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
