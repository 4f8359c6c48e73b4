"""Tables for `peers_descent.py` on another machine: plain arrays with the calibrated shifts.

python -m curvedp_studies.peers_export DATA PREPARED [--datasets wine,unit/servo] [--seeds 20]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from curvedp.privacy.gaussian import calibrate_mu
from curvedp_studies.peers import EPSILONS, MOST_ROWS, SEEDS, UNIT_EPSILONS
from curvedp_studies.peers_data import Dataset, dataset_names, load_dataset
from curvedp_studies.peers_descent import Table


def plain_table(dataset: Dataset, seeds: int) -> Table:
    """The dataset and its splits as plain arrays."""
    test = np.zeros((seeds, len(dataset.y)), dtype=bool)
    for seed in range(seeds):
        test[seed, dataset.split(seed)[1]] = True
    return Table(
        dataset.name,
        dataset.kind,
        dataset.X.astype(np.float32),
        dataset.y,
        test,
        dataset.x_norm,
        dataset.n_classes,
        dataset.from_zero,
    )


def prepare(
    data_dir: Path | str,
    out: Path | str,
    datasets: Sequence[str] | None = None,
    epsilons: Sequence[float] | None = None,
    seeds: int = SEEDS,
    *,
    most_rows: int = MOST_ROWS,
) -> list[Path]:
    """One .npz per table; `compare(scores=[…])` takes what the descent makes of them."""
    folder, target = Path(data_dir), Path(out)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name in datasets or dataset_names(folder):
        dataset = load_dataset(folder, name, most_rows)
        levels = epsilons or (UNIT_EPSILONS if dataset.from_zero else EPSILONS)
        shifts = [calibrate_mu(epsilon, dataset.delta) for epsilon in levels]
        written.append(plain_table(dataset, seeds).write(target, levels, shifts))
    return written


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=prepare.__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--datasets", help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    names = options.datasets.split(",") if options.datasets else None
    for path in prepare(options.data, options.prepared, names, seeds=options.seeds):
        print(f"{path}  {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
