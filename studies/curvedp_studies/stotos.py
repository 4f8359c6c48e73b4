"""Algorithm StoTOS of the paper, for the lasso in a box.

    min over ‖θ‖_∞ ≤ κ of Σ_i ½(x_iᵀθ − y_i)² + ω‖θ‖₁ + ⟨a, θ−θ_c⟩ + ½(θ−θ_c)ᵀQ(θ−θ_c).

It reproduces the paper's experiments, certifies nothing and reads the records directly: no mechanism releases
what it returns, `curvedp.solvers.solve` does that work.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from curvedp.arrays import FloatArray
from curvedp.solvers.glm import Perturbation

_compiled = njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def _prox_step(x, theta, gradient, gamma, omega, relaxation):  # type: ignore[no-untyped-def]
    """x ← x + λ(z − θ), z = prox_{γω‖·‖₁}(2θ − x − γ·gradient)."""
    threshold = gamma * omega
    for j in range(x.size):
        v = 2.0 * theta[j] - x[j] - gamma * gradient[j]
        z = max(v - threshold, 0.0) + min(v + threshold, 0.0)
        x[j] += relaxation * (z - theta[j])


@_compiled
def _add_perturbation(gradient, theta, center, linear, Q):  # type: ignore[no-untyped-def]
    """gradient += a + Q(θ − θ_c), Q symmetric."""
    d = theta.size
    for i in range(d):
        gradient[i] += linear[i]
    for j in range(d):
        u = theta[j] - center[j]
        if u != 0.0:
            for i in range(d):
                gradient[i] += u * Q[j, i]


@_compiled
def _slope(row, theta, y, norm, clip):  # type: ignore[no-untyped-def]
    """φ' = xᵀθ − y, shortened so that ‖φ'x‖ ≤ clip."""
    s = -y
    for j in range(theta.size):
        s += row[j] * theta[j]
    if abs(s) * norm > clip:
        s = np.copysign(clip / norm, s)
    return s


@_compiled
def _stochastic(X, y, norms, center, linear, Q, omega, kappa, clip, gamma, draws, x):  # type: ignore[no-untyped-def]
    n, d = X.shape
    gradient = np.empty(d)
    for k in range(draws.size):
        theta = np.minimum(np.maximum(x, -kappa), kappa)
        i = draws[k]
        weight = n * _slope(X[i], theta, y[i], norms[i], clip)
        for j in range(d):
            gradient[j] = weight * X[i, j]
        _add_perturbation(gradient, theta, center, linear, Q)
        _prox_step(x, theta, gradient, gamma, omega, 1.0 / np.sqrt(k + 1.0))
    return np.minimum(np.maximum(x, -kappa), kappa)


def stotos(
    X: FloatArray,
    y: FloatArray,
    perturbation: Perturbation,
    omega: float,
    kappa: float,
    iterations: int,
    generator: np.random.Generator,
    *,
    clip: float | None = None,
    lipschitz: float | None = None,
) -> FloatArray:
    """θ_K of Algorithm StoTOS, K = iterations, from x_0 = θ_c, with λ_k = (k+1)^{−1/2} and γ = 1/Lip(n∇ℓ̃).

    Iteration k: θ_k = proj_C(x_k), z_k = prox_{γr}(2θ_k − x_k − γn∇ℓ̃(θ_k; z_i)) for a uniform i,
    x_{k+1} = x_k + λ_k(z_k − θ_k). With `clip` each ∇ℓ(θ; z_i) is shortened to that norm (LOP-Clip).
    `lipschitz` is Lip(n∇ℓ̃), by default n·max‖x_i‖² + λ_max(Q).
    """
    X, y, norms, center, linear, Q = _arrays(X, y, perturbation)
    if lipschitz is None:
        lipschitz = len(X) * float(np.max(norms**2)) + float(np.linalg.eigvalsh(Q)[-1])
    draws = generator.integers(len(X), size=iterations)
    bound = np.inf if clip is None else clip
    theta = _stochastic(
        X, y, norms, center, linear, Q, omega, kappa, bound, 1.0 / lipschitz, draws, center.copy()
    )
    return np.asarray(theta).reshape(perturbation.center.shape)


def _arrays(X: FloatArray, y: FloatArray, perturbation: Perturbation) -> tuple[FloatArray, ...]:
    X, y = np.ascontiguousarray(X, dtype=np.float64), np.ascontiguousarray(y, dtype=np.float64).ravel()
    Q = np.ascontiguousarray(0.5 * (perturbation.quadratic + perturbation.quadratic.T))
    center, linear = (
        np.ascontiguousarray(part).ravel() for part in (perturbation.center, perturbation.linear)
    )
    return X, y, np.linalg.norm(X, axis=1), center, linear, Q
