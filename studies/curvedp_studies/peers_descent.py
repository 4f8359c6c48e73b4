"""Noisy gradient descent with everything about it tuned on the TEST score: the strongest opponent.

Step × clip × rounds × momentum × (last iterate or mean of the last half), chosen for every table and ε by the
median score on the very test rows that are reported (`descent_claimed`); then the chosen configuration again,
with fresh noise (`descent`): the first is the larger by luck alone. `descent_plain` is the best without
momentum and averaging.

All configurations and seeds are columns of one matrix: a round is two matrix products. The file needs torch
and numpy and nothing else of the library, so that it runs as a script on a machine that has only those,

    python peers_descent.py PREPARED OUT.csv [--device cuda]

where PREPARED is a folder of .npz files that `curvedp_studies.peers_export` wrote.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.floating[Any]]

CLIPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # in units of B
STEPS = (0.03, 0.1, 0.3, 0.6, 1.0, 2.0, 5.0, 20.0)  # in units of 1/(βn)
MOMENTA = (0.0, 0.9)
ROUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CURVATURE = {"regression": 1.0, "binary": 0.25, "multiclass": 0.5}
ADJACENCIES = ("add_remove", "replace")
PLAIN, CLAIMED, FRESH = "descent_plain", "descent_claimed", "descent"
COLUMNS = (
    "dataset",
    "mechanism",
    "adjacency",
    "epsilon",
    "seed",
    "score",
    "auc",
    "log_loss",
    "n_mu",
    "kappa",
    "detail",
)


@dataclass(frozen=True, eq=False)
class Table:
    """One dataset as plain arrays: mapped records, targets, and for every seed which rows are test rows.

    A score of numbers is 1 − MSE/MSE of a constant: the test rows' mean (R²), or zero where `from_zero`.
    """

    name: str
    kind: str
    X: Floats
    y: Floats
    test: NDArray[np.bool_]  # (seeds, n)
    x_norm: float
    n_classes: int
    from_zero: bool = False

    @classmethod
    def read(cls, path: Path) -> Table:
        with np.load(path, allow_pickle=False) as z:
            test = np.unpackbits(z["test"], axis=1, count=len(z["y"])).astype(bool)
            return cls(
                str(z["name"]),
                str(z["kind"]),
                z["X"],
                z["y"],
                test,
                float(z["x_norm"]),
                int(z["n_classes"]),
                bool(z["from_zero"]),
            )

    def write(self, folder: Path, epsilons: Sequence[float], shifts: Sequence[float]) -> Path:
        """Beside the arrays, the Gaussian shift μ that each ε allows: nothing is calibrated elsewhere."""
        path = folder / f"{self.name.replace('/', '-')}.npz"
        np.savez_compressed(
            path,
            name=np.array(self.name),
            X=self.X.astype(np.float32),
            y=self.y.astype(np.float32),
            test=np.packbits(self.test, axis=1),
            kind=np.array(self.kind),
            x_norm=np.array(self.x_norm),
            n_classes=np.array(self.n_classes),
            from_zero=np.array(self.from_zero),
            epsilons=np.array(epsilons),
            shifts=np.array(shifts),
        )
        return path

    @property
    def outputs(self) -> int:
        return self.n_classes if self.kind == "multiclass" else 1


class Configuration(NamedTuple):
    """One way to descend, but for the number of rounds."""

    clip: float
    step: float
    momentum: float


def grid_of(
    table: Table,
    clips: Sequence[float] = CLIPS,
    steps: Sequence[float] = STEPS,
    momenta: Sequence[float] = MOMENTA,
) -> list[Configuration]:
    """All combinations, in the units of the table."""
    beta = CURVATURE[table.kind]
    return [Configuration(c * table.x_norm, s / beta, m) for c in clips for s in steps for m in momenta]


class Iterates(NamedTuple):
    """θ of every column, shape (d, seeds, configurations, K)."""

    last: Tensor
    mean: Tensor  # of the last half


class Descent:
    """Gradient descent of all configurations and seeds of one table at once."""

    def __init__(
        self, table: Table, grid: Sequence[Configuration], device: str, random: torch.Generator, cells: int
    ) -> None:
        self.table, self.random, self.device = table, random, torch.device(device)
        self.X, self.y = self.put(table.X), self.put(table.y)
        self.train = self.put(~table.test.T)
        self.norms = self.put(np.maximum(np.linalg.norm(table.X, axis=1), 1e-12))
        self.clips = self.put([c.clip for c in grid])
        self.momenta = self.put([c.momentum for c in grid])[None, :, None]
        counts = (~table.test).sum(axis=1)
        steps = np.array([c.step for c in grid]) / counts[:, None]
        self.step = self.put(steps)[:, :, None]  # (seeds, configurations, 1)
        labels = table.y.astype(int) if table.outputs > 1 else np.zeros(0, dtype=int)
        self.classes = self.put(np.eye(table.n_classes)[labels])
        self.shape = (len(table.test), len(grid), table.outputs)
        self.chunk = max(64, cells // math.prod(self.shape))

    def put(self, values: Any) -> Tensor:
        return torch.as_tensor(np.asarray(values, dtype=np.float32), device=self.device)

    def blocks(self) -> Iterable[slice]:
        n = len(self.table.y)
        return (slice(start, min(start + self.chunk, n)) for start in range(0, n, self.chunk))

    def margins(self, theta: Tensor, rows: slice) -> Tensor:
        X = self.X[rows]
        return (X @ theta.reshape(len(theta), -1)).reshape(len(X), *self.shape)

    def clipped_slopes(self, margins: Tensor, rows: slice) -> Tensor:
        """φ'(margins)·min(1, clip/(‖x‖‖φ'‖)), shape (rows, seeds, configurations, K); consumes `margins`."""
        most = (self.clips / self.norms[rows][:, None])[:, None, :, None]  # of ‖φ'‖
        if self.table.outputs == 1:
            y = self.y[rows][:, None, None, None]
            if self.table.kind == "regression":
                slopes = margins.sub_(y)
            else:
                slopes = margins.mul_(-y).sigmoid_().mul_(-y)
            return slopes.clamp_(min=-most, max=most)
        slopes = torch.softmax(margins, -1).sub_(self.classes[rows][:, None, None, :])
        sizes = slopes.norm(dim=-1, keepdim=True)
        return slopes.mul_(most / torch.maximum(sizes, most))

    def gradient(self, theta: Tensor) -> Tensor:
        """Σ over training rows of clipped gradients, for every column."""
        total = torch.zeros_like(theta)
        for rows in self.blocks():
            slopes = self.clipped_slopes(self.margins(theta, rows), rows)
            slopes.mul_(self.train[rows][:, :, None, None])
            total += (self.X[rows].T @ slopes.reshape(len(slopes), -1)).reshape(total.shape)
        return total

    def noise(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.random, device=self.device)

    def run(self, rounds: int, mu: float) -> Iterates:
        """v ← mv + Σ clip(∇ℓ) + N(0, σ²I), θ ← θ − (step/n)v; σ = clip·√rounds/μ: μ in all."""
        theta = torch.zeros((self.X.shape[1], *self.shape), device=self.device)
        velocity, mean = torch.zeros_like(theta), torch.zeros_like(theta)
        scale = self.clips[None, :, None] * (math.sqrt(rounds) / mu)
        averaged = max(1, rounds // 2)
        for t in range(rounds):
            noisy = self.gradient(theta).add_(self.noise(tuple(theta.shape)).mul_(scale))
            velocity.mul_(self.momenta).add_(noisy)
            theta -= self.step * velocity
            if t >= rounds - averaged:
                mean += theta / averaged
        return Iterates(theta, mean)

    def scores(self, theta: Tensor) -> Floats:
        """Test scores, shape (seeds, configurations); −∞ where the descent diverged."""
        total = torch.zeros(self.shape[:2], device=self.device)
        for rows in self.blocks():
            margins = self.margins(theta, rows)
            test = (1.0 - self.train[rows])[:, :, None]
            y = self.y[rows][:, None, None]
            if self.table.kind == "regression":
                part = margins[..., 0].clamp_(-1.0, 1.0).sub_(y).square_()
            elif self.table.kind == "binary":
                part = (torch.sign(margins[..., 0]) == y).float()
            else:
                part = (margins.argmax(-1) == y).float()
            total += (part * test).sum(0)
        sums = total.cpu().numpy().astype(np.float64)
        tests = self.table.test
        if self.table.kind == "regression":
            found = 1.0 - sums / constant_error(self.table)[:, None]
        else:
            found = sums / tests.sum(axis=1)[:, None]
        diverged = ~torch.isfinite(theta).all(dim=-1).all(dim=0).cpu().numpy()
        return np.where(diverged | ~np.isfinite(found), -np.inf, found)


def constant_error(table: Table) -> Floats:
    """Σ (y − c)² over the test rows of every seed: c is their mean, or zero."""
    y = table.y.astype(np.float64)
    return np.array([np.sum((y[t] - (0.0 if table.from_zero else y[t].mean())) ** 2) for t in table.test])


@dataclass(frozen=True, eq=False)
class Found:
    """A configuration and what it scored, seed by seed."""

    configuration: Configuration
    rounds: int
    averaged: bool
    scores: Floats
    theta: Floats  # (d, seeds, K)

    @property
    def median(self) -> float:
        return float(np.median(self.scores))

    @property
    def detail(self) -> str:
        clip, step, momentum = self.configuration
        end = "mean of the last half" if self.averaged else "last iterate"
        return f"rounds={self.rounds} clip={clip:.4g} step={step:.4g} momentum={momentum:g} {end}"


@dataclass(frozen=True, eq=False)
class Tuned:
    """The best configurations on the test score, and the best of all with fresh noise."""

    plain: Found
    claimed: Found
    fresh: Found


def tuned(
    table: Table,
    mu: float,
    random: torch.Generator,
    *,
    device: str = "cpu",
    cells: int = 2**22,
    rounds: Sequence[int] = ROUNDS,
    grid: Sequence[Configuration] | None = None,
) -> Tuned:
    """The configuration with the best median TEST score over the seeds, then its rerun."""
    grid = grid_of(table) if grid is None else grid
    descent = Descent(table, grid, device, random, cells)
    still = np.array([c.momentum == 0.0 for c in grid])
    best: dict[str, Found] = {}
    for T in rounds:
        iterates = descent.run(T, mu)
        for averaged, theta in enumerate(iterates):
            scores = descent.scores(theta)
            medians = np.median(scores, axis=0)
            for name, allowed in ((CLAIMED, np.full(len(grid), True)), (PLAIN, still & (not averaged))):
                at = int(np.argmax(np.where(allowed, medians, -np.inf)))
                if allowed[at] and (name not in best or medians[at] > best[name].median):
                    kept = theta[:, :, at, :].cpu().numpy()
                    best[name] = Found(grid[at], T, bool(averaged), scores[:, at], kept)
    return Tuned(best[PLAIN], best[CLAIMED], rerun(table, best[CLAIMED], mu, random, device, cells))


def rerun(table: Table, chosen: Found, mu: float, random: torch.Generator, device: str, cells: int) -> Found:
    """The chosen configuration with noise that had no part in choosing it."""
    descent = Descent(table, [chosen.configuration], device, random, cells)
    theta = descent.run(chosen.rounds, mu)[int(chosen.averaged)]
    kept = theta[:, :, 0, :].cpu().numpy()
    return Found(chosen.configuration, chosen.rounds, chosen.averaged, descent.scores(theta)[:, 0], kept)


def area_under_curve(margins: Floats, positive: NDArray[np.bool_]) -> float:
    """P(margin of a positive > margin of a negative), ties half; NaN where one kind is missing."""
    _, position, counts = np.unique(margins, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - 0.5 * (counts - 1))[position]
    p, q = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - p * (p + 1) / 2) / (p * q)) if p and q else math.nan


def log_loss(margins: Floats, y: Floats) -> float:
    """Mean of −log p(y): p = σ(y·margin) for one column of margins and y = ±1, else softmax."""
    margins = np.asarray(margins, dtype=np.float64)
    if margins.shape[1] == 1:
        return float(np.mean(np.logaddexp(0.0, -y * margins[:, 0])))
    top = margins.max(axis=1)
    total = top + np.log(np.exp(margins - top[:, None]).sum(axis=1))
    return float(np.mean(total - margins[np.arange(len(y)), y.astype(int)]))


def score_rows(
    table: Table, found: Tuned, adjacency: str, epsilon: float, mu: float
) -> Iterator[tuple[str, str, str, float, int, float, float, float, float, float, str]]:
    """What `compare` keeps of every seed, in the order of COLUMNS."""
    named = ((PLAIN, found.plain), (CLAIMED, found.claimed), (FRESH, found.fresh))
    unknowns = table.X.shape[1] * (table.n_classes - 1 if table.kind == "multiclass" else 1)
    for name, part in named:
        for seed, test in enumerate(table.test):
            auc = loss = math.nan
            if table.kind != "regression":
                margins, y = table.X[test] @ part.theta[:, seed], table.y[test]
                loss = log_loss(margins, y)
                if table.kind == "binary":
                    auc = area_under_curve(margins[:, 0], y > 0)
            n_mu, score = float((~test).sum()) * mu, float(part.scores[seed])
            cell = (table.name, name, adjacency, epsilon, seed)
            yield *cell, score, auc, loss, n_mu, n_mu / unknowns, part.detail


def shift_of(mu: float, adjacency: str) -> float:
    """Of one record's clipped gradient: a replaced one moves the sum twice as far."""
    return mu if adjacency == "add_remove" else mu / 2.0


def generator_of(table: str, adjacency: str, epsilon: float, device: str) -> torch.Generator:
    """Seeded by the cell alone."""
    seed = zlib.crc32(f"{table} {adjacency} {epsilon:g}".encode())
    return torch.Generator(device=torch.device(device)).manual_seed(seed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Every prepared table at every ε, appended to a CSV file; finished cells are not computed again."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cells", type=int, default=2**28, help="numbers in memory per block of rows")
    parser.add_argument("--rounds", type=int, default=max(ROUNDS), help="leave longer descents out")
    options = parser.parse_args(arguments)
    finished: set[tuple[str, str, float]] = set()
    if options.out.exists():
        with options.out.open(newline="") as file:
            rows = csv.DictReader(file)
            finished = {(row["dataset"], row["adjacency"], float(row["epsilon"])) for row in rows}
    rounds = [T for T in ROUNDS if options.rounds >= T]
    fresh = not options.out.exists()
    with options.out.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        for path in sorted(options.prepared.glob("*.npz"), key=lambda path: path.stat().st_size):
            table = Table.read(path)
            with np.load(path) as z:
                levels = list(zip(z["epsilons"].tolist(), z["shifts"].tolist(), strict=True))
            for adjacency, (epsilon, mu) in itertools.product(ADJACENCIES, levels):
                if (table.name, adjacency, epsilon) in finished:
                    continue
                random = generator_of(table.name, adjacency, epsilon, options.device)
                shift = shift_of(mu, adjacency)
                found = tuned(table, shift, random, device=options.device, cells=options.cells, rounds=rounds)
                writer.writerows(score_rows(table, found, adjacency, epsilon, mu))
                file.flush()
                medians = " ".join(f"{f.median:.4f}" for f in (found.plain, found.claimed, found.fresh))
                print(
                    f"{table.name} {adjacency} ε={epsilon:g}: {medians} ({found.claimed.detail})", flush=True
                )


if __name__ == "__main__":
    main()
