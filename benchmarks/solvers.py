"""Perturbed lasso in a box: certified solves against the paper's algorithm and general-purpose solvers."""

from __future__ import annotations

import numpy as np

from benchmarks.lasso import (
    Lasso,
    clarabel_solver,
    davis_yin_numpy,
    osqp_solver,
    perturbed_lasso,
    stotos_numpy,
)
from benchmarks.tables import Table, best_time, milliseconds, times_faster
from curvedp.problems.constraints import Box
from curvedp.problems.regularizers import L1
from curvedp.solvers.glm import Perturbation, quadratic, solve_path
from curvedp.solvers.terms import terms_of
from curvedp_studies.stotos import stotos

ETA = 1e-6


def certified_gap(problem: Lasso, theta: np.ndarray) -> float:
    """‖s‖²/(2κ_s), relative to the optimal value: a proof, not a comparison."""
    shape = (len(problem.g), 1)
    f = quadratic(problem.H, problem.g, np.zeros(shape))
    terms = terms_of(L1(problem.omega), Box(problem.kappa), shape)
    _, distance = f.certify(terms, theta.ravel(), np.zeros(shape[0]), ETA)
    return 0.5 * f.quick_curvature * distance**2 / abs(problem.value(theta))


def tables() -> list[Table]:
    return [table_of(d) for d in (70, 100, 500)] + [path_table()]


def table_of(d: int) -> Table:
    problem = perturbed_lasso(d)
    center = np.zeros((d, 1))
    H, g = problem.H, problem.g
    pair = [(L1(problem.omega), Box(problem.kappa))]
    theta = solve_path(H, g, center, pair, ETA)[0].theta
    best = problem.value(theta)
    own = best_time(lambda: solve_path(H, g, center, pair, ETA), 0.5)
    inside = theta.ravel()
    free = np.mean((inside != 0) & (np.abs(inside) < problem.kappa))
    table = Table(
        f"Perturbed lasso in a box, d = {d}",
        f"n = {len(problem.X)} records; {free:.0%} of the coordinates free, {np.mean(inside == 0):.0%} zero, "
        "the rest at a bound. Gram matrix given, except to the two StoTOS. curvedp's gap is certified, and "
        "its time includes the proof; the gaps of the others are differences to its value.",
        ("method", "ms", "curvedp is faster by", "relative gap"),
    )
    table.add("curvedp, certified", milliseconds(own), "", f"{certified_gap(problem, theta):.0e}")
    perturbation = Perturbation(center, problem.a[:, None], problem.Q)
    clarabel, osqp = clarabel_solver(problem), osqp_solver(problem)

    def compiled_stotos() -> np.ndarray:
        generator = np.random.default_rng(0)
        return stotos(problem.X, problem.y, perturbation, problem.omega, problem.kappa, 1000, generator)

    rivals = {
        "StoTOS, 1000 iterations, numpy": lambda: stotos_numpy(problem),
        "StoTOS, 1000 iterations, compiled": compiled_stotos,
        "Davis–Yin to gap 1e-9, numpy": lambda: davis_yin_numpy(problem, best),
        "Clarabel": clarabel,
        "OSQP, 1e-8, polished": osqp,
    }
    for name, method in rivals.items():
        seconds = best_time(method, 1.0)
        gap = (problem.value(method()) - best) / abs(best)
        table.add(name, milliseconds(seconds), times_faster(seconds, own), f"{max(gap, 0):.0e}")
    return table


def path_table() -> Table:
    """Warm starts: 50 box sizes and weights in one call."""
    problem = perturbed_lasso(100)
    H, g, center = problem.H, problem.g, np.zeros((100, 1))
    in_kappa = [(L1(problem.omega), Box(k)) for k in np.geomspace(1e-3, 1.0, 50)]
    in_omega = [(L1(w), Box(problem.kappa)) for w in np.geomspace(30.0, 0.03, 50)]
    table = Table(
        "Paths of 50 perturbed lassos, d = 100", "Every point certified.", ("path", "ms", "ms per point")
    )
    for name, pairs in (("in κ", in_kappa), ("in ω", in_omega)):
        seconds = best_time(lambda pairs=pairs: solve_path(H, g, center, pairs, ETA), 0.3)
        table.add(name, milliseconds(seconds), milliseconds(seconds / 50))
    return table
