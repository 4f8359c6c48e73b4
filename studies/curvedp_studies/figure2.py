"""Figure 2 of the paper: the empirical risk against the size κ of the box, twice.

"As in the paper": 1000 iterations of StoTOS with λ_k = (k+1)^{−1/2} and γ = 1/(nL + λ_max(Q)), L = dξ².
"Exact": the same draws, every solve certified. Beside both, the constant answer θ_c = 0 and the non-private
solution. A last row of panels repeats the first one under other readings of the paper's rescaling; the
second page is `curvedp_studies.learning`.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from curvedp.arrays import FloatArray
from curvedp.data.rows import Rows, make_rows
from curvedp.problems import Problem
from curvedp.randomness import generator
from curvedp.solvers.glm import Objective, Perturbation, solve
from curvedp_studies import learning
from curvedp_studies.drawing import canvas, pictures
from curvedp_studies.experiment import (
    CONFIGURATIONS,
    MECHANISMS,
    OMEGA,
    READING_WORDS,
    Configuration,
    Perturbed,
    records,
    risk,
)
from curvedp_studies.resume import Progress, complete, seed_of
from curvedp_studies.stotos import stotos

ITERATIONS = 1000
ETA = 1e-6  # exact solves are proved to within ETA·κ
MAIN_READING = "norm"  # the one that the paper's tables agree with
SOLVER_WORDS = {"stotos": "as in the paper: StoTOS, 1000 iterations", "exact": "exact: certified solves"}
CONSTANT, NON_PRIVATE = "constant answer θ_c", "non-private solution"


@dataclass(frozen=True)
class Task:
    """All mechanisms and all κ of one run."""

    solver: str  # a key of SOLVERS, or "none" for the baselines
    reading: str
    configuration: Configuration
    run: int
    kappas: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        if self.solver == "none":
            return CONSTANT, NON_PRIVATE
        return tuple(mechanism.name for mechanism in MECHANISMS)


@dataclass(frozen=True)
class Row:
    """One solve: its mean risk, the proved distance to the optimum (nan: none) and its CPU time."""

    solver: str
    reading: str
    n: int
    d: int
    epsilon: float
    delta: float
    run: int
    kappa: float
    mechanism: str
    risk: float
    distance: float
    seconds: float

    @property
    def configuration(self) -> Configuration:
        return Configuration(self.n, self.d, self.epsilon, self.delta)

    @property
    def point(self) -> Hashable:
        return self.solver, self.reading, self.configuration, self.run, self.kappa, self.mechanism


@dataclass(frozen=True)
class Grid:
    """What is computed; `sparse` says that the other readings take every so many-th κ."""

    configurations: tuple[Configuration, ...] = CONFIGURATIONS
    kappas: tuple[float, ...] = tuple(float(kappa) for kappa in np.geomspace(1e-2, 1e3, 100))
    runs: int = 10
    other_readings: tuple[str, ...] = ("maximum", "columns", "clip")
    sparse: int = 4
    learning: learning.Grid = field(default_factory=learning.Grid)

    def tasks(self) -> list[Task]:
        panels = [(MAIN_READING, c, self.kappas) for c in self.configurations]
        few = self.kappas[:: self.sparse]
        panels += [(reading, self.configurations[0], few) for reading in self.other_readings]
        return [
            Task(solver, reading, c, run, kappas)
            for reading, c, kappas in panels
            for solver, runs in (("none", 1), ("exact", self.runs), ("stotos", self.runs))
            for run in range(runs)
        ]


def points(task: Task) -> list[Hashable]:
    return [
        (task.solver, task.reading, task.configuration, task.run, kappa, name)
        for kappa in task.kappas
        for name in task.names
    ]


@dataclass(frozen=True, eq=False)
class Trial:
    """One problem to solve."""

    X: FloatArray
    y: FloatArray
    rows: Rows
    problem: Problem
    kappa: float
    noise: Perturbed
    indices: np.random.Generator


def by_stotos(trial: Trial) -> tuple[FloatArray, float]:
    """θ after 1000 iterations; no certificate."""
    L = trial.problem.smoothness(trial.X.shape[1])
    theta = stotos(
        trial.X,
        trial.y,
        trial.noise.perturbation,
        OMEGA,
        trial.kappa,
        ITERATIONS,
        trial.indices,
        clip=trial.noise.clip,
        lipschitz=len(trial.X) * L + trial.noise.largest,
    )
    return theta, math.nan


def exactly(trial: Trial) -> tuple[FloatArray, float]:
    """The solution and its certified distance; LOP-Clip is the Huberised loss, solved as such."""
    objective = Objective(trial.problem, trial.rows, trial.noise.perturbation, trial.noise.clip)
    solution = solve(objective, ETA * trial.kappa)
    return solution.theta, solution.distance


SOLVERS: dict[str, Callable[[Trial], tuple[FloatArray, float]]] = {"stotos": by_stotos, "exact": exactly}


def compute(task: Task) -> list[Row]:
    """Every solve of one run. The noise depends on (configuration, run, κ, mechanism), not on the solver."""
    c = task.configuration
    X, y = records(c.n, c.d, task.reading)
    rows = make_rows(X, y, c.domain)
    if task.solver == "none":
        return _baselines(task, X, y, rows)
    method = SOLVERS[task.solver]
    found = []
    for i, kappa in enumerate(task.kappas):
        problem = c.problem(kappa)
        for mechanism in MECHANISMS:
            key = (c, task.run, kappa, mechanism.name)
            noise = mechanism.draw(c, kappa, generator(seed_of("noise", *key)))
            trial = Trial(X, y, rows, problem, kappa, noise, generator(seed_of("indices", *key)))
            if i == 0:
                method(replace(trial, indices=generator(0)))  # compiled code is loaded outside the clock
            start = time.thread_time()
            theta, distance = method(trial)
            seconds = time.thread_time() - start
            found.append(_row(task, kappa, mechanism.name, risk(X, y, theta), distance, seconds))
    return found


def _baselines(task: Task, X: FloatArray, y: FloatArray, rows: Rows) -> list[Row]:
    c = task.configuration
    nothing = Perturbation(c.center, c.center, np.zeros((c.d, c.d)))
    found = []
    for kappa in task.kappas:
        start = time.thread_time()
        exact = solve(Objective(c.problem(kappa), rows, nothing), ETA * kappa)
        seconds = time.thread_time() - start
        found.append(_row(task, kappa, CONSTANT, risk(X, y, c.center), 0.0, 0.0))
        found.append(_row(task, kappa, NON_PRIVATE, risk(X, y, exact.theta), exact.distance, seconds))
    return found


def _row(task: Task, kappa: float, name: str, value: float, distance: float, seconds: float) -> Row:
    c = task.configuration
    return Row(
        task.solver,
        task.reading,
        c.n,
        c.d,
        c.epsilon,
        c.delta,
        task.run,
        kappa,
        name,
        value,
        distance,
        seconds,
    )


def study(
    folder: Path, *, progress: Progress | None = None, grid: Grid | None = None, workers: int | None = None
) -> list[Row]:
    """Every number of the first page, in figure2.csv; what is there already is not computed again."""
    tasks = (grid or Grid()).tasks()
    return complete(folder / "figure2.csv", Row, tasks, points, compute, progress=progress, workers=workers)


def figure2(
    out_dir: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    grid: Grid | None = None,
    workers: int | None = None,
) -> list[Path]:
    """Write both pages (CSV, PNG, SVG) and summary.md into `out_dir`; returns their paths.

    `progress(done, total)` is called after every task; `workers` processes share them (default: all cores).
    """
    folder, grid = Path(out_dir), grid or Grid()
    first, second = len(grid.tasks()), len(grid.learning.tasks())

    def counted(before: int) -> Progress | None:
        if progress is None:
            return None
        return lambda done, _: progress(before + done, first + second)

    rows = study(folder, progress=counted(0), grid=grid, workers=workers)
    more = learning.study(folder, progress=counted(first), grid=grid.learning, workers=workers)
    found = curves(rows)
    _draw(found, grid, folder)
    learning.draw(more, grid.learning, folder)
    summary = folder / "summary.md"
    summary.write_text(
        "\n".join([*_summary(rows, found, grid), *learning.summary(more, grid.learning)]) + "\n",
        encoding="utf-8",
    )
    return [
        folder / "figure2.csv",
        *pictures(folder, "figure2"),
        folder / "figure2_learning.csv",
        *pictures(folder, "figure2_learning"),
        summary,
    ]


@dataclass(frozen=True, eq=False)
class RiskCurve:
    """Risks of shape (runs, number of κ)."""

    kappas: FloatArray
    risks: FloatArray

    @property
    def mean(self) -> FloatArray:
        return np.asarray(self.risks.mean(axis=0))


CurveKey = tuple[str, str, Configuration, str]  # solver, reading, configuration, mechanism


def curves(rows: Sequence[Row]) -> dict[CurveKey, RiskCurve]:
    """The rows as one curve per solver, reading, configuration and mechanism."""
    runs: dict[CurveKey, dict[int, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        runs[row.solver, row.reading, row.configuration, row.mechanism][row.run][row.kappa] = row.risk
    return {
        key: RiskCurve(
            np.array(list(by_run[0])), np.array([list(by_kappa.values()) for by_kappa in by_run.values()])
        )
        for key, by_run in runs.items()
    }


def slope(curve: RiskCurve, above: float) -> float:
    """d log(mean risk)/d log κ, fitted to κ ≥ above."""
    chosen = curve.kappas >= above
    return float(np.polyfit(np.log(curve.kappas[chosen]), np.log(curve.mean[chosen]), 1)[0])


_COLOURS = dict(zip((m.name for m in MECHANISMS), ("#c1272d", "#e08214", "#8c6d1f", "#0868ac"), strict=True))
_DASHES = {"norm": "-", "maximum": "--", "columns": "-.", "clip": ":"}
_BASELINES = {CONSTANT: ("black", "--"), NON_PRIVATE: ("0.45", "-.")}


def _draw(found: dict[CurveKey, RiskCurve], grid: Grid, folder: Path) -> None:
    """A row of panels per configuration, a column per solver; the last row is about the rescaling."""
    panels = len(grid.configurations)
    with canvas(folder, "figure2", (9.0, 2.3 * (panels + 1) + 1.2), dpi=110) as figure:
        axes = figure.subplots(panels + 1, 2, sharex=True, sharey=True, squeeze=False)
        for row, c in zip(axes, grid.configurations, strict=False):
            for axis, solver in zip(row, SOLVERS, strict=True):
                _draw_panel(axis, found, solver, c)
                axis.set_title(str(c), fontsize=8)
        for axis, solver in zip(axes[0], SOLVERS, strict=True):
            heading = {"ha": "center", "fontsize": 10, "fontweight": "bold", "transform": axis.transAxes}
            axis.text(0.5, 1.15, SOLVER_WORDS[solver], **heading)
        for axis, solver in zip(axes[panels], SOLVERS, strict=True):
            _draw_readings(axis, found, solver, grid.configurations[0])
            axis.set_title(f"{grid.configurations[0]}, other rescalings of the samples", fontsize=8)
            axis.set_xlabel("κ, half the side of the box C")
        axes[panels, 0].legend(handles=_reading_keys(), fontsize=7, loc="upper left", frameon=False)
        axes[0, 0].set(xscale="log", yscale="log")
        for axis in axes.flat:
            axis.minorticks_off()
        figure.supylabel(r"empirical risk $\frac{1}{n}\sum_i \frac{1}{2}(x_i^T\theta - y_i)^2$", fontsize=10)
        figure.legend(handles=_keys(), loc="outside lower center", ncols=4, frameon=False)
        figure.suptitle(
            "Empirical risk against the size of the box: mean of the runs, shaded from least to greatest"
        )


def _draw_panel(axis: Any, found: dict[CurveKey, RiskCurve], solver: str, c: Configuration) -> None:
    for name, colour in _COLOURS.items():
        curve = found[solver, MAIN_READING, c, name]
        axis.plot(curve.kappas, curve.mean, color=colour, linewidth=2.5 if name == "QOP" else 1.5)
        low, high = curve.risks.min(axis=0), curve.risks.max(axis=0)
        axis.fill_between(curve.kappas, low, high, color=colour, alpha=0.2, linewidth=0)
        if solver == "exact" and "Clip" in name:
            rough = found["stotos", MAIN_READING, c, name]
            axis.plot(rough.kappas, rough.mean, ":", color=colour, linewidth=1.2)
    for name, (colour, dashes) in _BASELINES.items():
        curve = found["none", MAIN_READING, c, name]
        axis.plot(curve.kappas, curve.mean, dashes, color=colour, linewidth=1.0)


def _draw_readings(axis: Any, found: dict[CurveKey, RiskCurve], solver: str, c: Configuration) -> None:
    for (key_solver, reading, key_c, name), curve in found.items():
        if key_solver == solver and key_c == c:
            axis.plot(curve.kappas, curve.mean, _DASHES[reading], color=_COLOURS[name], linewidth=1.1)


def _keys() -> list[Any]:
    keys = [Line2D([], [], color=colour, label=name) for name, colour in _COLOURS.items()]
    keys += [Line2D([], [], color=c, linestyle=line, label=name) for name, (c, line) in _BASELINES.items()]
    keys.append(Line2D([], [], color="0.3", linestyle=":", label="StoTOS, for comparison"))
    return keys


def _reading_keys() -> list[Any]:
    return [
        Line2D([], [], color="0.3", linestyle=dashes, linewidth=1.1, label=READING_WORDS[reading])
        for reading, dashes in _DASHES.items()
    ]


def deviation(found: dict[CurveKey, RiskCurve], solver: str, reading: str, c: Configuration) -> float:
    """max over κ of |mean risk of QOP / risk of θ_c − 1|."""
    constant = found["none", reading, c, CONSTANT].mean
    return float(np.max(np.abs(found[solver, reading, c, "QOP"].mean / constant - 1)))


def solver_effect(found: dict[CurveKey, RiskCurve], reading: str, c: Configuration, name: str) -> FloatArray:
    """Mean risk of the exact solves over that of StoTOS, for every κ."""
    return found["exact", reading, c, name].mean / found["stotos", reading, c, name].mean


def _summary(rows: Sequence[Row], found: dict[CurveKey, RiskCurve], grid: Grid) -> list[str]:
    exact = [row for row in rows if row.solver == "exact"]
    certified = sum(row.distance <= ETA * row.kappa for row in exact)
    seconds = {s: sum(row.seconds for row in rows if row.solver == s) for s in SOLVERS}
    lines = [
        "# Figure 2",
        "",
        "Risks are means over the records, the regularizer left out. Rescaling of the samples: "
        + "; ".join(
            f"{reading}: {READING_WORDS[reading]}" for reading in (MAIN_READING, *grid.other_readings)
        )
        + ".",
        "",
        f"Certified: {certified:,} of {len(exact):,} exact solves, the proved distance to the optimum "
        f"at most {max(row.distance / row.kappa for row in exact):.1e} κ. CPU time of the solves: "
        f"exact {seconds['exact']:.1f} s, StoTOS {seconds['stotos']:.1f} s.",
        "",
        "QOP: largest deviation from the constant answer, StoTOS / exact. LOP: slope of log risk against "
        "log κ for κ ≥ 10, StoTOS / exact. Clip: exact risk over that of StoTOS, at the largest κ.",
        "",
        "| configuration | rescaling | QOP | LOP | LOP-Clip-1e4 | LOP-Clip-1e5 |",
        "|---|---|---|---|---|---|",
    ]
    for reading, c in dict.fromkeys((key[1], key[2]) for key in found):
        flat = " / ".join(f"{100 * deviation(found, s, reading, c):.3f} %" for s in SOLVERS)
        slopes = " / ".join(f"{slope(found[s, reading, c, 'LOP'], 10.0):.3f}" for s in SOLVERS)
        clips = " | ".join(
            f"{solver_effect(found, reading, c, name)[-1]:.2f}" for name in ("LOP-Clip-1e4", "LOP-Clip-1e5")
        )
        lines.append(f"| {c} | {reading} | {flat} | {slopes} | {clips} |")
    return lines
