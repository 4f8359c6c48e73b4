"""Tables as plain arrays and the calibrations of all variants, for a machine with numpy and torch alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.mechanisms.recentered import calibrated, round_dims
from curvedp.mechanisms.rule import Rule
from curvedp.neighbours import Adjacency
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.randomness import generator
from curvedp_studies.accuracy.calibration import FILE, Calibration, Calibrations, Key
from curvedp_studies.accuracy.shipped import PREFIX, SHIPPED
from curvedp_studies.peers import EPSILONS, MOST_ROWS, UNIT_EPSILONS
from curvedp_studies.peers_data import Dataset, dataset_names, load_dataset
from curvedp_studies.peers_descent import Table
from curvedp_studies.peers_export import plain_table
from curvedp_studies.resume import seed_of


def export(
    data: Path | None,
    out: Path,
    rules: Mapping[str, Rule],
    adjacencies: Sequence[Adjacency],
    seeds: int,
    names: Sequence[str] | None = None,
    most_rows: int = MOST_ROWS,
) -> Iterator[Path]:
    """One .npz for every table of the folder and of the packages, and a file of calibrations that grows."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / FILE
    found: dict[Key, Calibration] = Calibrations.load(path).found if path.exists() else {}
    for name in names or all_names(data):
        dataset = loaded(data, name, most_rows)
        epsilons = UNIT_EPSILONS if dataset.from_zero else EPSILONS
        for epsilon in epsilons:
            for adjacency in adjacencies:
                for rule in rules.values():
                    key = Key.of(name, epsilon, adjacency, rule)
                    found[key] = found.get(key) or calibration(dataset, epsilon, adjacency, rule)
        shifts = [calibrate_mu(epsilon, dataset.delta) for epsilon in epsilons]
        yield split_anew(plain_table(dataset, seeds)).write(out, epsilons, shifts)
    Calibrations(found).save(path)
    yield path


def split_anew(table: Table) -> Table:
    """Where all seeds have the table's own test rows: as many others, drawn anew for every seed.

    A few dozen fixed rows would decide more than the rule does; published errors are of other splits, too.
    """
    if not table.from_zero:
        return table
    test = np.zeros_like(table.test)
    for seed, row in enumerate(test):
        order = generator(seed_of("split", table.name, seed)).permutation(len(table.y))
        row[order[: int(table.test[seed].sum())]] = True
    return replace(table, test=test)


def all_names(data: Path | None) -> list[str]:
    return [*(dataset_names(data) if data is not None else ()), *(PREFIX + name for name in SHIPPED)]


def loaded(data: Path | None, name: str, most_rows: int) -> Dataset:
    if name.startswith(PREFIX):
        own = name.removeprefix(PREFIX)
        return SHIPPED[own].dataset(own)
    return load_dataset(data or Path(), name, most_rows)


def calibration(dataset: Dataset, epsilon: float, adjacency: Adjacency, rule: Rule) -> Calibration:
    """Of the library's plan."""
    dims = round_dims(rule, dataset.d * dataset.loss.n_outputs)
    domain, budget = Domain(dataset.x_norm, 1.0, adjacency), Budget(epsilon, dataset.delta)
    parameters, _, mu = calibrated(rule, domain, dataset.d, budget, dims)
    return Calibration(parameters.sigma2, parameters.m, parameters.mu, mu)
