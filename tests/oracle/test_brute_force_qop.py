"""True output densities of QOP in dimensions one and two against every accounting of it.

Conditional on the noisy gradient y at the centre (θ_c = 0), θ solves ∇L̄(θ) + y + σ²Wθ = 0 with losses whose
gradient vanishes at 0. Its density is a closed-form integral over the fibre {W : σ²Wθ = u}, u = −∇L̄(θ) − y:

    d = 1:  p(θ) = q(w) (L̄''(θ) + σ²w)/(σ²|θ|),  w = u/(σ²θ)
    d = 2:  in the basis (θ/‖θ‖, n), W = [[p, q], [q, q²/p + t]], t > 0, and ∫ over t is two gamma integrals.

The adversary chooses losses with abruptly changing φ'' ∈ {0, β}, the common records, y and the angle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammaln
from scipy.stats import chi2

from curvedp.privacy.curvature import Directional, added_law
from curvedp.privacy.profiles import CurvatureProfile
from curvedp_studies.accounting import qop_profile

SIGMA2 = 1.0  # only g = βB²/σ² matters: B = 1, β = g


@dataclass(frozen=True)
class Piecewise:
    """φ with φ'(0) = slope0 and φ'' = β·values[i] on the i-th interval between the cuts of the real line."""

    beta: float
    cuts: tuple[float, ...]
    values: tuple[int, ...]
    slope0: float = 0.0

    def second(self, s: np.ndarray) -> np.ndarray:
        return self.beta * np.array(self.values, dtype=float)[np.searchsorted(self.cuts, s)]

    def first(self, s: np.ndarray) -> np.ndarray:
        """∫_0^s φ'': exact, piece by piece."""
        edges = np.concatenate([[-np.inf], self.cuts, [np.inf]])
        total = np.full_like(s, self.slope0)
        for low, high, value in zip(edges[:-1], edges[1:], self.values, strict=True):
            total = total + self.beta * value * (np.clip(s, low, high) - np.clip(0.0, low, high))
        return total


def squared(beta: float) -> Piecewise:
    return Piecewise(beta, (), (1,))


def random_loss(rng: np.random.Generator, beta: float, scale: float) -> Piecewise:
    count = int(rng.integers(0, 4))
    cuts = np.sort(scale * np.exp(rng.normal(0, 0.7, count)) * rng.choice([-1, 1], count, p=[0.2, 0.8]))
    return Piecewise(beta, tuple(cuts), tuple(int(v) for v in rng.integers(0, 2, count + 1)))


# ---------------------------------------------------------------------------------------------- dimension one


def log_density_1d(
    theta: np.ndarray, records: list[tuple[float, Piecewise]], y: np.ndarray, m: float
) -> np.ndarray:
    """log p(θ | y); `records` are (x, φ), y the released noisy gradient at 0."""
    gradient = sum((x * (phi.first(x * theta) - phi.slope0) for x, phi in records), np.zeros_like(theta))
    hessian = sum((x * x * phi.second(x * theta) for x, phi in records), np.zeros_like(theta))
    with np.errstate(divide="ignore", invalid="ignore"):
        w = -(gradient + y) / (SIGMA2 * theta)
        log_q = (m / 2 - 1) * np.log(w) - w / 2 - m / 2 * math.log(2) - gammaln(m / 2)
        value = log_q + np.log(hessian + SIGMA2 * w) - np.log(SIGMA2 * np.abs(theta))
    return np.where(w > 0, value, -np.inf)


def curvature_1d(theta: np.ndarray, records: list[tuple[float, Piecewise]], y: float) -> np.ndarray:
    """The w at which θ is the minimiser: decreasing in |θ|."""
    gradient = sum((x * (phi.first(x * theta) - phi.slope0) for x, phi in records), np.zeros_like(theta))
    return -(gradient + y) / (SIGMA2 * theta)


def hockey_stick_1d(
    first: list[tuple[float, Piecewise]],
    second: list[tuple[float, Piecewise]],
    m: float,
    epsilon: float,
    cuts: list,
) -> float:
    """E_first[(1 − e^ε p_second/p_first)₊] at y = −1 (θ > 0): exact chi-square masses of cells in θ.

    Cuts of φ'' and the end of the support of p_first are ends of cells.
    """
    edges = np.exp(np.linspace(-12, 20, 8001))
    inside = curvature_1d(edges, first, -1.0) > 0
    if not inside.all():
        last = int(np.argmin(inside))
        end = brentq(
            lambda t: float(curvature_1d(np.array([t]), first, -1.0)[0]),
            edges[last - 1],
            edges[last],
            rtol=1e-14,
        )
        edges = np.append(edges[:last], end)
    edges = np.unique(np.concatenate([edges, [c for c in cuts if 0 < c < edges[-1]]]))
    w = np.maximum(curvature_1d(edges, first, -1.0), 0.0)
    mass = np.maximum(chi2.cdf(w[:-1], m) - chi2.cdf(w[1:], m), 0.0)
    theta = np.sqrt(edges[1:] * edges[:-1])
    y = np.full_like(theta, -1.0)
    with np.errstate(invalid="ignore"):
        log_ratio = log_density_1d(theta, second, y, m) - log_density_1d(theta, first, y, m)
    assert abs(mass.sum() - 1) < 1e-6
    positive = mass > 0
    return float((mass * -np.expm1(np.minimum(epsilon + log_ratio, 0.0)))[positive].sum())


def accounted(d: int, m: float, g: float, epsilon: float, adjacency: str) -> float:
    law = Directional(d, m, adjacency)  # type: ignore[arg-type]
    return CurvatureProfile(law, g, 0.0).delta_at(epsilon)


def all_cuts(*records: tuple[float, Piecewise]) -> list[float]:
    return [c / x for x, phi in records for c in phi.cuts]


@pytest.mark.parametrize(("m", "g"), [(2.0, 0.3), (3.5, 0.5), (6.0, 1.5), (20.0, 2.0), (60.0, 5.0)])
def test_dimension_one_never_exceeds_the_accounting(m: float, g: float) -> None:
    rng = np.random.default_rng(int(10 * m))
    worst = 0.0
    for _ in range(40):
        scale = 1 / (m + g)
        z, z_new = (float(rng.choice([-1, 1])), random_loss(rng, g, scale)), (1.0, random_loss(rng, g, scale))
        common = [(1.0, random_loss(rng, float(rng.choice([0, 1, 20])) * g, scale))]
        epsilon = float(rng.choice([0.0, 0.1, 0.5, 1.0]))
        cuts = all_cuts(z, z_new, *common)
        cases = {
            "replace": [(common + [z_new], common + [z])],
            "add_remove": [(common + [z], common), (common, common + [z])],
        }
        for adjacency, pairs in cases.items():
            bound = accounted(1, m, g, epsilon, adjacency)
            for first, second in pairs:
                true = hockey_stick_1d(first, second, m, epsilon, cuts)
                assert true <= bound * (1 + 1e-3) + 1e-12
                worst = max(worst, true / bound)
    assert worst > 0.3  # the adversary is a serious one


@pytest.mark.parametrize(("m", "g", "epsilon"), [(40.0, 8.0, 1.0), (60.0, 6.0, 0.5), (100.0, 10.0, 1.0)])
def test_adding_a_squared_loss_attains_the_bound_in_dimension_one(m: float, g: float, epsilon: float) -> None:
    true = hockey_stick_1d([(1.0, squared(g))], [], m, epsilon, [])
    bound = accounted(1, m, g, epsilon, "add_remove")
    adding = float(added_law(m, g).divergence(np.array([epsilon]), 0.0)[0])
    assert true <= adding * (1 + 5e-4)  # the brute force is good to 3e-4
    assert true >= 0.99 * adding
    assert adding <= bound


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_linear_term_and_curvature_together_in_dimension_one(adjacency: str) -> None:
    """The pair (Y, θ): Gaussian gradient release and curvature composed by (P-3)."""
    rng = np.random.default_rng(5)
    m, g, sigma0 = 8.0, 0.8, 4.0
    grid = np.exp(np.linspace(-8, 8, 1200))
    theta, log_step = np.concatenate([-grid[::-1], grid])[None, :], 16 / 1199
    for _ in range(6):
        phi, phi_new = (random_loss(rng, g, 0.3) for _ in range(2))
        gamma = 1.0
        phi = Piecewise(phi.beta, phi.cuts, phi.values, gamma * float(rng.choice([-1, 1])))
        phi_new = Piecewise(phi_new.beta, phi_new.cuts, phi_new.values, -phi.slope0)
        if adjacency == "replace":
            pairs, sensitivity = [([(1.0, phi_new)], [(1.0, phi)])], 2 * gamma
        else:
            pairs, sensitivity = [([(1.0, phi)], []), ([], [(1.0, phi)])], gamma
        profile = qop_profile(
            L=g, d=1, m=m, sigma2=SIGMA2, sigma0=sigma0, center_sensitivity=sensitivity, adjacency=adjacency
        )
        y = np.linspace(-24, 24, 400)[:, None]
        for first, second in pairs:
            densities = []
            for records in (first, second):
                mean = sum(x * f.slope0 for x, f in records)
                log_y = -((y - mean) ** 2) / (2 * sigma0**2) - math.log(sigma0 * math.sqrt(2 * math.pi))
                densities.append(np.exp(log_density_1d(theta, records, y, m) + log_y) * np.abs(theta))
            cell = log_step * 48 / 399
            assert abs(densities[0].sum() * cell - 1) < 5e-3
            for epsilon in (0.2, 0.7, 1.2):
                true = float(np.maximum(densities[0] - math.exp(epsilon) * densities[1], 0).sum() * cell)
                assert true <= profile.delta_at(epsilon) * 1.003 + 1e-6


# ---------------------------------------------------------------------------------------------- dimension two


def log_density_2d(
    theta: np.ndarray, records: list[tuple[np.ndarray, Piecewise]], y: np.ndarray, m: float
) -> np.ndarray:
    """log p(θ | y), θ of shape (2, …): p = (‖θ‖² σ⁴)⁻¹ ∫ q(W) det(∇²L̄ + σ²W) dt over the fibre."""
    k = (m - 3) / 2
    norm = np.sqrt((theta**2).sum(axis=0))
    e = theta / norm
    n = np.stack([-e[1], e[0]])
    gradient, H = np.zeros_like(theta), np.zeros((2, 2) + theta.shape[1:])
    for x, phi in records:
        s = x[0] * theta[0] + x[1] * theta[1]
        gradient += x.reshape(2, *[1] * (theta.ndim - 1)) * phi.first(s)
        H += np.multiply.outer(np.outer(x, x), phi.second(s))
    u = -(gradient + y.reshape(2, *[1] * (theta.ndim - 1)))
    p, q = (e * u).sum(axis=0) / (SIGMA2 * norm), (n * u).sum(axis=0) / (SIGMA2 * norm)
    H_ee, H_nn, H_en = (np.einsum("i...,ij...,j...->...", a, H, b) for a, b in ((e, e), (n, n), (e, n)))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slope = SIGMA2 * (H_ee + SIGMA2 * p)
        constant = (H_ee + SIGMA2 * p) * (H_nn + SIGMA2 * q * q / p) - (H_en + SIGMA2 * q) ** 2
        # ∫_0^∞ t^k e^{−t/2} (constant + slope t) dt
        integral = constant + slope * 2 * (k + 1)
        log_gamma = gammaln(k + 1) + (k + 1) * math.log(2)
        log_normaliser = m * math.log(2) + 0.5 * math.log(math.pi) + gammaln(m / 2) + gammaln((m - 1) / 2)
        value = k * np.log(p) - (p + q * q / p) / 2 + log_gamma + np.log(integral) - log_normaliser
        value -= 2 * np.log(norm * SIGMA2)
    return np.where(p > 0, value, -np.inf)


class Polar:
    """Midpoints in (log ‖θ‖, angle from −y) over the half plane that the density lives on."""

    def __init__(self, y: np.ndarray, radial: int = 500, angular: int = 360) -> None:
        r = np.linspace(-9, 11, radial + 1)
        # θ follows −y within an angle that shrinks like 1/√m: sinh spacing puts points in the middle.
        a = np.arcsin(np.tanh(np.linspace(-6, 6, angular + 1)))
        middle_r, middle_a = (r[1:] + r[:-1]) / 2, (a[1:] + a[:-1]) / 2
        direction = math.atan2(-y[1], -y[0])
        rho = np.exp(middle_r)[:, None]
        self.theta = np.stack([rho * np.cos(direction + middle_a), rho * np.sin(direction + middle_a)])
        self.measure = rho**2 * np.diff(r)[:, None] * np.diff(a)
        self.y = y

    def density(self, records: list[tuple[np.ndarray, Piecewise]], m: float) -> np.ndarray:
        return np.exp(log_density_2d(self.theta, records, self.y, m))

    def hockey_stick(self, p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
        return float((np.maximum(p - math.exp(epsilon) * q, 0) * self.measure).sum())


def unit(angle: float) -> np.ndarray:
    return np.array([math.cos(angle), math.sin(angle)])


def test_fibre_integral_is_a_density() -> None:
    grid = Polar(-unit(0.3), 800, 600)
    rng = np.random.default_rng(0)
    for m in (3.0, 4.5, 12.0):
        records = [(unit(float(rng.uniform(0, 6))), squared(0.8)), (unit(1.0), random_loss(rng, 0.8, 0.2))]
        assert abs((grid.density(records, m) * grid.measure).sum() - 1) < 2e-3


@pytest.mark.parametrize(("m", "g"), [(3.0, 0.2), (5.0, 0.6), (12.0, 1.5), (40.0, 4.0)])
def test_dimension_two_never_exceeds_the_accountings(m: float, g: float) -> None:
    rng = np.random.default_rng(int(m))
    grid = Polar(-unit(0.0))
    worst = 0.0
    laws = {
        (name, adjacency): qop_profile(
            L=g, d=2, m=m, sigma2=1.0, sigma0=0, center_sensitivity=0, adjacency=adjacency, accounting=name
        )
        for name in ("directional", "spectral")
        for adjacency in ("replace", "add_remove")
    }
    levels = (0.0, 0.3, 1.0)
    bounds = {key: {e: law.delta_at(e) for e in levels} for key, law in laws.items()}
    for _ in range(8):
        scale = 1 / (m + g)
        angle = float(rng.choice([0.0, rng.normal(0, 0.3), rng.uniform(0, math.pi)]))
        turn = float(rng.choice([0.0, math.pi / 2, math.pi, rng.uniform(0, math.pi)]))
        z, z_new = (unit(angle), random_loss(rng, g, scale)), (unit(angle + turn), random_loss(rng, g, scale))
        common = [
            (unit(float(rng.uniform(0, math.pi))), random_loss(rng, float(rng.choice([0, 1, 10])) * g, scale))
        ]
        base, with_old, with_new = (
            grid.density(records, m) for records in (common, common + [z], common + [z_new])
        )
        pairs = [
            ("replace", with_new, with_old),
            ("add_remove", with_old, base),
            ("add_remove", base, with_old),
        ]
        for adjacency, p, q in pairs:
            for epsilon in levels:
                true = grid.hockey_stick(p, q, epsilon)
                for name in ("directional", "spectral"):
                    bound = bounds[name, adjacency][epsilon]
                    assert true <= bound * 1.01 + 1e-5
                worst = max(worst, true / bounds["directional", adjacency][epsilon])
    assert worst > 0.3


@pytest.mark.parametrize(("m", "g", "epsilon"), [(41.0, 8.0, 1.0), (61.0, 6.0, 0.5)])
def test_adding_a_squared_loss_attains_the_bound_in_dimension_two(m: float, g: float, epsilon: float) -> None:
    """y ∥ x: then χ is a function of θ, and nothing is lost on the fibre."""
    grid = Polar(-unit(0.0), 1600, 900)
    p, q = grid.density([(unit(0.0), squared(g))], m), grid.density([], m)
    true = grid.hockey_stick(p, q, epsilon)
    bound = float(added_law(m - 1, g).divergence(np.array([epsilon]), 0.0)[0])
    assert 0.99 * bound <= true <= 1.003 * bound


def test_the_linear_direction_matters_a_misaligned_gradient_hides_more() -> None:
    """y ⊥ x: the output says little about x, far less than the bound allows."""
    m, g, epsilon = 10.0, 1.5, 0.2
    aligned, crossed = Polar(-unit(0.0)), Polar(-unit(math.pi / 2))
    values = [
        grid.hockey_stick(grid.density([(unit(0.0), squared(g))], m), grid.density([], m), epsilon)
        for grid in (aligned, crossed)
    ]
    assert values[1] < 0.5 * values[0]
