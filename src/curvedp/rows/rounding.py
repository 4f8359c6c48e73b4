"""What rounding adds to a sum over records: after the sum was computed, and before, for any table.

Both come from the same formulas. The first takes the sums of magnitudes of the records that were there, the
second the largest that `ROWS_AT_MOST` records can have: so the second is public, and never the smaller one.
"""

from __future__ import annotations

import math

import numpy as np

from curvedp.arrays import ROWS_AT_MOST, UNIT_ROUNDOFF, FloatArray
from curvedp.losses import Loss, offset_bound
from curvedp.problem import Problem
from curvedp.rows import products
from curvedp.rows.base import Layout
from curvedp.rows.sums import LEVELS_AT_MOST

DENSE_ROWS_AT_MOST = 4096  # in one block
_RECORDS = 1.002 * ROWS_AT_MOST  # sums of magnitudes are rounded; those of sparse rows are 1.0004·B at most


def relative_error(additions: int) -> float:
    """γ = (additions + 16)·2⁻⁵³: relative error of a sum, the products and factors of its terms included."""
    return 1.01 * (additions + 16) * UNIT_ROUNDOFF


def moments_error(mass: float, target_mass: float, additions: int) -> float:
    """γ·max(Σm², sqrt(Σm²·Σ‖y‖²)): of Σxxᵀ and of Σxyᵀ, in the Frobenius norm."""
    return relative_error(additions) * max(mass, math.sqrt(mass) * math.sqrt(target_mass))


def gradient_error(
    layout: Layout, loss: Loss, theta_norm: float, masses: tuple[float, float, float], additions: int
) -> float:
    """Σ_i m_i(β·δs_i + evaluation error of φ'_i) + γ Σ_i m_i‖φ'_i‖, with |δs_i| ≤ (d+16)·2⁻⁵³·(m_i‖θ‖ + |o|).

    `masses` are (Σm, Σm², Σm‖φ'‖), |o| bounds the offsets.
    """
    m, m2, m_slope = masses
    reach = m2 * theta_norm + m * offset_bound(loss)
    margin = loss.curvature(layout.domain, theta_norm) * (layout.d + 16) * reach
    evaluation = 16 * loss.n_outputs * ((1.0 + layout.domain.y_bound) * m + m_slope)
    return 1.01 * (UNIT_ROUNDOFF * (margin + evaluation) + relative_error(additions) * m_slope)


def additions_at_most(d: int) -> int:
    """Additions behind a term of any sum over records of d columns."""
    return products.chain(DENSE_ROWS_AT_MOST, d) + LEVELS_AT_MOST


def moments_error_bound(layout: Layout, magnitude: float) -> float:
    """A public bound of `Moments.error` for any table in this layout whose records have m_i ≤ magnitude.

    γ·N·max(M², M·Y·√T), N = `ROWS_AT_MOST`.
    """
    targets = layout.n_targets * layout.domain.y_bound**2
    return moments_error(_RECORDS * magnitude**2, _RECORDS * targets, additions_at_most(layout.d))


def gradient_error_bound(layout: Layout, loss: Loss, theta_norm: float, magnitude: float) -> float:
    """A public bound of `gradient_error` at any ‖θ‖ ≤ theta_norm, for any table in this layout.

    The masses are N·M, N·M² and N·M·S, S ≥ ‖φ'‖ the public bound of a slope.
    """
    slope = loss.gradient_bound(layout.domain, theta_norm) / layout.domain.x_norm
    # Slopes are taken at rounded margins.
    beside = (layout.d + 16) * UNIT_ROUNDOFF * (magnitude * theta_norm + offset_bound(loss))
    slope += loss.curvature(layout.domain, theta_norm) * beside
    masses = (_RECORDS * magnitude, _RECORDS * magnitude**2, 1.001 * _RECORDS * magnitude * slope)
    return gradient_error(layout, loss, theta_norm, masses, additions_at_most(layout.d))


def slope_slack(
    problem: Problem, d: int, theta: FloatArray, clip: float, *, rows: float = _RECORDS, stretch: float = 1.0
) -> float:
    """What rounding of slopes adds to the difference of two sums of clipped gradients, in units of the clip.

    2N·(β|δs| + 16K·2⁻⁵³·(1 + Y))·B·stretch/c + 32NK·2⁻⁵³, |δs| ≤ (d+16)·2⁻⁵³(B‖θ‖ + |o|); a metric stretches.
    A product of arrays may round a record's margin by where the record stands, and removing another moves it.
    """
    domain, K = problem.domain, problem.loss.n_outputs
    margin = (d + 16) * (domain.x_norm * float(np.linalg.norm(theta)) + offset_bound(problem.loss))
    beta = problem.loss.curvature(domain, problem.radius(d))
    slope = beta * margin + 16 * K * (1.0 + domain.y_bound)
    return 2.02 * rows * UNIT_ROUNDOFF * (slope * domain.x_norm * stretch / clip + 16 * K)


# Computed sums of vectors of norm ≤ c over neighbouring tables differ by (sum_factor + SUM_SLACK)·c at most:
# each of the two is off by γ·N·c. The bound for many columns holds for few, too.
SUM_SLACK = 2.0 * _RECORDS * relative_error(additions_at_most(2**62))
