"""Variants on tables: one row of a CSV file for every table, ε, adjacency and variant."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from curvedp.mechanisms.rule import Rule
from curvedp.neighbours import Adjacency, Neighbours
from curvedp_studies.accuracy.calibration import FILE, Calibrations
from curvedp_studies.accuracy.losses import TorchLoss
from curvedp_studies.accuracy.metric import Metric, released_metric
from curvedp_studies.accuracy.setting import Records, Setting
from curvedp_studies.accuracy.simulator import Released, walked
from curvedp_studies.coverage.draws import Tensor
from curvedp_studies.coverage.rows import append_rows, read_rows
from curvedp_studies.peers_descent import Table

_ELEMENTS = {"cpu": 2e7, "cuda": 2e8}  # of the largest tensor
_WIDE = 300  # columns from which eigenvectors cost more than the rounds
WIDE_SEEDS = 20
Tell = Callable[[str, float], None]


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
    def point(self) -> tuple[str, float, str]:
        return (self.table, self.epsilon, self.adjacency)


def run(
    folder: Path,
    out: Path,
    rules: Mapping[str, Rule],
    adjacency: Adjacency,
    seeds: int,
    tell: Tell,
    *,
    device: str = "cpu",
    tables: list[str] | None = None,
    seconds: float = math.inf,
) -> None:
    """Every table of the folder, small ones first; finished tables are not run again."""
    started, plans = time.monotonic(), Calibrations.load(folder / FILE)
    done = {(cell.table, cell.adjacency, cell.variant) for cell in read_rows(out, Cell)}
    for path in sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_size):
        table = Table.read(path)
        missing = {name: rule for name, rule in rules.items() if (table.name, adjacency, name) not in done}
        if (tables and table.name not in tables) or not missing or time.monotonic() - started > seconds:
            continue
        begun = time.monotonic()
        append_rows(out, list(cells(table, plans, missing, adjacency, seeds, device)))
        tell(table.name, time.monotonic() - begun)


def cells(
    table: Table,
    plans: Calibrations,
    rules: Mapping[str, Rule],
    adjacency: Adjacency,
    seeds: int,
    device: str = "cpu",
) -> Iterator[Cell]:
    """All variants on one table."""
    epsilons = plans.epsilons(table.name, adjacency)
    used = min(seeds, len(table.test), WIDE_SEEDS if table.X.shape[1] > _WIDE else seeds)
    runs = Runs(table, plans, adjacency, epsilons, device)
    batch = max(int(_ELEMENTS[device] / (len(table.y) * table.outputs * len(epsilons))), 1)
    parts: dict[str, list[Measured]] = {name: [] for name in rules}
    for start in range(0, used, batch):
        for name, measured in runs.of(range(start, min(start + batch, used)), rules):
            parts[name].append(measured)
    for name in rules:
        score, error, n_mu, kappa = (np.concatenate(part, axis=1) for part in zip(*parts[name], strict=True))
        for e, epsilon in enumerate(epsilons):
            low, middle, high = np.quantile(score[e], (0.25, 0.5, 0.75))
            yield Cell(
                table.name,
                epsilon,
                adjacency,
                name,
                used,
                score=_rounded(middle),
                low=_rounded(low),
                high=_rounded(high),
                se=_rounded(score[e].std() / math.sqrt(used)),
                error=_rounded(np.median(error[e])),
                n_mu=_rounded(np.median(n_mu[e])),
                kappa=_rounded(np.median(kappa[e])),
            )


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


Measured = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # score, error, n·μ, κ: (ε, seeds)


@dataclass(frozen=True, eq=False)
class Runs:
    """Seeds × ε of one table on one device."""

    table: Table
    plans: Calibrations
    adjacency: Adjacency
    epsilons: list[float]
    device: str

    def of(self, seeds: range, rules: Mapping[str, Rule]) -> Iterator[tuple[str, Measured]]:
        """Variants that share the metric are run one after the other: it is released once."""
        records = self.records()
        test = torch.as_tensor(self.table.test[list(seeds)].T, device=self.device, dtype=torch.float64)
        test = test.repeat(1, len(self.epsilons))
        metric: Metric | None = None
        last: tuple[float, ...] | None = None
        for name in sorted(rules, key=lambda name: metric_constants(rules[name])):
            setting = self.setting(records, 1.0 - test, rules[name], seeds.start)
            if metric is None or metric_constants(rules[name]) != last:
                metric = None  # before the next one needs its memory
                metric, last = released_metric(setting), metric_constants(rules[name])
            released = walked(setting.drawing(setting_seed(self.table.name, seeds.start, "walk")), metric)
            yield name, self.measured(records, setting, released, test)

    def records(self) -> Records:
        t = self.table
        return Records.on(self.device, t.X, t.y, TorchLoss(t.kind, t.n_classes), t.x_norm)

    def setting(self, records: Records, seen: Tensor, rule: Rule, start: int) -> Setting:
        """Runs in the order of ε, then of seeds."""
        copies = seen.shape[1] // len(self.epsilons)
        public = [self.plans.of(self.table.name, e, self.adjacency, rule) for e in self.epsilons]
        plans = [plan for plan in public for _ in range(copies)]
        seed = setting_seed(self.table.name, start, "metric")
        return Setting.of(records, seen, Neighbours(self.adjacency), rule, plans, seed)

    def measured(self, records: Records, setting: Setting, released: Released, test: Tensor) -> Measured:
        margins = records.margins(released.theta)
        score, error = scored(records, margins, test, from_zero=self.table.from_zero)
        n_mu = setting.seen.sum(0) * setting.mu
        parts = (score, error, n_mu, released.kappa)
        return tuple(part.cpu().numpy().reshape(len(self.epsilons), -1) for part in parts)  # type: ignore[return-value]


def scored(records: Records, margins: Tensor, test: Tensor, *, from_zero: bool) -> tuple[Tensor, Tensor]:
    """(score, error relative to θ = 0) of B runs on the rows where `test` is 1."""
    loss, y, tested = records.loss, records.y, test.sum(0)
    error = (loss.errors(margins, y) * test).sum(0) / tested
    zero = (loss.errors(torch.zeros_like(margins[:, :1]), y) * test).sum(0) / tested
    if loss.kind != "regression":
        return (loss.hits(margins, y) * test).sum(0) / tested, error / zero
    mean = 0.0 if from_zero else (y[:, None] * test).sum(0) / tested
    constant = ((y[:, None] - mean).square() * test).sum(0) / tested
    return 1.0 - error / constant, error / zero


def metric_constants(rule: Rule) -> tuple[float, ...]:
    """What the released metric depends on."""
    shares = (rule.count_share, rule.pilot_share, rule.length_share, rule.curvature_share)
    return (*shares, rule.precise, rule.freedom, rule.floor, rule.kept_lengths, float(rule.edges))


def setting_seed(*key: object) -> int:
    return zlib.crc32(repr(key).encode())
