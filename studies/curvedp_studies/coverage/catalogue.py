"""Which populations there are, and where each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from curvedp.errors import InvalidInput
from curvedp_studies.coverage.populations import Population
from curvedp_studies.coverage.synthetic import NAMES, synthetic

CPS = "cps_mixtape"
RARE = "rare_levels"
TABLES = (
    "california",
    "bike",
    "wine",
    "magic",
    "diamonds",
    "protein",
    "adult",
    "credit_default",
    "metro_traffic",
    "elevators",
)


def chosen(names: str | None, folder: Path | None) -> list[str]:
    """The names of a list with commas; by default every generated population, the demo's and the folder's."""
    if names:
        return names.split(",")
    there = [name for name in TABLES if folder is not None and (folder / f"{name}.npz").exists()]
    return [*NAMES, CPS, *there]


@lru_cache(maxsize=1)
def population(name: str, folder: Path | None) -> Population:
    """Generated; or exported into `folder`; or coded from the demo's table or a table of `folder`."""
    if name in NAMES:
        return synthetic(name)
    if folder is not None and (folder / f"{name}.npz").exists() and not (folder / f"{name}.json").exists():
        return Population.load(folder / f"{name}.npz")
    from curvedp_studies.coverage.real import real

    return real(name, folder)


def export(names: Sequence[str], data: Path | None, out: Path) -> list[Path]:
    """Real populations as compressed arrays, for a machine that has not the tables."""
    if data is not None and data.resolve() == out.resolve():
        raise InvalidInput("export into a folder of its own")
    out.mkdir(parents=True, exist_ok=True)
    return [population(name, data).save(out) for name in names if name not in NAMES]
