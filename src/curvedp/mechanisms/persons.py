"""Recentered rounds over persons (U-1): as (P-9), a person's rows clipped, measured and counted as one.

A person's Σ x xᵀ has any rank, so that no Wishart theorem covers it: the curvature gets Gaussian noise like
everything else, and the whole is one Gaussian mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.mechanisms.geometry import Geometry, geometry_of, noise_norm
from curvedp.mechanisms.noise import GaussianNoise, gaussian_profile, gram_scale
from curvedp.mechanisms.recentered import RARE, WalkPlan
from curvedp.mechanisms.rule import Rule, Shifts
from curvedp.mechanisms.walk import edges_beyond
from curvedp.neighbours import Neighbours
from curvedp.privacy import parameters as public
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.profiles import GaussianProfile, rare_cap
from curvedp.problem import Problem
from curvedp.released.scales import EDGES as LOOK_EDGES
from curvedp.rows.base import Rows
from curvedp.rows.rounding import SUM_SLACK

EXTENT_SHARE = 0.02  # of μ²: the histogram of ‖Σ x xᵀ‖^½ of persons, in the given coordinates
# Its edges, in units of B: a factor √2 apart, each for twice the rows of the one before.
EXTENTS = math.sqrt(2.0) ** np.arange(-4.0, 17.0)
MOST_ROWS = 2.0**16  # of a person that gradients which all agree are looked for


@dataclass(frozen=True)
class PersonShifts(Shifts):
    """The Gaussian shift of every release, Σ μ_j² ≤ μ² (U-1)."""

    extent: float
    curvature: float

    @classmethod
    def shares(cls, rule: Rule, neighbours: Neighbours) -> dict[str, float]:
        """Fractions of μ² that all releases of one kind get together."""
        parts = {**rule.shares, "extent": EXTENT_SHARE}
        if neighbours.count_is_public:
            parts["count"] = 0.0
        rounds = 1.0 - sum(parts.values())
        return parts | {"first": rounds * rule.first_share, "later": rounds * (1.0 - rule.first_share)}

    @classmethod
    def of(cls, mu: float, rule: Rule, neighbours: Neighbours) -> PersonShifts:
        shares = cls.shares(rule, neighbours)
        return cls(**{name: mu * math.sqrt(share) * (1 - 1e-14) for name, share in shares.items()})


def person_plan(rule: Rule, problem: Problem, d: int, budget: Budget) -> PersonPlan:
    """Calibrate every release: all of them are Gaussian, and their shifts add in squares."""
    neighbours = problem.domain.neighbours
    shares = PersonShifts.shares(rule, neighbours)
    sizes = {
        "count": 1,
        "extent": len(EXTENTS) + 1,
        "pilot": d * d,
        "lengths": rule.edges + 1,
        "curvature": d * d,
        "spread": LOOK_EDGES + 1,
        "scale": LOOK_EDGES + 1,
        "clip": rule.edges + 1,
    }
    dims, parts = list(sizes.values()), [shares[name] for name in sizes]
    dims += [d * problem.loss.n_outputs] * rule.rounds
    parts += [shares["first"] + shares["later"]] * rule.rounds  # no round has more
    rare = 0.0 if neighbours.count_is_public else RARE * budget.delta
    profile = gaussian_profile(Budget(budget.epsilon, budget.delta - 2.0 * rare), dims, parts)
    profile = replace(profile, excess=profile.excess + rare, cap=rare_cap(budget.epsilon, rare))
    shifts = PersonShifts.of(profile.mu, rule, neighbours)
    return PersonPlan(problem, d, budget, rule, shifts, profile.mu, profile)


@dataclass(frozen=True, eq=False)
class PersonPlan(WalkPlan):
    """The calibrated mechanism: the shift of every Gaussian release over persons."""

    shifts: PersonShifts
    profile: GaussianProfile
    persons: ClassVar[bool] = True

    @cached_property
    def guarantee(self) -> Guarantee:
        s = self.shifts
        return self.promise(
            "recentered",
            "gaussian",
            "(U-1)",
            self.profile,
            public.MU(self.profile.mu),
            public.MU_COUNT(s.count),
            public.MU_EXTENT(s.extent),
            public.MU_PILOT(s.pilot),
            public.MU_LENGTHS(s.lengths),
            public.MU_CURVATURE(s.curvature),
            public.MU_SPREAD(s.spread),
            public.MU_SCALE(s.scale),
            public.MU_CLIP(s.clip),
            public.MU_FIRST_ROUNDS(s.first),
            public.MU_LATER_ROUNDS(s.later),
            public.ROUNDS(self.rule.rounds),
        )

    def geometry(self, rows: Rows, noise: GaussianNoise, n: float, random: np.random.Generator) -> Geometry:
        """Four releases: how long persons are, a look at XᵀX, lengths in its metric, and S there."""
        B, given = self.problem.domain.x_norm, np.eye(self.d)
        extent = self._extent(rows.in_metric(given), noise, n)
        look = noise.gram(rows.in_metric(given, extent).moments().xx, extent, self.shifts.pilot, self._slack)
        pilot = self.pilot(look, extent, rows, noise, n)
        errors = Geometry(pilot.metric, given, 0.0).gram_slack(self.rows_at_most(noise, n))
        slack = math.sqrt(self.d) * errors
        S = noise.gram(pilot.gram, pilot.bound, self.shifts.curvature, slack)
        scale = gram_scale(pilot.bound**2, self.shifts.curvature, noise.neighbours, slack)
        found = geometry_of(S, noise_norm(scale, self.d), self.rule.floor, n, pilot)
        return replace(found, rows=max((extent / B) ** 2, 1.0))

    @property
    def _slack(self) -> float:
        """Of the pilot: entries of a person's Σ x xᵀ add up to its trace, √d times its Frobenius norm."""
        return math.sqrt(self.d) * SUM_SLACK

    def _extent(self, measured: Rows, noise: GaussianNoise, n: float) -> float:
        """The smallest edge that most persons surely stay below; that of one row where noise hides it."""
        edges = self.problem.domain.x_norm * EXTENTS
        counts = noise.counts(measured.norm_histogram(edges), self.shifts.extent)
        deviation = noise.count_scale(self.shifts.extent)
        inside = edges_beyond(edges, counts, deviation, (1.0 - self.rule.kept_lengths) * n)
        return float(inside[0]) if inside.size else self.problem.domain.x_norm

    def mass(self, counts: FloatArray, n: float) -> float:
        """A person counts as one, whatever the weights."""
        return n

    def reach(self, geometry: Geometry) -> float:
        """√k: rows that differ are as long as √k of them, which is thought, rows that agree as k of them."""
        return math.sqrt(min(geometry.rows, MOST_ROWS))
