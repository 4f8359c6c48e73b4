"""The second page of Figure 2: the same experiment with enough records to learn from.

d = 70, ε = 0.5, δ = 0.01, the same declared bounds, exact solves. QOP under four accountings, LOP under
(P-8), against κ for n = 3·10⁴ and 3·10⁵, and against n. Beyond 3·10⁵ every record is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from curvedp.arrays import FloatArray
from curvedp.data.rows import Moments, make_rows
from curvedp.privacy.calibrate import QOPParameters, calibrate_qop
from curvedp.randomness import generator
from curvedp.solvers.glm import Perturbation, solve_moments
from curvedp_studies.drawing import canvas
from curvedp_studies.experiment import (
    Configuration,
    PaperQOP,
    Perturbed,
    linear_noise,
    quadratic_noise,
    records,
    risk_from,
)
from curvedp_studies.mechanisms.lop import LOPParameters, calibrate_lop
from curvedp_studies.resume import Progress, complete, seed_of

D, EPSILON, DELTA = 70, 0.5, 0.01
RADIUS = 1.0  # the public guess of ‖θ_exact − θ_c‖ that calibrations are made for
ETA = 1e-6  # solves are proved to within ETA·κ
GENERATED = 300_000  # records that are drawn; more are repetitions
CONSTANT, NON_PRIVATE = "constant answer θ_c", "non-private solution"


class Calibration(Protocol):
    """A calibration to draw from; E[Q] = curvature·I."""

    @property
    def name(self) -> str: ...

    def curvature(self, c: Configuration, kappa: float) -> float: ...

    def draw(self, c: Configuration, kappa: float, source: np.random.Generator) -> Perturbed: ...


@dataclass(frozen=True)
class CalibratedQOP:
    """QOP with the noise levels that are best for its utility bound under one accounting."""

    name: str
    accounting: Literal["paper", "spectral", "directional"]

    def parameters(self, c: Configuration) -> QOPParameters:
        return calibrate_qop(
            c.epsilon,
            c.delta,
            L=c.L,
            d=c.d,
            center_sensitivity=c.center_sensitivity,
            radius=RADIUS,
            eta=0.0,
            accounting=self.accounting,
        )

    def curvature(self, c: Configuration, kappa: float) -> float:
        p = self.parameters(c)
        return p.sigma2 * p.m

    def draw(self, c: Configuration, kappa: float, source: np.random.Generator) -> Perturbed:
        p = self.parameters(c)
        return quadratic_noise(c, p.sigma0, p.sigma2, p.m, source)


@dataclass(frozen=True)
class CalibratedLOP:
    """LOP calibrated for replacement by (P-8), the gradient bound taken on the box."""

    name: str = "LOP, (P-8)"

    def parameters(self, c: Configuration, kappa: float) -> LOPParameters:
        zeta = c.problem(kappa).gradient_bound(c.d)
        return calibrate_lop(c.epsilon, c.delta, L=c.L, zeta=zeta, radius=RADIUS, d=c.d, eta=0.0)

    def curvature(self, c: Configuration, kappa: float) -> float:
        return self.parameters(c, kappa).Delta

    def draw(self, c: Configuration, kappa: float, source: np.random.Generator) -> Perturbed:
        p = self.parameters(c, kappa)
        return linear_noise(c, p.sigma, p.Delta, source)


EXPERIMENT = PaperQOP("QOP, the paper's split")
PAPER = CalibratedQOP("QOP, the paper's theorem, best split", "paper")
SPECTRAL = CalibratedQOP("QOP, spectral (P-5)", "spectral")
DIRECTIONAL = CalibratedQOP("QOP, directional (P-6)", "directional")
MECHANISMS: tuple[Calibration, ...] = (EXPERIMENT, PAPER, SPECTRAL, DIRECTIONAL, CalibratedLOP())


@dataclass(frozen=True)
class Task:
    """All mechanisms, runs and κ at one n."""

    reading: str
    n: int
    kappas: tuple[float, ...]
    runs: int


@dataclass(frozen=True)
class Row:
    """One solve: its mean risk and the proved distance to the optimum."""

    reading: str
    n: int
    kappa: float
    mechanism: str
    run: int
    risk: float
    distance: float

    @property
    def point(self) -> Hashable:
        return self.reading, self.n, self.kappa, self.mechanism, self.run


def _sizes() -> tuple[int, ...]:
    below = (round(n) for n in np.geomspace(1e3, GENERATED, 16))
    times = (2, 3, 5, 7, 10, 15, 22, 33, 50, 70, 100, 150, 220, 330)
    return *below, *(GENERATED * k for k in times)


@dataclass(frozen=True)
class Grid:
    """What is computed: risks against κ at `sizes`, and against n in a box that does not bind."""

    readings: tuple[str, ...] = ("maximum", "norm")
    sizes: tuple[int, ...] = (30_000, 300_000)
    kappas: tuple[float, ...] = tuple(float(kappa) for kappa in np.geomspace(1e-2, 1e3, 100))
    growing: tuple[int, ...] = _sizes()
    wide: float = 1.0
    runs: int = 10

    def tasks(self) -> list[Task]:
        return [
            Task(reading, n, kappas, self.runs)
            for reading in self.readings
            for sizes, kappas in ((self.sizes, self.kappas), (self.growing, (self.wide,)))
            for n in sizes
        ]


def points(task: Task) -> list[Hashable]:
    names = [(CONSTANT, 0), (NON_PRIVATE, 0)]
    names += [(mechanism.name, run) for mechanism in MECHANISMS for run in range(task.runs)]
    return [(task.reading, task.n, kappa, name, run) for kappa in task.kappas for name, run in names]


@lru_cache(maxsize=2)
def moments(reading: str, n: int) -> Moments:
    """Second moments of n records; beyond GENERATED, those records repeated n/GENERATED times."""
    if n > GENERATED:
        base, times = moments(reading, GENERATED), n / GENERATED
        return Moments(times * base.xx, times * base.xy, times * base.yy, times * base.error)
    c = Configuration(n, D, EPSILON, DELTA)
    found = make_rows(*records(n, D, reading), c.domain).moments()
    records.cache_clear()
    return found


def compute(task: Task) -> list[Row]:
    """Every solve at one n, from the same second moments."""
    c = Configuration(task.n, D, EPSILON, DELTA)
    data = moments(task.reading, task.n)
    nothing = Perturbation(c.center, c.center, np.zeros((D, D)))
    found = []
    for kappa in task.kappas:
        problem = c.problem(kappa)

        def add(name: str, run: int, theta: FloatArray, distance: float, kappa: float = kappa) -> None:
            value = risk_from(data, task.n, theta)
            found.append(Row(task.reading, task.n, kappa, name, run, value, distance))

        add(CONSTANT, 0, c.center, 0.0)
        exact = solve_moments(problem, data, nothing, ETA * kappa)
        add(NON_PRIVATE, 0, exact.theta, exact.distance)
        for mechanism in MECHANISMS:
            for run in range(task.runs):
                source = generator(seed_of("learning", task.n, run, kappa, mechanism.name))
                noise = mechanism.draw(c, kappa, source)
                solution = solve_moments(problem, data, noise.perturbation, ETA * kappa)
                add(mechanism.name, run, solution.theta, solution.distance)
    return found


def study(
    folder: Path, *, progress: Progress | None = None, grid: Grid | None = None, workers: int | None = None
) -> list[Row]:
    """Every number of the page, in figure2_learning.csv; what is there already is not computed again."""
    tasks = (grid or Grid()).tasks()
    table = folder / "figure2_learning.csv"
    return complete(table, Row, tasks, points, compute, progress=progress, workers=workers)


Means = dict[tuple[str, int, float, str], float]  # reading, n, κ, mechanism


def means(rows: Sequence[Row]) -> Means:
    """The risk of each mechanism, averaged over runs."""
    total: dict[tuple[str, int, float, str], list[float]] = {}
    for row in rows:
        total.setdefault((row.reading, row.n, row.kappa, row.mechanism), []).append(row.risk)
    return {key: float(np.mean(risks)) for key, risks in total.items()}


def kept(risks: Means, reading: str, n: int, kappa: float, name: str) -> float:
    """The share of the constant answer's excess risk over the non-private solution that remains."""
    best = risks[reading, n, kappa, NON_PRIVATE]
    constant = risks[reading, n, kappa, CONSTANT]
    return (risks[reading, n, kappa, name] - best) / (constant - best)


def halving(sizes: Sequence[int], shares: Sequence[float]) -> float:
    """The first n at which the share is ½, interpolated in log n; inf when there is none."""
    for (n, share), (more, less) in zip(
        zip(sizes, shares, strict=True), zip(sizes[1:], shares[1:], strict=True), strict=False
    ):
        if less <= 0.5 < share:
            t = (share - 0.5) / (share - less)
            return float(n * (more / n) ** t)
    return math.inf


_COLOURS = dict(
    zip((m.name for m in MECHANISMS), ("#9ebcda", "#0868ac", "#41ab5d", "#6a3d9a", "#c1272d"), strict=True)
)


_SHORT = {
    "norm": "‖x‖₂ = ξ",
    "maximum": "max |x_ij| = ξ",
    "columns": "max_i |x_ij| = ξ",
    "clip": "x clipped to ±ξ",
}


def draw(rows: Sequence[Row], grid: Grid, folder: Path) -> None:
    """A row of panels per reading: risk against κ at each n, then what remains of the excess against n."""
    risks = means(rows)
    columns = len(grid.sizes) + 1
    with canvas(folder, "figure2_learning", (4.0 * columns, 3.2 * len(grid.readings) + 1.2)) as figure:
        axes = figure.subplots(len(grid.readings), columns, squeeze=False)
        for row, reading in zip(axes, grid.readings, strict=True):
            for axis, n in zip(row, grid.sizes, strict=False):
                for name, colour in _COLOURS.items():
                    axis.plot(grid.kappas, [risks[reading, n, k, name] for k in grid.kappas], color=colour)
                for name, style in ((CONSTANT, "k--"), (NON_PRIVATE, "k-.")):
                    values = [risks[reading, n, k, name] for k in grid.kappas]
                    axis.plot(grid.kappas, values, style, linewidth=1.0)
                axis.set(xscale="log", yscale="log", ylim=(0.1, 2.0), xlabel="κ, half the side of the box C")
                axis.set_yticks((0.1, 0.2, 0.5, 1.0, 2.0), labels=("0.1", "0.2", "0.5", "1", "2"))
                axis.yaxis.set_minor_locator(NullLocator())
                axis.set_title(f"n = {n:,}, {_SHORT[reading]}", fontsize=9)
            row[0].set_ylabel("risk (mean over records)")
            _draw_growth(row[-1], risks, reading, grid)
        keys = [Line2D([], [], color=colour, label=name) for name, colour in _COLOURS.items()]
        keys.append(Line2D([], [], color="black", linestyle="--", label=CONSTANT))
        keys.append(Line2D([], [], color="black", linestyle="-.", label=NON_PRIVATE))
        figure.legend(handles=keys, loc="outside lower center", ncols=4, frameon=False)
        figure.suptitle(f"Enough records to learn: d = {D}, ε = {EPSILON:g}, δ = {DELTA:g}, exact solves")


def _draw_growth(axis: Any, risks: Means, reading: str, grid: Grid) -> None:
    for name, colour in _COLOURS.items():
        shares = [kept(risks, reading, n, grid.wide, name) for n in grid.growing]
        axis.plot(grid.growing, shares, color=colour)
        half = halving(grid.growing, shares)
        if math.isfinite(half):
            axis.plot([half], [0.5], "o", color=colour, markersize=4)
    axis.axhline(1.0, color="black", linestyle="--", linewidth=1.0)
    axis.axhline(0.5, color="0.5", linewidth=0.8)
    axis.set(xscale="log", ylim=(0.0, 1.3), xlabel=f"n (κ = {grid.wide:g})")
    axis.set_ylabel("share of the constant's excess risk kept")
    axis.set_title(f"leaving the constant answer, {_SHORT[reading]}", fontsize=9)


def summary(rows: Sequence[Row], grid: Grid) -> list[str]:
    """What the page shows, in numbers."""
    risks = means(rows)
    kappa = min(grid.kappas, key=lambda k: abs(math.log(k / grid.wide)))
    certified = [row for row in rows if row.mechanism != CONSTANT]
    lines = [
        "",
        "# Enough records to learn",
        "",
        f"d = {D}, ε = {EPSILON:g}, δ = {DELTA:g}; every solve certified: {len(certified):,}, the proved "
        f"distance at most {max(row.distance / row.kappa for row in certified):.1e} κ.",
        "Kept share of the constant answer's excess risk over the non-private solution at "
        f"κ = {kappa:.3g}; the n at which it is first halved (κ = {grid.wide:g}); curvature E[Q]/L.",
        "",
        "| rescaling | calibration | curvature | "
        + " | ".join(f"n = {n:,}" for n in grid.sizes)
        + " | halved at n |",
        "|---|---|---|" + "---|" * len(grid.sizes) + "---|",
    ]
    c = Configuration(GENERATED, D, EPSILON, DELTA)
    for reading in grid.readings:
        for mechanism in MECHANISMS:
            name = mechanism.name
            curvature = mechanism.curvature(c, grid.wide) / c.L
            shares = [kept(risks, reading, n, kappa, name) for n in grid.sizes]
            half = halving(grid.growing, [kept(risks, reading, n, grid.wide, name) for n in grid.growing])
            lines.append(
                f"| {reading} | {name} | {curvature:.4g} | "
                + " | ".join(f"{share:.3f}" for share in shares)
                + f" | {float(f'{half:.2g}'):,.0f} |"
            )
    lines.append("")
    for reading in grid.readings:
        for n in grid.sizes:
            ours, theirs = (kept(risks, reading, n, kappa, m.name) for m in (DIRECTIONAL, PAPER))
            lines.append(
                f"- {reading}, n = {n:,}: the excess risk is {theirs / ours:.1f} times smaller under the "
                "directional accounting than under the paper's theorem at its best split."
            )
    return lines
