"""Noisy gradient descent with step, clip and rounds tuned on the TEST score: the most generous of the peers.

Every configuration and every seed is one column of one matrix, so that a round is two matrix products: numpy,
or torch on a GPU. This file needs nothing else of the library: run it as a script on a machine with torch,

    python peers_gradient.py PREPARED OUT.csv [--device cuda]

where PREPARED is a folder of .npz files that `prepare` of curvedp_studies.peers wrote.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

CLIPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # in units of B
STEPS = (0.03, 0.1, 0.3, 0.6, 1.0, 2.0, 5.0, 20.0)  # in units of 1/β
ROUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CURVATURE = {"regression": 1.0, "binary": 0.25, "multiclass": 0.5}
COLUMNS = ("dataset", "mechanism", "epsilon", "seed", "score", "auc", "detail")


@dataclass(frozen=True, eq=False)
class Table:
    """One dataset as plain arrays: mapped records, targets, and for every seed which rows are test rows."""

    name: str
    kind: str
    X: Floats
    y: Floats
    test: NDArray[np.bool_]  # (seeds, n)
    x_norm: float
    n_classes: int

    @classmethod
    def read(cls, path: Path) -> Table:
        with np.load(path, allow_pickle=False) as z:
            test = np.unpackbits(z["test"], axis=1, count=len(z["y"])).astype(bool)
            return cls(
                path.stem, str(z["kind"]), z["X"], z["y"], test, float(z["x_norm"]), int(z["n_classes"])
            )

    def write(self, folder: Path, epsilons: Sequence[float], shifts: Sequence[float]) -> Path:
        path = folder / f"{self.name}.npz"
        np.savez_compressed(
            path,
            X=self.X.astype(np.float32),
            y=self.y.astype(np.float32),
            test=np.packbits(self.test, axis=1),
            kind=np.array(self.kind),
            x_norm=np.array(self.x_norm),
            n_classes=np.array(self.n_classes),
            epsilons=np.array(epsilons),
            shifts=np.array(shifts),
        )
        return path

    @property
    def outputs(self) -> int:
        return self.n_classes if self.kind == "multiclass" else 1


@dataclass(frozen=True, eq=False)
class Grid:
    """All pairs (clip, step), flattened."""

    clips: Floats
    steps: Floats

    @classmethod
    def of(cls, table: Table, clips: Sequence[float] = CLIPS, steps: Sequence[float] = STEPS) -> Grid:
        c, s = np.meshgrid(
            np.array(clips) * table.x_norm, np.array(steps) / CURVATURE[table.kind], indexing="ij"
        )
        return cls(c.ravel(), s.ravel())


@dataclass(frozen=True, eq=False)
class Best:
    """The winning configuration at one ε and its score for every seed."""

    scores: Floats
    aucs: Floats
    rounds: int
    clip: float
    step: float

    @property
    def detail(self) -> str:
        return f"rounds={self.rounds} clip={self.clip:.4g} step={self.step:.4g}"


class Backend(Protocol):
    """Where arrays live: numpy, or torch on some device."""

    xp: Any

    def put(self, values: NDArray[Any]) -> Any: ...

    def zeros(self, shape: tuple[int, ...]) -> Any: ...

    def normal(self, shape: tuple[int, ...]) -> Any: ...

    def get(self, values: Any) -> Floats: ...


class NumpyBackend:
    """float32 arrays in memory; noise from the generator."""

    xp: Any = np

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def put(self, values: NDArray[Any]) -> Any:
        return np.asarray(values, dtype=np.float32)

    def zeros(self, shape: tuple[int, ...]) -> Any:
        return np.zeros(shape, dtype=np.float32)

    def normal(self, shape: tuple[int, ...]) -> Any:
        return self._random.standard_normal(shape, dtype=np.float32)

    def get(self, values: Any) -> Floats:
        return np.asarray(values)


class TorchBackend:
    """float32 tensors on a device; noise from a seeded torch generator."""

    def __init__(self, device: str, seed: int) -> None:
        import torch

        self.xp: Any = torch
        self._device = torch.device(device)
        self._random = torch.Generator(device=self._device).manual_seed(seed)

    def put(self, values: NDArray[Any]) -> Any:
        return self.xp.as_tensor(np.asarray(values, dtype=np.float32), device=self._device)

    def zeros(self, shape: tuple[int, ...]) -> Any:
        return self.xp.zeros(shape, device=self._device)

    def normal(self, shape: tuple[int, ...]) -> Any:
        return self.xp.randn(shape, generator=self._random, device=self._device)

    def get(self, values: Any) -> Floats:
        return np.asarray(values.cpu().numpy())


class Descent:
    """Gradient descent of all configurations and seeds of one table at once."""

    def __init__(self, table: Table, grid: Grid, backend: Backend, cells: int) -> None:
        self.table, self.grid, self.backend = table, grid, backend
        self.X, self.y = backend.put(table.X), backend.put(table.y)
        self.train = backend.put(~table.test.T)
        self.norms = backend.put(np.maximum(np.linalg.norm(table.X, axis=1), 1e-12))
        self.clips = backend.put(grid.clips)
        counts = (~table.test).sum(axis=1)
        self.step = backend.put(grid.steps / counts[:, None])[:, :, None]  # (seeds, configurations, 1)
        labels = table.y.astype(int) if table.outputs > 1 else np.zeros(0, dtype=int)
        self.classes = backend.put(np.eye(table.n_classes)[labels])
        self.shape = (len(table.test), len(grid.clips), table.outputs)
        self.chunk = max(64, cells // int(np.prod(self.shape)))

    def blocks(self) -> Iterable[slice]:
        n = len(self.table.y)
        return (slice(start, min(start + self.chunk, n)) for start in range(0, n, self.chunk))

    def margins(self, theta: Any, rows: slice) -> Any:
        X = self.X[rows]
        return (X @ theta).reshape(len(X), *self.shape)

    def slopes(self, margins: Any, rows: slice) -> Any:
        """φ'(margins), shape (rows, seeds, configurations, K)."""
        xp, y = self.backend.xp, self.y[rows][:, None, None, None]
        if self.table.kind == "regression":
            return margins - y
        if self.table.kind == "binary":
            return -y / (1.0 + xp.exp(xp.clip(y * margins, -40.0, 40.0)))
        weights = xp.exp(margins - xp.amax(margins, -1)[..., None])
        return weights / weights.sum(-1)[..., None] - self.classes[rows][:, None, None, :]

    def gradient(self, theta: Any) -> Any:
        """Σ over training rows of clipped gradients, for every column."""
        total = 0.0
        for rows in self.blocks():
            slopes = self.slopes(self.margins(theta, rows), rows)
            size = self.norms[rows][:, None, None] * (slopes * slopes).sum(-1) ** 0.5
            factor = self.clips / self.backend.xp.maximum(size, self.clips[None, None, :])
            slopes = slopes * (factor * self.train[rows][:, :, None])[..., None]
            total = total + self.X[rows].T @ slopes.reshape(len(slopes), -1)
        return total

    def run(self, rounds: int, mu: float) -> Any:
        """θ of every column after `rounds` rounds of total shift μ: σ = clip·√rounds/μ (add_remove)."""
        theta = self.backend.zeros((self.X.shape[1], *self.shape))
        scale = self.clips[None, :, None] * (rounds**0.5 / mu)
        for _ in range(rounds):
            gradient = self.gradient(theta.reshape(len(theta), -1)).reshape(theta.shape)
            noise = self.backend.normal(tuple(theta.shape)) * scale
            theta = theta - (gradient + noise) * self.step
        return theta

    def scores(self, theta: Any) -> Floats:
        """Test scores, shape (seeds, configurations)."""
        xp, kind = self.backend.xp, self.table.kind
        total = 0.0
        for rows in self.blocks():
            margins = self.margins(theta.reshape(len(theta), -1), rows)
            test = (1.0 - self.train[rows])[:, :, None]
            y = self.y[rows][:, None, None]
            if kind == "regression":
                part = (xp.clip(margins[..., 0], -1.0, 1.0) - y) ** 2
            elif kind == "binary":
                part = 1.0 * (xp.sign(margins[..., 0]) == y)
            else:
                part = 1.0 * (xp.argmax(margins, -1) == y)
            total = total + (part * test).sum(0)
        sums = np.nan_to_num(self.backend.get(total).astype(np.float64), nan=np.inf)
        tests = self.table.test
        if kind != "regression":
            return np.asarray(np.where(np.isfinite(sums), sums, 0.0) / tests.sum(axis=1)[:, None])
        spread = np.array([np.sum((self.table.y[t] - self.table.y[t].mean()) ** 2) for t in tests])
        return np.asarray(1.0 - sums / spread[:, None])


def tuned(table: Table, mu: float, backend: Backend, *, cells: int, rounds: Sequence[int] = ROUNDS) -> Best:
    """The configuration with the best median TEST score over the seeds, and its scores."""
    grid = Grid.of(table)
    descent = Descent(table, grid, backend, cells)
    best: Best | None = None
    for T in rounds:
        theta = descent.run(T, mu)
        scores = descent.scores(theta)
        at = int(np.argmax(np.median(scores, axis=0)))
        if best is None or np.median(scores[:, at]) > np.median(best.scores):
            aucs = _aucs(table, backend.get(theta[:, :, at, 0]))
            best = Best(scores[:, at], aucs, T, float(grid.clips[at]), float(grid.steps[at]))
    assert best is not None
    return best


def _aucs(table: Table, theta: Floats) -> Floats:
    """Area under the curve of every seed's θ, shape (d, seeds), on its test rows; NaN unless binary."""
    if table.kind != "binary":
        return np.full(len(table.test), np.nan)
    parts = zip(theta.T, table.test, strict=True)
    return np.array([area_under_curve(table.X[test] @ of, table.y[test] > 0) for of, test in parts])


def area_under_curve(margins: Floats, positive: NDArray[np.bool_]) -> float:
    """P(margin of a positive > margin of a negative), ties half; NaN where one kind is missing.

    By hand, since this file stands by itself on a machine that may have numpy and torch only.
    """
    _, position, counts = np.unique(margins, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - 0.5 * (counts - 1))[position]
    p, q = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - p * (p + 1) / 2) / (p * q)) if p and q else float("nan")


def backend_on(device: str, seed: int) -> Backend:
    """ "numpy", or a device of torch such as "cuda"."""
    if device != "numpy":
        return TorchBackend(device, seed)
    from curvedp.randomness import generator  # here alone: on another machine this file stands by itself

    return NumpyBackend(generator(seed))


def main(arguments: Sequence[str] | None = None) -> None:
    """Every prepared table at every ε, appended to a CSV file; finished cells are not computed again."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda", help="numpy, or a device of torch")
    parser.add_argument("--cells", type=int, default=2**28, help="numbers in memory per block of rows")
    options = parser.parse_args(arguments)
    finished: set[tuple[str, float]] = set()
    if options.out.exists():
        with options.out.open(newline="") as file:
            finished = {(row["dataset"], float(row["epsilon"])) for row in csv.DictReader(file)}
    fresh = not options.out.exists()
    with options.out.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        for path in sorted(options.prepared.glob("*.npz")):
            table = Table.read(path)
            with np.load(path) as z:
                levels = list(zip(z["epsilons"].tolist(), z["shifts"].tolist(), strict=True))
            for index, (epsilon, mu) in enumerate(levels):
                if (table.name, epsilon) in finished:
                    continue
                best = tuned(table, mu, backend_on(options.device, index), cells=options.cells)
                for seed, (score, auc) in enumerate(zip(best.scores, best.aucs, strict=True)):
                    writer.writerow([table.name, "gradient_tuned", epsilon, seed, score, auc, best.detail])
                file.flush()
                print(f"{table.name} ε={epsilon:g}: {np.median(best.scores):.4f} ({best.detail})", flush=True)


if __name__ == "__main__":
    main()
