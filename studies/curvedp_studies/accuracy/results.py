"""Variants on tables: one row of a CSV file for every table, ε, adjacency and variant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.rows import ArrayRows
from curvedp.mechanisms.recentered import Recentered, RecenteredPlan
from curvedp.mechanisms.rule import Rule
from curvedp.privacy.budget import Adjacency, Budget
from curvedp.randomness import generator
from curvedp_studies.accuracy.shipped import PREFIX, SHIPPED
from curvedp_studies.peers import MOST_ROWS, epsilons_of
from curvedp_studies.peers_data import Dataset, dataset_names, load_dataset
from curvedp_studies.resume import Progress, complete_in_parts, seed_of

_WIDE = 300  # columns from which eigenvectors cost more than the rounds
WIDE_SEEDS = 20
_CHUNK = 10  # seeds that are one piece of work


@dataclass(frozen=True)
class Cell:
    """Over the seeds: median score, its quartiles and its error; median error relative to θ = 0."""

    table: str
    epsilon: float
    adjacency: str
    variant: str
    seeds: int
    score: float  # R², 1 − MSE/MSE of 0 on tables of `unit`, or accuracy
    low: float
    high: float
    se: float  # standard error of the mean score
    error: float  # MSE or log-loss over that of θ = 0
    n_mu: float
    kappa: float

    @property
    def place(self) -> tuple[str, float, str]:
        return self.table, self.epsilon, self.adjacency

    @property
    def point(self) -> tuple[str, float, str, str]:
        return *self.place, self.variant


@dataclass(frozen=True)
class Task:
    """Some seeds of one variant on a table at one ε."""

    data: Path | None
    table: str
    epsilon: float
    adjacency: Adjacency
    variant: str
    rule: Rule
    seeds: range

    @property
    def point(self) -> tuple[str, float, str, str]:
        return self.table, self.epsilon, self.adjacency, self.variant


class Measured(NamedTuple):
    """Of one fit."""

    score: float
    error: float
    n_mu: float
    kappa: float


def run(
    data: Path | None,
    out: Path,
    rules: Mapping[str, Rule],
    adjacency: Adjacency,
    seeds: int,
    progress: Progress | None = None,
    *,
    tables: Sequence[str] | None = None,
    workers: int | None = None,
    seconds: float = math.inf,
) -> list[Cell]:
    """Every variant on every table; what is in `out` already is not run again."""
    tasks = [
        Task(data, name, epsilon, adjacency, variant, rule, range(seeds))
        for name in tables or table_names(data)
        for epsilon in epsilons_of(name)
        for variant, rule in rules.items()
    ]
    return complete_in_parts(
        out,
        Cell,
        tasks,
        lambda task: [task.point],
        _parts,
        measured,
        _cells,
        progress=progress,
        workers=workers,
        seconds=seconds,
    )


def table_names(data: Path | None) -> list[str]:
    """Those of the folder, and those that packages ship."""
    return [*(dataset_names(data) if data is not None else ()), *(PREFIX + name for name in SHIPPED)]


@lru_cache(maxsize=2)
def loaded(data: Path | None, name: str) -> Dataset:
    if name.startswith(PREFIX):
        own = name.removeprefix(PREFIX)
        return SHIPPED[own].dataset(own)
    return load_dataset(data or Path(), name, MOST_ROWS)


def plan_of(dataset: Dataset, epsilon: float, adjacency: Adjacency, rule: Rule) -> RecenteredPlan:
    """The library's plan, with this rule."""
    budget = Budget(epsilon, dataset.delta)
    return Recentered(rule, dataset.coding).plan(dataset.problem_under(adjacency), dataset.d, budget)


def _parts(task: Task) -> list[Task]:
    seeds = [task.seeds[start : start + _CHUNK] for start in range(0, len(task.seeds), _CHUNK)]
    return [replace(task, seeds=part) for part in seeds]


def measured(task: Task) -> list[Measured]:
    """A fit for every seed; all variants have its split, and draw the noise of their fit from one seed."""
    dataset = loaded(task.data, task.table)
    plan = plan_of(dataset, task.epsilon, task.adjacency, task.rule)
    told = []
    for seed in task.seeds:
        if dataset.d > _WIDE and seed >= WIDE_SEEDS:
            break
        train, test = dataset.split(seed)
        rows = ArrayRows(dataset.X[train], dataset.y[train], plan.problem.domain, threads=1)
        theta = plan.release(rows, generator(noise_seed(*task.point[:3], seed))).theta
        score, error = scored(dataset, dataset.X[test] @ theta, dataset.y[test])
        told.append(Measured(score, error, len(train) * plan.mu, plan.kappa(len(train))))
    return told


def noise_seed(table: str, epsilon: float, adjacency: str, seed: int) -> int:
    return seed_of("noise", table, epsilon, adjacency, seed)


def scored(dataset: Dataset, margins: FloatArray, y: FloatArray) -> tuple[float, float]:
    """(score, error relative to θ = 0)."""
    zero = np.zeros_like(margins)
    if dataset.kind == "regression":
        error = float(np.mean((np.clip(margins[:, 0], -1.0, 1.0) - y) ** 2) / np.mean(y**2))
    else:
        error = dataset.log_loss(margins, y) / dataset.log_loss(zero, y)
    return dataset.score(margins, y), error


def _cells(task: Task, parts: Sequence[Sequence[Measured]]) -> list[Cell]:
    score, error, n_mu, kappa = np.array([fit for part in parts for fit in part]).T
    low, middle, high = np.quantile(score, (0.25, 0.5, 0.75))
    numbers = (middle, low, high, score.std() / math.sqrt(len(score)), *map(np.median, (error, n_mu, kappa)))
    return [Cell(*task.point, len(score), *(float(f"{number:.6g}") for number in numbers))]
