"""True output densities of linear objective perturbation against (P-8); the published one fails.

θ solves ∇J(θ) + Δθ + a = 0 with a ~ N(0, σ²I): p(θ) = N(a(θ); 0, σ²I) det(∇²J(θ) + ΔI), a(θ) = −∇J(θ) − Δθ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import norm

from curvedp.errors import NotCovered
from curvedp_studies import paper
from curvedp_studies.mechanisms.lop import calibrate_lop, lop_profile

Record = tuple[np.ndarray, "Ramp"]


@dataclass(frozen=True)
class Ramp:
    """φ' rises from `bottom` to `top` with slope L from `start` on, and is constant elsewhere."""

    L: float
    start: float
    bottom: float
    top: float

    def first(self, s: np.ndarray) -> np.ndarray:
        return np.clip(self.bottom + self.L * (s - self.start), self.bottom, self.top)

    def second(self, s: np.ndarray) -> np.ndarray:
        end = self.start + (self.top - self.bottom) / self.L
        return np.where((s > self.start) & (s < end), self.L, 0.0)


def density_1d(
    theta: np.ndarray, records: list[tuple[float, Ramp]], Delta: float, sigma: float
) -> np.ndarray:
    gradient = sum((x * phi.first(x * theta) for x, phi in records), np.zeros_like(theta))
    hessian = sum((x * x * phi.second(x * theta) for x, phi in records), np.zeros_like(theta))
    return np.exp(norm.logpdf(-gradient - Delta * theta, scale=sigma)) * (hessian + Delta)


def divergence_1d(
    first: list[tuple[float, Ramp]],
    second: list[tuple[float, Ramp]],
    Delta: float,
    sigma: float,
    epsilon: float,
    points: int = 60001,
) -> float:
    theta = np.linspace(-30 * sigma / Delta, 30 * sigma / Delta, points)
    p, q = (density_1d(theta, records, Delta, sigma) for records in (first, second))
    step = theta[1] - theta[0]
    assert abs(p.sum() * step - 1) < 2e-3
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * step)


def counterexample(Delta: float, sigma: float, epsilon: float) -> float:
    """sup over the place of the ramp of δ for D = {φ' ≡ −ζ}, D' = {φ' a ramp from −ζ to ζ}, ζ = L = 1."""
    flat = [(1.0, Ramp(1.0, 0.0, -1.0, -1.0))]

    def at(start: float, points: int) -> float:
        return divergence_1d([(1.0, Ramp(1.0, start, -1.0, 1.0))], flat, Delta, sigma, epsilon, points)

    starts = np.linspace(-10 * sigma / Delta, 0, 101)
    best = starts[int(np.argmax([at(t, 20001) for t in starts]))]
    fine = best + np.linspace(-1, 1, 21) * (starts[1] - starts[0])
    return max(at(t, 200001) for t in fine)


@pytest.mark.parametrize(("delta", "true"), [(1e-6, 1.6e-6), (1e-8, 1.7e-7), (1e-10, 2.0e-8)])
def test_the_published_calibration_breaks_under_replace_and_ours_holds(delta: float, true: float) -> None:
    published = paper.lop_parameters(1.0, delta, L=1.0, zeta=1.0)
    broken = counterexample(published.Delta, math.sqrt(published.sigma2), 1.0)
    assert broken > 1.4 * delta
    assert broken == pytest.approx(true, rel=0.1)
    ours = calibrate_lop(1.0, delta, L=1.0, zeta=1.0, d=1, radius=1.0, adjacency="replace")
    assert counterexample(ours.Delta, ours.sigma, 1.0) <= delta


def test_the_published_calibration_is_refused_under_replace() -> None:
    with pytest.raises(NotCovered, match="false under replace"):
        calibrate_lop(1.0, 1e-6, L=1, zeta=1, d=1, radius=1, adjacency="replace", accounting="paper")
    kept = calibrate_lop(1.0, 1e-6, L=1, zeta=1, d=1, radius=1, adjacency="add_remove", accounting="paper")
    published = paper.lop_parameters(1.0, 1e-6, L=1.0, zeta=1.0)
    assert kept.Delta == published.Delta
    assert kept.sigma == pytest.approx(math.sqrt(published.sigma2))
    # What it claims is true under add_remove: the sharp accounting confirms it.
    sharp = lop_profile(L=1, zeta=1, Delta=kept.Delta, sigma=kept.sigma, adjacency="add_remove")
    assert sharp.delta_at(1.0) <= 1e-6


def random_ramp(rng: np.random.Generator, L: float, zeta: float, spread: float) -> Ramp:
    bottom, top = np.sort(zeta * rng.choice([-1.0, 1.0, float(rng.uniform(-1, 1))], 2))
    return Ramp(L, float(rng.normal(0, spread)), float(bottom), float(top))


@pytest.mark.parametrize(("Delta", "sigma"), [(5.0, 1.0), (1.0, 2.0), (20.0, 4.0)])
def test_dimension_one_never_exceeds_the_sharp_accounting(Delta: float, sigma: float) -> None:
    rng = np.random.default_rng(int(Delta))
    worst = 0.0
    for _ in range(60):
        spread = 2 * sigma / Delta
        z, z_new = ((1.0, random_ramp(rng, 1.0, 1.0, spread)) for _ in range(2))
        common = [(1.0, random_ramp(rng, float(rng.choice([1e-9, 3.0])), 2.0, spread))]
        epsilon = float(rng.choice([0.05, 0.3, 1.0]))
        cases = [
            ("replace", common + [z_new], common + [z]),
            ("add_remove", common + [z], common),
            ("add_remove", common, common + [z]),
        ]
        for adjacency, first, second in cases:
            profile = lop_profile(L=1, zeta=1, Delta=Delta, sigma=sigma, adjacency=adjacency)
            true = divergence_1d(first, second, Delta, sigma, epsilon, 40001)
            bound = profile.delta_at(epsilon)
            assert true <= bound * 1.003 + 1e-9
            worst = max(worst, true / bound)
    assert worst > 0.3


def test_removing_attains_both_tails_and_adding_attains_one() -> None:
    """The two forms of add_remove: φ' = ±ζ far out. Removing shows at both ends, adding at one."""
    Delta, sigma, epsilon = 500.0, 1.0, 1.2
    far = [(1.0, Ramp(1.0, -40.0, 1.0, 1.0))]  # φ' ≡ ζ: a plain Gaussian shift
    adding = divergence_1d(far, [], Delta, sigma, epsilon, 200001)
    profile = lop_profile(L=1, zeta=1, Delta=Delta, sigma=sigma, adjacency="add_remove")
    assert adding <= profile.delta_at(epsilon)
    steep = [(1.0, Ramp(1e6, 0.0, -1.0, 1.0))]  # the limit of an ever steeper ramp
    removing = divergence_1d([], steep, Delta, sigma, epsilon, 400001)
    assert removing == pytest.approx(2 * adding, rel=0.05)
    assert removing <= lop_profile(L=1e6, zeta=1, Delta=Delta, sigma=sigma, adjacency="add_remove").delta_at(
        epsilon
    )


def test_dimension_two_never_exceeds_the_sharp_accounting() -> None:
    """The aligned pair is claimed to be the worst: here every angle is tried, with kinks."""
    rng = np.random.default_rng(8)
    Delta, sigma = 6.0, 1.5
    axis = np.linspace(-2.2, 2.2, 501)
    theta = np.stack(np.meshgrid(axis, axis, indexing="ij"))
    cell = (axis[1] - axis[0]) ** 2

    def density(records: list[Record]) -> np.ndarray:
        gradient, H = np.zeros_like(theta), np.zeros((2, 2) + theta.shape[1:])
        for x, phi in records:
            s = x[0] * theta[0] + x[1] * theta[1]
            gradient += x[:, None, None] * phi.first(s)
            H += np.multiply.outer(np.outer(x, x), phi.second(s))
        a = -gradient - Delta * theta
        determinant = (H[0, 0] + Delta) * (H[1, 1] + Delta) - H[0, 1] ** 2
        return np.exp(-(a**2).sum(axis=0) / (2 * sigma**2)) / (2 * math.pi * sigma**2) * determinant

    profile = lop_profile(L=1, zeta=1, Delta=Delta, sigma=sigma, adjacency="replace")
    worst = 0.0
    for angle in np.linspace(0, math.pi, 7):
        for _ in range(3):
            x, x_new = np.array([1.0, 0.0]), np.array([math.cos(angle), math.sin(angle)])
            first = density([(x_new, random_ramp(rng, 1.0, 1.0, 0.3))])
            second = density([(x, random_ramp(rng, 1.0, 1.0, 0.3))])
            assert abs(first.sum() * cell - 1) < 2e-3
            for epsilon in (0.1, 0.5, 1.5):
                true = float(np.maximum(first - math.exp(epsilon) * second, 0).sum() * cell)
                bound = profile.delta_at(epsilon)
                assert true <= bound * 1.005 + 1e-8
                worst = max(worst, true / bound)
    assert worst > 0.2
