"""Ratios that are asked for: private fits in Gram matrices and in scikit-learn's fits, first calls, imports.

Both sides of a ratio of fits run in this process, one thread, by processor time. Imports, first calls and the
command line are fresh processes, in turns with what they are compared with; the median is taken.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge

from benchmarks.lasso import Lasso, clarabel_solver
from benchmarks.tables import Table, best_time
from curvedp import PrivateLogisticRegression, PrivateRidge
from curvedp.data.rows import ArrayRows
from curvedp.mechanisms.objective import QOP
from curvedp.privacy.budget import Budget
from curvedp.problems import Problem
from curvedp.problems.constraints import Box
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Loss, Squared
from curvedp.problems.regularizers import L1
from curvedp.release.fit import private_fit

Array = NDArray[np.float64]

N, D, CHUNK = 200_000, 50, 4096
IMPORT = "import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
FIRST_CALL = f"""
import time
import numpy as np
from curvedp import PrivateRidge
X = np.random.default_rng(0).uniform(-1, 1, (2000, {D}))
model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), adjacency="{{adjacency}}")
start = time.process_time()
model.fit(X, X[:, 0])
print(time.process_time() - start)
"""


def tables() -> list[Table]:
    return [fits_table(), fresh_table()]


def gram(X: Array) -> Array:
    """Σ over chunks of XᵀX."""
    total = np.zeros((X.shape[1],) * 2)
    for start in range(0, len(X), CHUNK):
        chunk = X[start : start + CHUNK]
        total += chunk.T @ chunk
    return total


def fits_table() -> Table:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, D))
    margin = X @ rng.standard_normal(D) / np.sqrt(D)
    y, classes = np.clip(margin / 4, -1, 1), np.where(margin + 0.3 * rng.logistic(size=N) > 0, 1, -1)
    ridge = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), adjacency="add_remove")
    logistic = PrivateLogisticRegression(bounds=(-1, 1), classes=[-1, 1], adjacency="add_remove")
    unit = best_time(lambda: gram(X), 1.0)
    linear = best_time(lambda: ridge.fit(X, y), 3.0)
    two_classes = best_time(lambda: logistic.fit(X, classes), 3.0)
    table = Table(
        f"What is asked of fits, n = {N}, d = {D}",
        "Processor time, one fit after another in this process; calibration is excluded. A round is one "
        "clipped gradient sum in a metric.",
        ("", "measured", "asked"),
    )
    plain, plain_classes = Ridge(), LogisticRegression()
    table.add("default linear fit, Gram matrices", f"{linear / unit:.1f}", "40")
    table.add(
        "default linear fit, times Ridge", f"{linear / best_time(lambda: plain.fit(X, y), 1.0):.1f}", "10"
    )
    table.add(
        "default logistic fit, times LogisticRegression",
        f"{two_classes / best_time(lambda: plain_classes.fit(X, classes), 1.0):.1f}",
        "8",
    )
    losses: tuple[tuple[str, Loss, Array], ...] = (
        ("squared", Squared(), y),
        ("logistic", Logistic(), classes.astype(float)),
    )
    theta = np.full((D, 1), 0.1)
    for name, loss, targets in losses:
        seen = ArrayRows(X, targets, Domain(np.sqrt(D), 1.0), threads=1).in_metric(np.eye(D))
        seconds = best_time(lambda seen=seen, loss=loss: seen.gradient_sum(loss, theta, 1.0), 0.5)
        table.add(f"one round, {name} loss, Gram matrices", f"{seconds / unit:.2f}", "0.8")
    table.add("small fit by QOP (400 × 100), times one Clarabel solve", f"{small_fit():.2f}", "1")
    return table


def small_fit(n: int = 400, d: int = 100) -> float:
    """A private lasso in a box over one bare Clarabel solve of the same perturbed problem."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1).max()
    y = np.clip(X @ rng.standard_normal(d), -1, 1)
    problem, budget = Problem(Squared(), L1(1.0), Box(1.0), Domain(1.0, 1.0)), Budget(1.0, 1e-6)
    drawn = QOP().plan(problem, d, budget).perturbation(rng)
    if drawn.quadratic is None:
        raise RuntimeError("QOP draws a quadratic")
    clarabel = clarabel_solver(Lasso(X, y, drawn.linear[:, 0], drawn.quadratic, 1.0, 1.0))
    fit = best_time(lambda: private_fit(problem, X, y, budget=budget, mechanism=QOP()), 0.5)
    return fit / best_time(clarabel, 0.5)


def fresh_table(runs: int = 5) -> Table:
    modules = ("curvedp.analyses.estimators", "sklearn.linear_model")
    own, other = alternating([partial(printed, IMPORT.format(module=module)) for module in modules], runs)
    table = Table(
        "What is asked of fresh processes",
        f"Medians of {runs} processes, processor time.",
        ("", "measured", "asked"),
    )
    table.add("import curvedp.analyses.estimators, times sklearn.linear_model", f"{own / other:.2f}", "1.2")
    for adjacency in ("replace", "add_remove"):
        (first,) = alternating([partial(printed, FIRST_CALL.format(adjacency=adjacency))], runs)
        table.add(f"first fit with its calibration, d = {D}, {adjacency}, s", f"{first:.2f}", "2")
    with tempfile.TemporaryDirectory() as folder:
        (command,) = alternating([demo_fit(Path(folder))], runs)
    table.add("curvedp fit of the demo's table, s", f"{command:.2f}", "4")
    return table


def printed(code: str) -> float:
    """What a fresh interpreter prints, a number."""
    return float(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout)


def demo_fit(folder: Path) -> Callable[[], float]:
    """Processor seconds of `curvedp fit` on the demo's training rows, everything included."""
    command = [sys.executable, "-m", "curvedp"]
    subprocess.run([*command, "demo", "--quiet", "--folder", str(folder / "demo")], check=True)
    fit = [
        *("fit", str(folder / "demo/train.csv"), "--schema", str(folder / "demo/schema.toml")),
        *("--epsilon", "1", "--delta", "1e-6", "--out", str(folder / "model.json"), "--force", "--quiet"),
    ]
    code = (
        "import resource, subprocess\n"
        f"subprocess.run({[*command, *fit]!r}, check=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(used.ru_utime + used.ru_stime)"
    )
    return partial(printed, code)


def alternating(jobs: list[Callable[[], float]], runs: int) -> list[float]:
    """The median of each job, all of them in turns; a first turn is dropped."""
    found = [[job() for job in jobs] for _ in range(runs + 1)][1:]
    return [statistics.median(column) for column in zip(*found, strict=True)]
