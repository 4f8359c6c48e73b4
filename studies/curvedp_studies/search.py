"""A private search over ten penalties against the default penalty, on real tables.

    python -m curvedp_studies.search DATA --seeds 10 [--tables concrete,wine] [--rows 60000]

Three designs share one budget: `same` (fit and comparison on all rows, the one that `PrivateSearch` uses),
`split` (a coin per record: 80 % to fit, 20 % to compare, each with the whole budget), and `trials`. `best` is
the best single penalty in hindsight, fitted afresh: what is there to be won. Scores are R² or accuracy on
held-out rows and are not covered by any guarantee.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curvedp.analyses.search import plan_refits, plan_trials
from curvedp.arrays import FloatArray
from curvedp.data.rows import Rows, make_rows
from curvedp.mechanisms import Recentered, make_plan
from curvedp.mechanisms.recentered import RecenteredPlan
from curvedp.privacy.budget import Budget
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.regularizers import L2, OnCoordinates
from curvedp.randomness import generator
from curvedp_studies.peers_data import Dataset, dataset_names, load_dataset
from curvedp_studies.resume import seed_of

BUDGET = Budget(1.0, 1e-6)
ALPHAS = tuple(float(alpha) for alpha in np.geomspace(0.1, 1000.0, 10))
DESIGNS = ("default", "same", "split", "trials", "best")


@dataclass(frozen=True)
class Scores:
    """Median scores on held-out rows by design."""

    table: str
    kappa: float
    medians: dict[str, float]

    def gain(self, design: str) -> float:
        """Against the default penalty."""
        return self.medians[design] - self.medians["default"]


def default_alpha(data: Dataset) -> float:
    """Of PrivateRidge, and of PrivateLogisticRegression."""
    return 1.0 if data.kind == "regression" else 0.0


def penalised(data: Dataset, alpha: float) -> Problem:
    penalty = OnCoordinates(L2(alpha), tuple(range(data.d - 1)))
    return Problem(data.loss, penalty, domain=Domain(data.x_norm, 1.0, "add_remove"))


def walk_of(data: Dataset) -> int:
    """As `PrivateSearch` chooses it."""
    return len(ALPHAS) // 2 if data.kind == "regression" else 0


def one_seed(data: Dataset, seed: int, designs: Sequence[str]) -> tuple[dict[str, list[float]], float]:
    """The scores of every design on one split; `best` has one for each penalty."""
    train, test = data.split(seed)
    problems = [penalised(data, alpha) for alpha in ALPHAS]
    random = generator(seed_of("search", data.name, seed))
    rows = make_rows(data.X[train], data.y[train], problems[0].domain)

    def score(theta: FloatArray) -> float:
        return data.score(data.X[test] @ theta, data.y[test])

    def fresh(alpha: float) -> FloatArray:
        return (
            make_plan(Recentered(coding=data.coding), penalised(data, alpha), data.d, BUDGET)
            .release(rows, random)
            .theta
        )

    found = {"default": [score(fresh(default_alpha(data)))]}
    plan = plan_refits(Recentered(coding=data.coding), problems, walk_of(data), data.d, BUDGET)
    same = plan.release(rows, random)
    found["same"] = [score(same.estimate.theta)]
    if "split" in designs:
        found["split"] = [score(by_split(data, train, problems, random))]
    if "trials" in designs:
        trials = plan_trials(
            [Recentered(coding=data.coding)] * len(ALPHAS), problems, data.d, BUDGET, float(len(ALPHAS))
        )
        found["trials"] = [score(trials.release(rows, random).estimate.theta)]
    if "best" in designs:
        found["best"] = [score(fresh(alpha)) for alpha in ALPHAS]
    assert same.estimate.local is not None
    return found, same.estimate.local.kappa


def by_split(
    data: Dataset, train: np.ndarray, problems: Sequence[Problem], random: np.random.Generator
) -> FloatArray:
    """A coin per record, the whole budget on either side; the mean loss on the second with Gaussian noise."""
    left = random.random(len(train)) < 0.8
    parts: list[Rows] = [
        make_rows(data.X[side], data.y[side], problems[0].domain) for side in (train[left], train[~left])
    ]
    plan = make_plan(Recentered(coding=data.coding), problems[walk_of(data)], data.d, BUDGET)
    assert isinstance(plan, RecenteredPlan)
    fitted = plan.release(parts[0], random)
    assert fitted.local is not None
    thetas = [fitted.local.minimize(problem) for problem in problems]
    X, y = data.X[train[~left]], data.y[train[~left]]
    losses = np.stack([data.loss.value(X @ theta, y) for theta in thetas], axis=1)
    v = losses[:, [walk_of(data)]] - losses
    moved = [max(fitted.local.distance(theta, fitted.theta), 1e-9) for theta in thetas]
    clip = 0.5 * np.sqrt(len(thetas))
    v = v / moved
    v = v * np.minimum(1.0, clip / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-300))
    sigma = clip / calibrate_mu(BUDGET.epsilon, BUDGET.delta)
    sums = (v.sum(axis=0) + sigma * random.standard_normal(len(thetas))) * moved
    errors = sigma * np.array(moved)
    errors[walk_of(data)], sums[walk_of(data)] = 0.0, 0.0
    return thetas[int(np.argmax(sums - errors))]


def study(
    folder: Path, tables: Sequence[str], seeds: int, most_rows: int, designs: Sequence[str] = DESIGNS
) -> list[Scores]:
    """Medians over seeds, table by table; each is printed when it is there."""
    found = []
    for name in tables:
        data = load_dataset(folder, name, most_rows)
        runs = [one_seed(data, seed, designs) for seed in range(seeds)]
        medians = {
            design: float(max(np.median([run[design] for run, _ in runs], axis=0))) for design in runs[0][0]
        }
        found.append(Scores(name, runs[0][1], medians))
        shown = " ".join(f"{design} {value:.4f}" for design, value in medians.items())
        print(
            f"{name:15s} κ = {found[-1].kappa:6.1f}  {shown}  gain {found[-1].gain('same'):+.4f}", flush=True
        )
    gains = [one.gain("same") for one in found]
    better = sum(gain > 0.005 for gain in gains)
    print(f"least gain {min(gains):+.4f}; better by more than 0.005 on {better} of {len(gains)} tables")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--tables", default="")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--designs", default=",".join(DESIGNS))
    given = parser.parse_args(arguments)
    tables = given.tables.split(",") if given.tables else dataset_names(given.data)
    study(given.data, tables, given.seeds, given.rows, given.designs.split(","))


if __name__ == "__main__":
    main()
