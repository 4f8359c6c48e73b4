"""Composition of releases that were all fixed beforehand, by their privacy loss distributions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from curvedp.amounts import exact, round_up
from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput
from curvedp.privacy.costs import OTHER_SHARE, Cost, together
from curvedp.privacy.guarantee import Guarantee, Profile
from curvedp.privacy.profiles import Curve


@dataclass(frozen=True, eq=False)
class ComposedProfile(Curve):
    """δ(ε) of a composed distribution, or of basic composition at one (ε, δ) where that is less."""

    pld: Any
    basic: tuple[float, float]  # (Σε, Σδ), which holds too
    gaussian: Cost | None = None  # of all of them together

    def gaussian_cost(self, leftover: float) -> Cost | None:
        return self.gaussian or super().gaussian_cost(leftover)

    def deltas(self, epsilon: FloatArray) -> FloatArray:
        found = [float(self.pld.get_delta_for_epsilon(float(level))) for level in epsilon]
        return np.where(epsilon >= self.basic[0], np.minimum(found, self.basic[1]), found)

    def epsilon_at(self, delta: float) -> float:
        epsilon = float(self.pld.get_epsilon_for_delta(delta))
        step = 1e-12
        while math.isfinite(epsilon) and self.delta_at(epsilon) > delta:  # its inverse is good to rounding
            epsilon += step * max(epsilon, 1.0)
            step *= 2.0
        return min(epsilon, self.basic[0]) if self.basic[1] <= delta else epsilon

    def to_pld(self, discretization: float = 1e-4) -> Any:
        return self.pld


def composed_profile(parts: Sequence[Guarantee], delta: float) -> ComposedProfile:
    """The profile of releases that are all fixed before the first is seen; it must reach `delta`."""
    if any(part.neighbours != parts[0].neighbours for part in parts):
        raise InvalidInput("releases are composed for the same neighbours: plan them all with one adjacency")
    pld = _compose([part.profile for part in parts])
    costs = [part.profile.gaussian_cost(OTHER_SHARE * part.delta) for part in parts]
    known = [cost for cost in costs if cost is not None]
    basic = (_sum(part.epsilon for part in parts), _sum(part.delta for part in parts))
    profile = ComposedProfile(pld, basic, together(known) if len(known) == len(parts) else None)
    if not math.isfinite(profile.epsilon_at(delta)):
        raise InvalidInput(f"no epsilon gives these releases a delta of {delta!r}: pass a larger delta")
    return profile


def _compose(profiles: Sequence[Profile]) -> Any:
    """The composed distribution; equal profiles are turned into distributions once."""
    groups: dict[Any, list[Profile]] = {}
    for profile in profiles:
        groups.setdefault(profile if isinstance(profile, Curve) else id(profile), []).append(profile)
    plds = [same[0].to_pld().self_compose(len(same)) for same in groups.values()]
    return reduce(lambda one, other: one.compose(other), plds)


def _sum(values: Iterable[float]) -> float:
    return round_up(sum((exact(value) for value in values), Fraction(0)))
