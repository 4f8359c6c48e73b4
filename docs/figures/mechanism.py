"""The pictures of docs/explanation/mechanism.md, from the library's own code.

    python docs/figures/mechanism.py

What a release keeps to itself (curvature, centres, gradients) is shown here for a public table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from curvedp import Budget, Domain, Problem, private_fit
from curvedp.cli.workflow import _tables
from curvedp.mechanisms import Recentered, recentered
from curvedp.mechanisms.base import gram_scale
from curvedp.mechanisms.walk import Rounds
from curvedp.problems.losses import Squared

FOLDER = Path(__file__).parent
BLUE, ORANGE, GREY, RED = "#0a7d91", "#e07b00", "#6b7280", "#c2185b"
PROBLEM = Problem(Squared(), domain=Domain(x_norm=1.0, y_bound=1.0, adjacency="add_remove"))
N = 2_000

plt.rcParams.update(
    {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "savefig.dpi": 150}
)


def records() -> tuple[np.ndarray, np.ndarray]:
    """Age and earnings two years before, onto [−1, 1]/√2; earnings onto [−1, 1]."""
    train, _ = _tables()
    age = (np.array(train["age"][:N], float) - 40.5) / 24.5
    before = np.array(train["re75"][:N], float) / 15_000 - 1
    X = np.clip(np.column_stack([age, before]), -1, 1) / np.sqrt(2)
    return X, np.clip(np.array(train["re78"][:N], float) / 15_000 - 1, -1, 1)


class Watched:
    """One release, with what happens inside it: the geometry, the clips and the rounds."""

    def __init__(self, X: np.ndarray, y: np.ndarray, epsilon: float, seed: int) -> None:
        self.walks: list[list[Any]] = []
        self.clips: list[float] = []
        self.geometry: Any = None
        walk, started = Rounds.walk, recentered.started

        def watched(rounds: Rounds, theta: Any, clip: Any, *rest: Any) -> Iterator[Any]:
            self.walks.append([])
            self.clips.append(clip.size)
            for step in walk(rounds, theta, clip, *rest):
                self.walks[-1].append(step)
                yield step

        def begun(plan: Any, rows: Any, noise: Any, geometry: Any, *rest: Any, **more: Any) -> Rounds:
            self.geometry = geometry
            return started(plan, rows, noise, geometry, *rest, **more)

        Rounds.walk, recentered.started = watched, begun  # type: ignore[method-assign]
        try:
            self.theta = private_fit(
                PROBLEM, X, y, budget=Budget(epsilon, 1e-6), mechanism=Recentered(), random_state=seed
            ).value.theta[:, 0]
        finally:
            Rounds.walk, recentered.started = walk, started  # type: ignore[method-assign]


def exact(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.linalg.solve(X.T @ X, X.T @ y)


def ellipse(H: np.ndarray, centre: np.ndarray, size: float = 1.0) -> np.ndarray:
    """Points u with (u − centre)ᵀ H (u − centre) = size²."""
    angles = np.linspace(0, 2 * np.pi, 200)
    root = np.linalg.cholesky(np.linalg.inv(H))
    return centre[:, None] + size * (root @ np.stack([np.cos(angles), np.sin(angles)]))


def valley(axes: Axes, X: np.ndarray, y: np.ndarray) -> None:
    """Level curves of the objective, and its lowest point."""
    best, H = exact(X, y), X.T @ X
    for size in (2, 4, 7, 11, 16, 22):
        axes.plot(*ellipse(H, best, size), color=GREY, lw=0.8, alpha=0.7)
    axes.plot(*best, "+", color="black", ms=11, mew=2)
    axes.set(xlabel="coefficient of age", ylabel="coefficient of earlier earnings")
    axes.set(xlim=(-1.1, 1.1), ylim=(-0.35, 1.75))


def saved(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(FOLDER / f"mechanism-{name}.png")
    plt.close(figure)
    print(name, flush=True)


def problem(X: np.ndarray, y: np.ndarray) -> None:
    figure, axes = plt.subplots(figsize=(5.6, 4))
    valley(axes, X, y)
    axes.annotate("the lowest point", exact(X, y), (12, 12), textcoords="offset points")
    saved(figure, "1-objective")


def curvature(X: np.ndarray, y: np.ndarray) -> None:
    H = X.T @ X
    plan = Recentered().plan(PROBLEM, 2, Budget(1.0, 1e-6))
    scale = gram_scale(PROBLEM.domain.x_norm**2, plan.shifts.curvature, PROBLEM.domain.neighbours)
    figure, axes = plt.subplots(figsize=(5.6, 4))
    random = np.random.default_rng(1)
    for _ in range(25):
        noise = scale * random.standard_normal((2, 2))
        axes.plot(*ellipse(H + (noise + noise.T) / 2.0, np.zeros(2)), color=BLUE, lw=0.8, alpha=0.5)
    axes.plot(*ellipse(H, np.zeros(2)), color="black", lw=2)
    axes.plot([], [], color="black", lw=2, label="of the records")
    axes.plot([], [], color=BLUE, label="released: 25 draws of the noise")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), frameon=False)
    axes.set(xlabel="age", ylabel="earlier earnings", aspect="equal", xticks=[], yticks=[])
    saved(figure, "2-curvature")


def clipping(X: np.ndarray, y: np.ndarray, run: Watched) -> None:
    A, clip = run.geometry.metric, run.clips[0]
    gradients = (-(y[:, None]) * X) @ A.T
    gradients = gradients[np.random.default_rng(2).permutation(len(gradients))[:500]]
    lengths = np.linalg.norm(gradients, axis=1)
    kept = gradients * np.minimum(1.0, clip / lengths)[:, None]
    figure, axes = plt.subplots(figsize=(5.6, 4.4))
    for raw, short in zip(gradients, kept, strict=True):
        axes.plot(*np.stack([short, raw]).T, color=GREY, lw=0.4, alpha=0.5)
    axes.plot(*gradients.T, ".", color=GREY, ms=3, label="what 500 people say")
    axes.plot(*kept.T, ".", color=BLUE, ms=4, label="what counts of it")
    angles = np.linspace(0, 2 * np.pi, 200)
    axes.plot(clip * np.cos(angles), clip * np.sin(angles), color=ORANGE, lw=2, label="the clip")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), frameon=False, ncols=3, markerscale=2)
    axes.set(aspect="equal", xticks=[], yticks=[])
    saved(figure, "3-clip")


def rounds(X: np.ndarray, y: np.ndarray, run: Watched) -> None:
    figure, axes = plt.subplots(figsize=(5.6, 4))
    valley(axes, X, y)
    for steps, colour, name in zip(run.walks, (ORANGE, BLUE), ("first rounds", "later rounds"), strict=True):
        points = np.array([steps[0].centre[:, 0], *(step.moved[:, 0] for step in steps)])
        axes.plot(*points.T, "o-", color=colour, ms=3, lw=1.2, label=f"{len(steps)} {name}")
    axes.plot(*run.theta, "*", color=RED, ms=14, label="released")
    axes.legend(loc="lower right", framealpha=1, edgecolor="white")
    saved(figure, "4-rounds")


def clouds(X: np.ndarray, y: np.ndarray) -> None:
    figure, panels = plt.subplots(1, 3, figsize=(8, 3.4), sharex=True, sharey=True)
    for axes, epsilon in zip(panels, (0.1, 0.3, 1.0), strict=True):
        valley(axes, X, y)
        cloud = np.array([Watched(X, y, epsilon, seed).theta for seed in range(120)])
        axes.plot(*cloud.T, "*", color=RED, ms=5, alpha=0.5)
        axes.plot(*exact(X, y), "+", color="black", ms=11, mew=2)
        axes.set_title(f"ε = {epsilon:g}")
    for axes in panels[1:]:
        axes.set_ylabel("")
    saved(figure, "5-releases")


if __name__ == "__main__":
    X, y = records()
    problem(X, y)
    curvature(X, y)
    run = Watched(X, y, 1.0, 4)
    clipping(X, y, run)
    rounds(X, y, run)
    clouds(X, y)
