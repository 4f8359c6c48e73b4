"""Logistic regression, n = 100,000, d = 50: certified proximal Newton against scikit-learn at equal gap."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from benchmarks.tables import Table, best_time, milliseconds, times_faster
from curvedp.data.rows import ArrayRows
from curvedp.problems import Problem
from curvedp.problems.constraints import Box
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic
from curvedp.problems.regularizers import L1
from curvedp.solvers.glm import Objective, Perturbation, solve

Array = NDArray[np.float64]

N, D = 100_000, 50
RIDGE = 20.0  # a perturbation Q = RIDGE·I that scikit-learn can state too
GAP = 1e-9


def records() -> tuple[Array, Array]:
    """Correlated columns with standard deviations from 1 to 1/10, as tables have them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) + 0.5 * rng.standard_normal((N, 1))
    X *= np.geomspace(1.0, 0.1, D)
    X /= np.linalg.norm(X, axis=1).max()
    return X, np.where(X @ rng.standard_normal(D) * 8 + rng.logistic(size=N) > 0, 1.0, -1.0)


def tables() -> list[Table]:
    X, y = records()
    table = Table(
        f"Logistic regression, n = {N}, d = {D}",
        f"Both sides minimise Σ log(1+e^(−ys)) + ω‖θ‖₁ + ({RIDGE:g}/2)‖θ‖², one thread each; curvedp inside "
        "a box and with a certificate at η = 1e-6, scikit-learn at the loosest tolerance that brings its "
        f"relative gap below {GAP:g}. Correlated columns with standard deviations from 1 to 1/10.",
        ("method", "ms", "curvedp is faster by", "relative gap"),
    )
    for omega, label, solver, options in (
        (30.0, "ω = 30", "saga", {"l1_ratio": 30.0 / (30.0 + RIDGE), "C": 1.0 / (30.0 + RIDGE)}),
        (0.0, "ω = 0", "lbfgs", {"C": 1.0 / RIDGE}),
        (0.0, "ω = 0", "newton-cholesky", {"C": 1.0 / RIDGE}),
    ):

        def value(theta: Array, omega: float = omega) -> float:
            losses = np.logaddexp(0.0, -y * (X @ theta.ravel())).sum()
            return float(losses + omega * np.abs(theta).sum() + 0.5 * RIDGE * np.square(theta).sum())

        domain = Domain(x_norm=1.0, y_bound=1.0)
        problem = Problem(Logistic(), L1(omega), Box(20.0), domain)
        perturbation = Perturbation(np.zeros((D, 1)), np.zeros((D, 1)), RIDGE * np.eye(D))

        def own(problem: Problem = problem, perturbation: Perturbation = perturbation) -> Array:
            rows = ArrayRows(X, y, problem.domain, threads=1)
            return solve(Objective(problem, rows, perturbation), 1e-6).theta

        best = value(own())
        own_time = best_time(own, 0.5)
        table.add(f"curvedp, {label}", milliseconds(own_time), "", "certified")
        seconds, gap = loosest(X, y, solver, options, value, best)
        table.add(
            f"scikit-learn {solver}, {label}",
            milliseconds(seconds),
            times_faster(seconds, own_time),
            f"{gap:.0e}",
        )
    return [table]


def loosest(
    X: Array, y: Array, solver: str, options: dict[str, float], value: Callable[[Array], float], best: float
) -> tuple[float, float]:
    """(seconds, relative gap) of scikit-learn at the loosest tolerance that reaches GAP, or the tightest."""
    gap = np.inf
    for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
        model = LogisticRegression(solver=solver, tol=tol, max_iter=2000, fit_intercept=False, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            gap = (value(model.fit(X, y).coef_) - best) / abs(best)
            if gap <= GAP:
                return best_time(lambda model=model: model.fit(X, y), 0.5, least=1), max(gap, 0.0)
    return best_time(lambda: model.fit(X, y), 0.0, least=1), max(gap, 0.0)
