"""The accounting of the paper: "Theorem main" (privacy), "Theorem utility" (risk), and the best use of both.

The budget is split, ε = ε0+ε1+ε2 and δ = δ0+δ1+δ2+δ3, between the linear term a (0), the curvature W (1),
the output noise b (2) and the event λ_min(W) ≥ α (3). Under `add_remove` every formula holds with γ_c in the
place of Δ_c: that is what `center_sensitivity` is then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput, NotCovered
from curvedp.privacy import curvature as ensembles
from curvedp.privacy.calibrate import AnswerNoise, QOPParameters, require_room
from curvedp.privacy.curvature import log_gammainc_inverse
from curvedp.privacy.gaussian import check_budget, require_number
from curvedp.privacy.profiles import PointProfile


@dataclass(frozen=True)
class WishartConstants:
    """The constants of "Lemma W" for given (δ1, δ3); `alpha`, `alpha1` are rounded down.

    P(λ_min ≥ α) ≥ 1−δ3,  P(α ≤ λ_min ≤ α+α1)/P(λ_min ≥ α) ≤ δ1,  E[W] = μI,  E[W⁻¹] = νI,
    q(W+U)/q(W) ≤ exp(‖U‖ f(rank U)) where λ_min(W) ≥ α; f2 = f(2).
    """

    alpha: float
    alpha1: float
    f2: float
    mu: float
    nu: float
    log_D: float


class Wishart(ensembles.Wishart):
    """With the constants of "Lemma W"."""

    @property
    def inverse_mean(self) -> float:
        """E[W⁻¹] = I/(m−d−1) for m > d+1; infinite otherwise."""
        excess = self.m - self.d - 1
        return 1.0 / excess if excess > 0 else math.inf

    def log_tail_and_slope(self, s: float) -> tuple[float, float]:
        """ln T and d ln T/d ln s at s > 0, T(s) = D γ(s/2, p) ≥ P(λ_min ≤ s)  (Lemma W)."""
        half = s / 2
        log_tail = self._log_total + ensembles._log_gammainc(self.p, half)
        return log_tail, math.exp(self.log_D + self.p * math.log(half) - half - log_tail)

    def constants(self, delta1: float, delta3: float) -> WishartConstants:
        """The constants of "Lemma W" (γ unregularised, p = (m−d+1)/2):

        α = 2 γ⁻¹(δ3/D, p),  α1 = 2 γ⁻¹(δ1(1−δ3)/D + γ(α/2, p), p) − α,  f(j) = ((p−1)/α + 1/2) j.
        """
        self.require_power()
        for name, value in (("delta1", delta1), ("delta3", delta3)):
            if not isinstance(value, (int, float, np.floating)) or not 0 < value < 1:
                raise InvalidInput(f"{name} must be a number strictly between 0 and 1, got {value!r}")
        slack = self._rounding()
        alpha = 2 * log_gammainc_inverse(self.p, math.log(delta3) - self._log_total - slack)
        below = delta3 * math.exp(-3 * slack)  # D γ(α/2, p), rounded down
        log_total = math.log(delta1 * (1 - delta3) + below) - self._log_total - slack
        alpha1 = 2 * log_gammainc_inverse(self.p, log_total) - alpha
        if not (alpha > 0 and alpha1 > 0):
            raise InvalidInput(
                f"no α, α1 > 0 for delta1={delta1!r}, delta3={delta3!r} at d={self.d}, m={self.m}: "
                "pass larger ones"
            )
        return WishartConstants(
            alpha=alpha,
            alpha1=alpha1,
            f2=self.log_density_ratio_bound(1.0, 2, alpha),
            mu=self.m,
            nu=self.inverse_mean,
            log_D=self.log_D,
        )

    def log_density_ratio(self, W: FloatArray, U: FloatArray) -> float:
        """log q(W+U)/q(W) = k log det(I + W⁻¹U) − tr(U)/2; −∞ where W+U is not positive definite."""
        eigenvalues = eigh(U, W, eigvals_only=True)
        if eigenvalues[0] <= -1:
            return -math.inf
        return float(self.k * np.log1p(eigenvalues).sum() - np.trace(U) / 2)

    def log_density_ratio_bound(self, norm: float, rank: int, alpha: float) -> float:
        """‖U‖ f(rank U), f(j) = ((p−1)/α + 1/2) j  (Lemma W)."""
        return norm * (self.k / alpha + 0.5) * rank


@dataclass(frozen=True)
class Split:
    """How (ε, δ) is spent: ε = eps0+eps1+eps2, δ = delta0+delta1+delta2+delta3."""

    eps0: float
    eps1: float
    eps2: float
    delta0: float
    delta1: float
    delta2: float
    delta3: float

    @property
    def epsilon(self) -> float:
        return self.eps0 + self.eps1 + self.eps2

    @property
    def delta(self) -> float:
        return self.delta0 + self.delta1 + self.delta2 + self.delta3


@dataclass(frozen=True)
class PaperParameters:
    """Noise levels that "Theorem main" proves (split.epsilon, split.delta)-private."""

    d: int
    m: float
    split: Split
    constants: WishartConstants
    sigma0: float
    sigma2: float
    sigma_tilde: float
    tau: float


def wishart_constants(d: int, m: float, delta1: float, delta3: float) -> WishartConstants:
    """α, α1, f(2), μ, ν, log D of the Wishart ensemble ("Lemma W")."""
    return Wishart(d, m).constants(delta1, delta3)


def gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """The classical Gaussian mechanism, σ = (sensitivity/ε) √(2 ln(1.25/δ)), proved for ε < 1 only."""
    require_number("sensitivity", sensitivity)
    if sensitivity == 0:
        return 0.0
    _require_theorem(epsilon, delta)
    return sensitivity / epsilon * math.sqrt(2 * math.log(1.25 / delta))


def sigma0(center_sensitivity: float, eps0: float, delta0: float) -> float:
    """σ0 = (Δ_c/ε0) √(2 ln(1.25/δ0))  (Theorem main)."""
    return gaussian_sigma(center_sensitivity, eps0, delta0)


def sigma2(L: float, eps1: float, delta1: float, delta3: float, d: int, m: float, rho: int) -> float:
    """σ² = max((2L/ε1)(f(2) + 2(2ρ+2)/α), 2L/α1)  (Theorem main)."""
    return _sigma2(L, eps1, wishart_constants(d, m, delta1, delta3), rho)


def _sigma2(L: float, eps1: float, constants: WishartConstants, rho: int) -> float:
    require_number("L", L, positive=True)
    require_number("eps1", eps1, positive=True)
    _rank(rho)
    by_ratio = 2 * L / eps1 * (constants.f2 + 2 * (2 * rho + 2) / constants.alpha)
    return max(by_ratio, 2 * L / constants.alpha1)


def solver_radius(tau: float, *, alpha: float, sigma2: float) -> float:
    """√(2τ/(ασ²)) ≥ ‖θ_approx − θ_priv‖ for a τ-accurate solve where λ_min(W) ≥ α."""
    require_number("tau", tau)
    return math.sqrt(2 * tau / (alpha * sigma2))


def sigma_tilde(tau: float, eps2: float, delta2: float, *, alpha: float, sigma2: float) -> float:
    """σ̃ = (2/ε2) √(2τ/(ασ²)) √(2 ln(1.25/δ2)); 0 when τ = 0  (Theorem main)."""
    return gaussian_sigma(2 * solver_radius(tau, alpha=alpha, sigma2=sigma2), eps2, delta2)


def parameters(
    split: Split, *, L: float, d: int, m: float, rho: int, center_sensitivity: float, tau: float = 0.0
) -> PaperParameters:
    """The smallest noise levels of "Theorem main" for one split of the budget."""
    _require_theorem(split.epsilon, split.delta)
    return _parameters(split, L=L, d=d, m=m, rho=rho, center_sensitivity=center_sensitivity, tau=tau)


def _parameters(
    split: Split, *, L: float, d: int, m: float, rho: int, center_sensitivity: float, tau: float
) -> PaperParameters:
    constants = wishart_constants(d, m, split.delta1, split.delta3)
    variance = _sigma2(L, split.eps1, constants, rho)
    return PaperParameters(
        d=d,
        m=m,
        split=split,
        constants=constants,
        sigma0=sigma0(center_sensitivity, split.eps0, split.delta0),
        sigma2=variance,
        sigma_tilde=sigma_tilde(tau, split.eps2, split.delta2, alpha=constants.alpha, sigma2=variance),
        tau=tau,
    )


def experiment_parameters(
    epsilon: float, delta: float, *, L: float, d: int, rho: int, center_sensitivity: float
) -> PaperParameters:
    """The paper's experiment: exact solve, (ε/2, ε/2, 0), (δ/3, δ/3, 0, δ/3), m = 2d."""
    split = Split(epsilon / 2, epsilon / 2, 0.0, delta / 3, delta / 3, 0.0, delta / 3)
    return parameters(split, L=L, d=d, m=2 * d, rho=rho, center_sensitivity=center_sensitivity)


def utility_bound_exact(*, sigma0: float, sigma2: float, d: int, m: float, distance2: float) -> float:
    """E[J(θ_final) − J(θ_exact)] ≤ (μσ²/2)‖θ_exact−θ_c‖² + σ0² d ν/(2σ²)  (Theorem utility, exact solve).

    μ = m and ν = 1/(m−d−1); `distance2` bounds ‖θ_exact−θ_c‖².
    """
    ensemble = Wishart(d, m)
    linear = 0.0 if sigma0 == 0 else sigma0**2 * d * ensemble.inverse_mean / (2 * sigma2)
    return ensemble.m * sigma2 / 2 * distance2 + linear


def utility_bound(
    *,
    sigma0: float,
    sigma2: float,
    sigma_tilde: float,
    L: float,
    d: int,
    m: float,
    n: float,
    tau: float,
    distance2: float,
    G: float,
) -> float:
    """E[J(θ_final) − J(θ_exact)] ≤ ndLσ̃²/2 + G√d σ̃ + τ + (the exact-solve bound)  (Theorem utility).

    G bounds the subgradients of the regularizer.
    """
    output = n * d * L * sigma_tilde**2 / 2 + G * math.sqrt(d) * sigma_tilde + tau
    return output + utility_bound_exact(sigma0=sigma0, sigma2=sigma2, d=d, m=m, distance2=distance2)


def optimal_parameters(
    epsilon: float,
    delta: float,
    *,
    L: float,
    d: int,
    center_sensitivity: float,
    distance2: float,
    rho: int = 1,
    n: float = 0.0,
    tau: float = 0.0,
    G: float = 0.0,
) -> PaperParameters:
    """The split of (ε, δ) and the real m > d+1 that minimise the bound of "Theorem utility".

    τ = 0: the exact-solve bound, in which n and G do not occur.
    """
    _require_theorem(epsilon, delta)
    problem = _Bound(epsilon, delta, L, d, rho, center_sensitivity, distance2, n, tau, G)
    return problem.minimise()


def optimal_utility_bound(
    epsilon: float,
    delta: float,
    *,
    L: float,
    d: int,
    n: float,
    center_sensitivity: float,
    distance2: float,
    tau: float,
    rho: int,
    G: float,
) -> float:
    """min over ε0, ε1, ε2, δ0, …, δ3 and m of the bound of "Theorem utility" under "Theorem main"."""
    best = optimal_parameters(
        epsilon,
        delta,
        L=L,
        d=d,
        center_sensitivity=center_sensitivity,
        distance2=distance2,
        rho=rho,
        n=n,
        tau=tau,
        G=G,
    )
    return utility_bound(
        sigma0=best.sigma0,
        sigma2=best.sigma2,
        sigma_tilde=best.sigma_tilde,
        L=L,
        d=d,
        m=best.m,
        n=n,
        tau=tau,
        distance2=distance2,
        G=G,
    )


def minimal_curvature(epsilon: float, delta: float, *, L: float, d: int, rho: int = 1) -> PaperParameters:
    """The least σ²m that hides one record's curvature: W alone, no linear term, exact solve.

    No Gaussian mechanism takes part, so the restriction ε < 1 of "Theorem main" is not needed here.
    """
    check_budget(epsilon, delta)
    require_number("epsilon", epsilon, positive=True)
    return _Bound(epsilon, delta, L, d, rho, 0.0, 1.0, 0.0, 0.0, 0.0).minimise()


@dataclass(frozen=True)
class LOPNoise:
    """Linear objective perturbation: noise variance `sigma2` of a, weight `Delta` of ½‖θ‖²."""

    sigma2: float
    Delta: float


def lop_parameters(epsilon: float, delta: float, *, L: float, zeta: float) -> LOPNoise:
    """σ² = ζ²(8 ln(2/δ) + 4ε)/ε², Δ = 2L/ε, for rank-one Hessians and ‖∇ℓ‖ ≤ ζ (Kifer et al. 2012).

    An `add_remove` statement. Under `replace`, as the paper uses it, it is false: calibrate with (P-8).
    """
    check_budget(epsilon, delta)
    for name, value in (("epsilon", epsilon), ("L", L), ("zeta", zeta)):
        require_number(name, value, positive=True)
    return LOPNoise(
        sigma2=zeta**2 * (8 * math.log(2 / delta) + 4 * epsilon) / epsilon**2, Delta=2 * L / epsilon
    )


def lop_utility_bound(lop: LOPNoise, *, d: int, norm2: float) -> float:
    """E[J(θ_priv) − J(θ_exact)] ≤ 2σ²d/Δ + (Δ/2)‖θ_exact‖²; `norm2` bounds ‖θ_exact‖²."""
    return 2 * lop.sigma2 * d / lop.Delta + lop.Delta / 2 * norm2


_SHARE_RANGE = 25.0  # of the logarithms of shares: e^−25 of a budget is as good as none
_HIDDEN_RANGE = (-12.0, 9.0)  # of ln((m−d−1)/d)
_STARTS = ((-0.5, 0.0), (1.0, -1.5))  # ln((m−d−1)/d), and ln(share of a Gaussian/share of W)
_SAFE = 1.0 - 1e-13  # the shares add up to a hair less than the budget


@dataclass(frozen=True)
class _Bound:
    """The bound of "Theorem utility" as a smooth function of unconstrained coordinates.

    At an optimum both terms of the maximum in σ² are equal: an ε1 or δ1 that could shrink would pay for the
    other noises. So (m, ε1, δ1+δ3) determine α, by α1 = ε1 α/(2k+4ρ+4+α), and with it σ² = 2L/α1, δ1 and δ3.
    What is left to choose: ln((m−d−1)/d) and the logarithms of the shares of ε0, ε2 relative to ε1, and of
    δ0, δ2 relative to δ1+δ3 (those of the noises that are present).
    """

    epsilon: float
    delta: float
    L: float
    d: int
    rho: int
    center_sensitivity: float
    distance2: float
    n: float
    tau: float
    G: float

    def __post_init__(self) -> None:
        _rank(self.rho)
        for name, zero in (("L", False), ("distance2", False), ("center_sensitivity", True)):
            require_number(name, getattr(self, name), positive=not zero)
        for name in ("n", "tau", "G"):
            require_number(name, getattr(self, name))

    @property
    def _present(self) -> tuple[bool, bool]:
        """Whether the Gaussian noises a and b take part."""
        return bool(self.center_sensitivity > 0), bool(self.tau > 0)

    def minimise(self) -> PaperParameters:
        noises = sum(self._present)
        limits = [_HIDDEN_RANGE] + [(-_SHARE_RANGE, _SHARE_RANGE)] * (2 * noises)
        best_value, best_point = math.inf, np.zeros(1 + 2 * noises)
        for hidden, share in _STARTS:
            start = np.array([hidden] + [share] * (2 * noises))
            found = minimize(
                self._log_value_and_gradient,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=limits,
                options={"maxiter": 500, "ftol": 1e-15, "gtol": 1e-9},
            )
            if found.fun < best_value:
                best_value, best_point = float(found.fun), found.x
        m, split = self._decode(best_point)[:2]
        return _parameters(
            split,
            L=self.L,
            d=self.d,
            m=m,
            rho=self.rho,
            center_sensitivity=self.center_sensitivity,
            tau=self.tau,
        )

    def _log_value_and_gradient(self, point: FloatArray) -> tuple[float, FloatArray]:
        """Central differences: the error of the minimum is of the order of the squared gradient error."""
        step = 1e-5
        gradient = np.empty(point.size)
        for i in range(point.size):
            shifted = point.copy()
            shifted[i] = point[i] + step
            above = self._log_value(shifted)
            shifted[i] = point[i] - step
            gradient[i] = (above - self._log_value(shifted)) / (2 * step)
        return self._log_value(point), gradient

    def _log_value(self, point: FloatArray) -> float:
        m, split, alpha, alpha1 = self._decode(point)
        variance = 2 * self.L / alpha1
        return math.log(
            utility_bound(
                sigma0=sigma0(self.center_sensitivity, split.eps0, split.delta0),
                sigma2=variance,
                sigma_tilde=sigma_tilde(self.tau, split.eps2, split.delta2, alpha=alpha, sigma2=variance),
                L=self.L,
                d=self.d,
                m=m,
                n=self.n,
                tau=self.tau,
                distance2=self.distance2,
                G=self.G,
            )
        )

    def _decode(self, point: FloatArray) -> tuple[float, Split, float, float]:
        """(m, split, α, α1) of the coordinates."""
        m = self.d + 1 + self.d * math.exp(point[0])
        shares = iter(np.exp(point[1:]))
        eps0, eps2, delta0, delta2 = (float(next(shares)) if p else 0.0 for p in self._present * 2)
        eps_unit = self.epsilon * _SAFE / (1 + eps0 + eps2)
        delta_unit = self.delta * _SAFE / (1 + delta0 + delta2)
        alpha, alpha1, delta1, delta3 = self._curvature_event(m, eps_unit, delta_unit)
        split = Split(
            eps0=eps0 * eps_unit,
            eps1=eps_unit,
            eps2=eps2 * eps_unit,
            delta0=delta0 * delta_unit,
            delta1=delta1,
            delta2=delta2 * delta_unit,
            delta3=delta3,
        )
        return m, split, alpha, alpha1

    def _curvature_event(self, m: float, eps1: float, delta13: float) -> tuple[float, float, float, float]:
        """(α, α1, δ1, δ3) with δ1+δ3 = delta13 and both terms of σ² equal: Newton on ln(δ1+δ3) in ln α."""
        ensemble = Wishart(self.d, m)
        p, c = ensemble.p, 2 * ensemble.k + 4 * self.rho + 4
        u = math.log(2.0) + (math.log(delta13 * p) - ensemble.log_D) / p  # from γ(x, p) ≤ x^p/p
        for _ in range(100):
            alpha = math.exp(u)
            alpha1 = eps1 * alpha / (c + alpha)
            log_delta3, slope3 = ensemble.log_tail_and_slope(alpha)
            log_both, slope_both = ensemble.log_tail_and_slope(alpha + alpha1)
            delta3, both = math.exp(log_delta3), math.exp(log_both - log_delta3)
            ratio = math.expm1(log_both - log_delta3) / (1 - delta3)  # δ1/δ3
            slope_both *= both * (1 - alpha1**2 / (eps1 * (alpha + alpha1)))  # d ln(α+α1)/d ln α
            slope = (slope3 + (slope_both - slope3 * (1 - ratio * delta3)) / (1 - delta3)) / (1 + ratio)
            step = (math.log(delta13) - log_delta3 - math.log1p(ratio)) / slope
            u += step
            if abs(step) <= 1e-14 * (1 + abs(u)):
                break
        return alpha, alpha1, min(ratio * delta3, delta13 - delta3), delta3


def _rank(rho: int) -> None:
    if isinstance(rho, bool) or not isinstance(rho, (int, np.integer)) or rho < 1:
        raise InvalidInput(f"the Hessian rank rho must be an integer ≥ 1, got {rho!r}")


def _require_theorem(epsilon: float, delta: float) -> None:
    """ε ∈ (0, 1), δ ∈ (0, 1): where "Theorem main" holds."""
    check_budget(epsilon, delta)
    require_number("epsilon", epsilon, positive=True)
    if epsilon >= 1:
        raise NotCovered(
            f"the paper's theorem is proved for epsilon < 1 only (it composes classical Gaussian mechanisms, "
            f"which fail beyond), got {epsilon!r}; pass `accounting=directional` or `accounting=spectral`, "
            "which allow every epsilon > 0"
        )


# Calibrations of the mechanisms: `accounting=paper`.


_PART = 0.01  # of ε and δ: for output noise and for a count, beside a published calibration


def paper_answer(
    epsilon: float, delta: float, *, d: int, eta: float, count: bool, rare: float
) -> tuple[float, float, float]:
    """(share of ε and δ that is left, σ̃, μₙ) beside a published calibration.

    1 % of ε and δ each go to output noise of sensitivity 2η and to a count, by the classical Gaussian
    mechanism; the discreteness of the noise and rare draws come out of the δ of the former.
    """
    if eta == 0:
        return 1.0, 0.0, 0.0
    excess = AnswerNoise.of(epsilon, delta, d=d, eta=eta, count=False, rare=rare).excess
    require_room(_PART * delta, excess)
    epsilon, delta = _PART * epsilon, _PART * delta
    mu_count = 1 / gaussian_sigma(1.0, epsilon, delta) if count else 0.0
    return 1 - _PART * (1 + count), gaussian_sigma(2 * eta, epsilon, delta - excess), mu_count


def calibrated_qop(
    epsilon: float,
    delta: float,
    *,
    L: float,
    d: int,
    center_sensitivity: float,
    radius: float,
    rank: int,
    eta: float,
    count: bool,
    rare: float,
) -> QOPParameters:
    """`calibrate_qop` by "Theorem main" and not (P-3), for ε < 1."""
    left, sigma_tilde, mu_count = paper_answer(epsilon, delta, d=d, eta=eta, count=count, rare=rare)
    best = (
        optimal_parameters(
            left * epsilon,
            left * delta,
            L=L,
            d=d,
            center_sensitivity=center_sensitivity,
            distance2=radius**2,
            rho=rank,
        )
        if center_sensitivity > 0
        else minimal_curvature(left * epsilon, left * delta, L=L, d=d, rho=rank)
    )
    return QOPParameters(
        accounting="paper",
        theorem="Theorem main",
        L=L,
        center_sensitivity=center_sensitivity,
        m=best.m,
        sigma2=best.sigma2,
        sigma0=best.sigma0,
        eta=eta,
        sigma_tilde=sigma_tilde,
        mu_count=mu_count,
        utility_bound=utility_bound_exact(
            sigma0=best.sigma0, sigma2=best.sigma2, d=d, m=best.m, distance2=radius**2
        ),
        profile=PointProfile(epsilon, delta),
    )
