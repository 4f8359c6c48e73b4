"""Which populations there are, and where each comes from."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

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
    """Generated; or coded from the demo's table or a table of `folder`."""
    if name in NAMES:
        return synthetic(name)
    from curvedp_studies.coverage.real import real

    return real(name, folder)
