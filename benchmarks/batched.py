"""Many private fits at once on the CPU: what an audit costs."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.tables import Table, best_time
from curvedp.audit.accounted import recentered_fits
from curvedp.audit.fits import Fits, MarginFits, Penalty, Perturbations, QuadraticFits
from curvedp.audit.fits.numba import Threads
from curvedp.audit.fits.recentered import RecenteredFits
from curvedp.audit.fits.recentered_numba import ThreadsRecentered
from curvedp.audit.pairs import Pair
from curvedp.audit.records import Records
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.losses import Logistic, Loss, Squared
from curvedp.mechanisms.recentered import Recentered, RecenteredPlan
from curvedp.problem import Problem


def regression(d: int, penalty: Penalty) -> QuadraticFits:
    rng = np.random.default_rng(d)
    X = rng.standard_normal((3 * d, d)) / np.sqrt(d)
    y = X @ rng.standard_normal(d)
    return QuadraticFits(X.T @ X, X.T @ y, Perturbations(0.5, 2.0 * d + 20, 3.0), penalty)


def logistic(d: int) -> MarginFits:
    rng = np.random.default_rng(d)
    x = rng.standard_normal((8, d)) / np.sqrt(d)
    return MarginFits(x, np.where(np.arange(8) % 2, 1.0, -1.0), Perturbations(0.5, 2.0 * d, 1.0), np.ones(8))


def walks(loss: Loss, d: int, rows: float) -> RecenteredFits:
    """The default mechanism at ε = 1, δ = 10⁻³ on three distinct records."""
    problem = Problem(loss, domain=Domain(adjacency="add_remove"))
    plan = Recentered().plan(problem, d, Budget(1.0, 1e-3))
    assert isinstance(plan, RecenteredPlan)
    e = np.eye(d)[0]
    left = Records(np.array([0.05 * e, 0.05 * e]), np.array([1.0, -1.0]), np.full(2, rows), problem.domain)
    fits = recentered_fits(plan, Pair("", left, left.plus(e, -1.0), e[None]))
    assert fits is not None
    return fits


def tables() -> list[Table]:
    return [solved(), walked()]


def walked() -> Table:
    table = Table(
        "Recentered fits per second",
        "The default mechanism from n̂ to θ, and the likelihood ratio of everything released. Three distinct "
        "records; 64 rounds where they are few, 24 where they are many.",
        ("loss", "d", "records", "per second", "per second, idle"),
    )
    for loss, d, rows in ((Squared(), 2, 40), (Squared(), 2, 2000), (Logistic(), 2, 40), (Squared(), 10, 40)):
        fits, n = walks(loss, d, rows), 100_000 if d < 5 else 20_000
        seconds = [
            best_time(lambda f=fits, n=n: ThreadsRecentered(2).draw(f, 0, n, 1), clock=clock)
            for clock in (time.perf_counter, time.process_time)
        ]
        table.add(loss.name, str(d), f"{2 * rows:,}", f"{n / seconds[0]:,.0f}", f"{2 * n / seconds[1]:,.0f}")
    return table


def solved() -> Table:
    table = Table(
        "Private fits per second",
        "Fresh W and a for every fit, float64. Two threads by the wall clock, and what two idle cores give "
        "by processor time. A GPU's figures are in gpu.md.",
        ("fits", "d", "per second", "per second, idle"),
    )
    cases: list[tuple[str, Fits, int]] = [
        ("squared loss", regression(10, Penalty()), 200_000),
        ("squared loss, L1 and box", regression(10, Penalty(0.3, -1.0, 1.0)), 100_000),
        ("squared loss", regression(100, Penalty()), 3000),
        ("squared loss, L1 and box", regression(100, Penalty(3.0, -2.0, 2.0)), 3000),
        ("logistic loss, 8 records", logistic(5), 50_000),
    ]
    for name, fits, n in cases:
        seconds = [
            best_time(lambda f=fits, n=n: Threads(2).sample(f, n, 1), clock=clock)
            for clock in (time.perf_counter, time.process_time)
        ]
        table.add(name, str(fits.d), f"{n / seconds[0]:,.0f}", f"{2 * n / seconds[1]:,.0f}")
    return table
