"""The perturbed lasso in a box, and the methods that curvedp is compared with on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import clarabel
import numpy as np
import osqp
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lasso:
    """min over ‖θ‖_∞ ≤ κ of ½‖Xθ − y‖² + ω‖θ‖₁ + aᵀθ + ½θᵀQθ, Q = σ²W."""

    X: Array
    y: Array
    a: Array
    Q: Array
    omega: float
    kappa: float

    @cached_property
    def H(self) -> Array:
        return self.X.T @ self.X + self.Q

    @cached_property
    def g(self) -> Array:
        return self.a - self.X.T @ self.y

    def value(self, theta: Array) -> float:
        theta = np.clip(theta.ravel(), -self.kappa, self.kappa)
        return float(0.5 * theta @ self.H @ theta + self.g @ theta + self.omega * np.abs(theta).sum())


def perturbed_lasso(d: int, seed: int = 0) -> Lasso:
    """n = 20d records in the unit ball; noise of the size that ε = 1, δ = 1e-6 asks for at d = 100.

    ω and κ leave free coordinates, zeros and active bounds in the solution.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20 * d, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.clip(X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(20 * d), -1, 1)
    G = rng.standard_normal((4 * d, d))
    return Lasso(X, y, 10.0 * rng.standard_normal(d), 0.43 * (G.T @ G), omega=4.0, kappa=0.1 * (100 / d))


def stotos_numpy(problem: Lasso, iterations: int = 1000, seed: int = 0) -> Array:
    """The paper's algorithm as it is described there, in plain numpy."""
    rng = np.random.default_rng(seed)
    X, y, (n, d) = problem.X, problem.y, problem.X.shape
    gamma = 1.0 / (n * np.max(np.sum(X**2, axis=1)) + np.linalg.norm(problem.Q, 2))
    x = np.zeros(d)
    for k in range(iterations):
        i = rng.integers(n)
        theta = np.clip(x, -problem.kappa, problem.kappa)
        gradient = n * X[i] * (X[i] @ theta - y[i]) + problem.a + problem.Q @ theta
        v = 2 * theta - x - gamma * gradient
        z = np.sign(v) * np.maximum(np.abs(v) - gamma * problem.omega, 0.0)
        x = x + (z - theta) / np.sqrt(k + 1)
    return np.clip(x, -problem.kappa, problem.kappa)


def davis_yin_numpy(problem: Lasso, best: float, gap: float = 1e-9) -> Array:
    """Full-gradient Davis–Yin splitting on the Gram form, until the relative gap to `best` is below `gap`."""
    gamma = 1.0 / np.linalg.norm(problem.H, 2)
    x = np.zeros(len(problem.g))
    for k in range(100_000):
        theta = np.clip(x, -problem.kappa, problem.kappa)
        v = 2 * theta - x - gamma * (problem.H @ theta + problem.g)
        x = x + np.sign(v) * np.maximum(np.abs(v) - gamma * problem.omega, 0.0) - theta
        if k % 25 == 0 and problem.value(x) - best <= gap * abs(best):
            break
    return np.clip(x, -problem.kappa, problem.kappa)


def _program(problem: Lasso) -> tuple[sparse.csc_matrix, Array, sparse.csc_matrix, Array]:
    """The quadratic program in (θ, t): |θ| ≤ t ≤ κ."""
    d = len(problem.g)
    P = sparse.block_diag([sparse.csc_matrix(problem.H), sparse.csc_matrix((d, d))], format="csc")
    I, O = sparse.identity(d, format="csc"), sparse.csc_matrix((d, d))
    A = sparse.bmat([[I, -I], [-I, -I], [O, I]], format="csc")
    q = np.concatenate([problem.g, np.full(d, problem.omega)])
    b = np.concatenate([np.zeros(2 * d), np.full(d, problem.kappa)])
    return P, q, A, b


def clarabel_solver(problem: Lasso) -> Callable[[], Array]:
    """Clarabel, called directly, at its default tolerances."""
    P, q, A, b = _program(problem)
    P = sparse.triu(P, format="csc")
    settings = clarabel.DefaultSettings()
    settings.verbose = False

    def solve() -> Array:
        solver = clarabel.DefaultSolver(P, q, A, b, [clarabel.NonnegativeConeT(len(b))], settings)
        return np.asarray(solver.solve().x)[: len(problem.g)]

    return solve


def osqp_solver(problem: Lasso) -> Callable[[], Array]:
    """OSQP, called directly, at tolerance 1e-8 with polishing."""
    P, q, A, b = _program(problem)
    P = sparse.triu(P, format="csc")
    low = np.full(len(b), -np.inf)

    def solve() -> Array:
        solver = osqp.OSQP()
        solver.setup(
            P, q, A, low, b, eps_abs=1e-8, eps_rel=1e-8, polishing=True, max_iter=100_000, verbose=False
        )
        return np.asarray(solver.solve().x)[: len(problem.g)]

    return solve
