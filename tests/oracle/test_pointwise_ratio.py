"""The log-ratio (P-4), formed from matrices and determinants, never exceeds ℓ* of any accounting.

An independent derivation of (P-5), (P-6) and (S-1): nothing here uses their formulas except to compare.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from curvedp.privacy.curvature import Wishart, added, falling, removed, rising, spectral


def log_det(matrix: np.ndarray) -> float:
    sign, value = np.linalg.slogdet(matrix)
    return float(value) if sign > 0 else -math.inf


def log_ratio(
    W: np.ndarray, U: np.ndarray, K: np.ndarray, H_new: np.ndarray, H_old: np.ndarray, sigma2: float, m: float
) -> float:
    """log[q(W') det Ā_{D'}(W')] − log[q(W) det Ā_D(W)], W = W' + U/σ²  (P-4); ∞ where W is not positive."""
    d = W.shape[0]
    k = (m - d - 1) / 2
    moved = W + U / sigma2
    if np.linalg.eigvalsh(moved)[0] <= 0:
        return math.inf
    log_q = k * (log_det(W) - log_det(moved)) + np.trace(U) / (2 * sigma2)
    return log_q + log_det(K + H_new + sigma2 * W) - log_det(K + H_old + sigma2 * moved)


def random_psd(rng: np.random.Generator, d: int, rank: int, scale: float) -> np.ndarray:
    G = rng.normal(size=(d, rank))
    return scale * G @ G.T


def chi(W: np.ndarray, x: np.ndarray) -> float:
    return float(x @ x / (x @ np.linalg.solve(W, x)))


def unit(rng: np.random.Generator, d: int) -> np.ndarray:
    x = rng.normal(size=d)
    return x / np.linalg.norm(x)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_directional_bound_on_random_matrices(d: int) -> None:
    rng = np.random.default_rng(d)
    finite = 0
    for _ in range(1500):
        m = d + 1 + float(rng.choice([0.0, 1.0, 4.5, 20.0]))
        k = (m - d - 1) / 2
        sigma2, beta = float(np.exp(rng.normal())), float(np.exp(rng.normal(0, 1)))
        W = Wishart(d, m).sample(rng)
        x, x_new = unit(rng, d) * rng.uniform(0.2, 1), unit(rng, d) * rng.uniform(0.2, 1)
        c, c_new, h, h_new = beta * rng.choice([0, 1, rng.uniform()], 4)
        K = random_psd(rng, d, d, float(rng.choice([0, 1, 10])))
        U = c_new * np.outer(x_new, x_new) - c * np.outer(x, x)
        value = log_ratio(W, U, K, h_new * np.outer(x_new, x_new), h * np.outer(x, x), sigma2, m)
        g = beta / sigma2  # the bound is for ‖x‖ ≤ 1
        if g >= chi(W, x):
            continue
        bound = added(g, k, np.array(1 / chi(W, x_new))) + removed(g, k, np.array(1 / chi(W, x)))
        assert value <= float(bound) + 1e-9
        finite += 1
        # one record only
        empty = np.zeros((d, d))
        only_new = log_ratio(
            W, c_new * np.outer(x_new, x_new), K, h_new * np.outer(x_new, x_new), empty, sigma2, m
        )
        assert only_new <= float(added(g, k, np.array(1 / chi(W, x_new)))) + 1e-9
        only_old = log_ratio(W, -c * np.outer(x, x), K, empty, h * np.outer(x, x), sigma2, m)
        assert only_old <= float(removed(g, k, np.array(1 / chi(W, x)))) + 1e-9
    assert finite > 500


@pytest.mark.parametrize("seed", range(6))
def test_directional_bound_is_reached_by_an_optimiser(seed: int) -> None:
    """Maximise (P-4) over c, c', h, h', ‖x‖, ‖x'‖ and K = κI along two fixed directions: it meets A + R."""
    rng = np.random.default_rng(seed)
    d, m, g = 2, 9.0, 1.2
    k = (m - d - 1) / 2
    W = np.diag(rng.chisquare(m - d + 1, 2) + 2 * g)  # orthogonal for W⁻¹ too: no cross term is lost
    x, x_new = np.array([1.0, 0.0]), np.array([0.0, 1.0])

    def negative(v: np.ndarray) -> float:
        c, c_new, h, h_new, r, r_new, kappa = v
        U = g * (c_new * r_new * np.outer(x_new, x_new) - c * r * np.outer(x, x))
        H_new, H_old = g * h_new * r_new * np.outer(x_new, x_new), g * h * r * np.outer(x, x)
        return -log_ratio(W, U, kappa * np.eye(2), H_new, H_old, 1.0, m)

    best = max(
        -minimize(negative, rng.uniform(0.05, 0.95, 7), bounds=[(0, 1)] * 7, method="L-BFGS-B").fun
        for _ in range(12)
    )
    bound = float(added(g, k, np.array(1 / chi(W, x_new))) + removed(g, k, np.array(1 / chi(W, x))))
    assert best <= bound + 1e-9
    assert best >= bound - 1e-4


def traceless(u: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A symmetric U with Ub = u, trace 0 and eigenvalues ±‖u‖/‖b‖ (the construction of (P-5))."""
    size = np.linalg.norm(b)
    e = b / size
    along = float(e @ u)
    w = u - along * e
    if np.linalg.norm(w) > 1e-12 * np.linalg.norm(u):
        f = w / np.linalg.norm(w)
    else:
        w = np.zeros_like(u)
        f = np.linalg.svd(np.stack([e]))[2][-1]
    return (along * (np.outer(e, e) - np.outer(f, f)) + np.outer(e, w) + np.outer(w, e)) / size


@pytest.mark.parametrize(("d", "rank"), [(2, 1), (3, 2), (4, 4)])
def test_spectral_bound_on_random_matrices(d: int, rank: int) -> None:
    rng = np.random.default_rng(10 * d + rank)
    finite = 0
    for _ in range(800):
        m = d + 1 + float(rng.choice([0.5, 3.0, 15.0]))
        sigma2 = float(np.exp(rng.normal(0, 1)))

        def hessian() -> np.ndarray:
            Q = np.linalg.qr(rng.normal(size=(d, rank)))[0]
            return Q @ np.diag(rng.choice([0, 1, rng.uniform()], rank)) @ Q.T

        W, b = Wishart(d, m).sample(rng), rng.normal(size=d)
        mean_new, mean_old, H_new, H_old = (hessian() for _ in range(4))
        u = (mean_new - mean_old) @ b
        if np.linalg.norm(u) == 0:
            continue
        U = traceless(u, b)
        assert np.allclose(U @ b, u) and abs(np.trace(U)) < 1e-9
        eigenvalue, g = float(np.linalg.eigvalsh(W)[0]), 1 / sigma2
        if g >= eigenvalue:
            continue
        value = log_ratio(W, U, random_psd(rng, d, d, 1.0), H_new, H_old, sigma2, m)
        assert value <= float(spectral(g, (m - d - 1) / 2, rank, np.array(eigenvalue))) + 1e-9
        finite += 1
    assert finite > 150


@pytest.mark.parametrize(("d", "K"), [(2, 2), (3, 2), (2, 3)])
def test_spectral_bound_of_several_outputs_uses_the_reduced_eigenvalue(d: int, K: int) -> None:
    """Hessians P ⊗ xxᵀ: λ_min of (VᵀW⁻¹V)⁻¹, V an orthonormal basis of R^K ⊗ {x, x'} (or R^K ⊗ x)."""
    rng = np.random.default_rng(7 * d + K)
    size, finite = d * K, 0
    for _ in range(500):
        m = size + 1 + float(rng.choice([0.5, 4.0, 20.0]))
        k, sigma2 = (m - size - 1) / 2, float(np.exp(rng.normal(0, 1)))

        def multinomial() -> np.ndarray:
            p = rng.dirichlet(np.full(K, 0.4))
            return np.diag(p) - np.outer(p, p)

        x, x_new, b = unit(rng, d), unit(rng, d), rng.normal(size=size)
        W = Wishart(size, m).sample(rng)
        inverse = np.linalg.inv(W)
        for both in (True, False):
            old, new = np.kron(multinomial(), np.outer(x, x)), np.kron(multinomial(), np.outer(x_new, x_new))
            H_old, H_new = (
                np.kron(multinomial(), np.outer(x, x)),
                np.kron(multinomial(), np.outer(x_new, x_new)),
            )
            directions = [x, x_new] if both else [x_new]
            if not both:
                old = H_old = np.zeros_like(old)
            V = np.linalg.qr(np.kron(np.eye(K), np.stack(directions).T))[0]
            inner = traceless(V.T @ (new - old) @ b, V.T @ b)
            U = V @ inner @ V.T
            assert np.allclose(U @ b, (new - old) @ b)
            eigenvalue, g = 1 / float(np.linalg.eigvalsh(V.T @ inverse @ V)[-1]), 0.5 / sigma2
            if g >= eigenvalue:
                continue
            value = log_ratio(W, U, random_psd(rng, size, size, 1.0), H_new, H_old, sigma2, m)
            assert value <= float(spectral(g, k, K - 1, np.array(eigenvalue))) + 1e-9
            finite += 1
    assert finite > 150


def test_moments_ratio_on_random_matrices() -> None:
    """Statistics: only the density of W counts, U = r'x'x'ᵀ − r xxᵀ with squared norms r, r' ≤ 1."""
    rng = np.random.default_rng(2)
    finite = 0
    for _ in range(1500):
        d = int(rng.integers(2, 5))
        m = d + 1 + float(rng.choice([0.0, 2.0, 12.0]))
        k, g = (m - d - 1) / 2, float(np.exp(rng.normal(0, 1)))
        W, x, x_new = Wishart(d, m).sample(rng), unit(rng, d), unit(rng, d)
        tau, tau_new = g / chi(W, x), g / chi(W, x_new)
        S = g * float(x @ np.linalg.solve(W, x_new))
        if tau >= 1:
            continue
        r, r_new = rng.choice([0, 1, rng.uniform()], 2)
        U = g * (r_new * np.outer(x_new, x_new) - r * np.outer(x, x))
        value = k * (log_det(W) - log_det(W + U)) + np.trace(U) / 2
        corners = [
            0.0,
            float(falling(g, k, np.array(tau_new / g))),
            float(rising(g, k, np.array(tau / g))),
            -k * math.log((1 + tau_new) * (1 - tau) + S * S),
        ]
        assert value <= max(corners) + 1e-9
        finite += 1
    assert finite > 500
