"""Many noisy gradient descents at once, with the log-likelihood ratio of every round.

A round asks for Σ_r c_r clip(∇ℓ_r): with the change Δ between the tables, a unit Gaussian z and s the side,
log p₁ − log p₀ = (s − ½)‖Δ‖²/σ² + ⟨z, Δ⟩/σ. Rounding slack of about 10⁻⁹ is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curvedp import randomness
from curvedp.arrays import FloatArray
from curvedp.audit.accounted import Accounted, CountedDraws, register
from curvedp.audit.fits import Backend
from curvedp.audit.fits.recentered import Drawn
from curvedp.audit.pairs import Pair
from curvedp.audit.samplers import unpenalized
from curvedp.mechanisms.gradient import NoisyGradientPlan

_ROWS = 2**14  # fits in memory


@register
def _(plan: NoisyGradientPlan, pair: Pair, engine: Backend) -> Accounted | None:
    problem = plan.problem
    plain = problem.domain.unit is None and not problem.domain.weighted and problem.loss.n_outputs == 1
    return Descents(plan, pair) if plain and unpenalized(problem, plan.d) else None


@dataclass(frozen=True, eq=False)
class Descents(CountedDraws):
    """Fits of a plan on the tables of a pair; no penalty, no constraint, one margin."""

    plan: NoisyGradientPlan
    pair: Pair

    @cached_property
    def _records(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """x and y of both tables, one under the other, and the counts of each table, shape (2, r)."""
        left, right = self.pair.left, self.pair.right
        none = np.zeros(len(left.y)), np.zeros(len(right.y))
        counts = np.stack([np.append(left.counts, none[1]), np.append(none[0], right.counts)])
        return np.vstack([left.x, right.x]), np.append(left.y, right.y), counts

    def draw(self, side: int, n: int, seed: int) -> Drawn:
        """n fresh descents: θ, and log p₁ − log p₀ of the count and of every round."""
        random = randomness.generator(seed)
        parts = [self._some(side, min(_ROWS, n - start), random) for start in range(0, n, _ROWS)]
        return Drawn(np.concatenate([p.theta for p in parts]), np.concatenate([p.ratio for p in parts]))

    def _some(self, side: int, n: int, random: np.random.Generator) -> Drawn:
        plan, (x, y, counts) = self.plan, self._records
        neighbours, loss, sign = plan.problem.domain.neighbours, plan.problem.loss, side - 0.5
        rows = counts.sum(1)
        ratio, total = np.zeros(n), np.full(n, max(rows[side], 1.0))
        if not neighbours.count_is_public:
            sigma = neighbours.histogram_factor / plan.mu_count
            z, change = random.standard_normal(n), (rows[1] - rows[0]) / sigma
            ratio += sign * change**2 + z * change
            total = np.maximum(rows[side] + sigma * z, max(sigma, 1.0))
        lengths = np.maximum(np.linalg.norm(x, axis=1), 1e-300)
        theta, mean = np.zeros((n, plan.d)), np.zeros((n, plan.d))
        last = max(1, round(plan.average * plan.rounds))
        labels = np.tile(y, n)
        for t in range(plan.rounds):
            margins = theta @ x.T
            slopes = loss.gradient(margins.reshape(-1, 1), labels).reshape(margins.shape)
            slopes = np.clip(slopes, -plan.clip / lengths, plan.clip / lengths)
            z = random.standard_normal((n, plan.d))
            change = (slopes * (counts[1] - counts[0])) @ x / plan.sigma
            ratio += sign * np.square(change).sum(1) + (z * change).sum(1)
            noisy = (slopes * counts[side]) @ x + plan.sigma * z
            theta -= (plan.step / total)[:, None] * noisy
            if t >= plan.rounds - last:
                mean += theta / last
        return Drawn(mean, ratio)
