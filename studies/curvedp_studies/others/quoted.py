"""What others published: every number that is quoted here, with its source and setting, in quoted.csv."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Source:
    """Where a number was read, and what was done there."""

    cited: str
    setting: str


SOURCES = {
    "urban": Source(
        "A feasibility study of differentially private regression for validation servers: arXiv 2110.12055, "
        "JASA 10.1080/01621459.2023.2270795, UrbanInstitute/formal-privacy-comp-appendix on GitHub",
        "Card's wage model, women of the CPS ASEC 1994–96; δ = 10⁻⁶, bounds from the data; 100 replicates; "
        "ranges over terms and years, read off a figure",
    ),
    "econometrics": Source(
        "dp-econometrics, MaxGhenis/dp-statsmodels on GitHub",
        "wages of the CPS ASEC, 54,875 rows; standard errors over those without privacy, the largest",
    ),
    "binagg": Source(
        "BinAgg, AISTATS 2026: arXiv 2510.16974, table 2",
        "μ-GDP, μ = 1; bounds from the data; no intercept; RelMSE = ‖Xβ − y‖²/‖y‖² on the fitted rows",
    ),
    "replication": Source(
        "BinAgg's package run by a replication, gghatano/tpdp2026-binagg on GitHub, E1",
        "X uniform on [0, 10]³, β = (1.5, −2, 0.5), errors N(0, 1), no intercept; 300 runs; "
        "public bounds [0, 10] and ±30",
    ),
    "awan": Source(
        "Awan and Wang: arXiv 2303.05328, and the repository of its simulations, 1,000 runs a cell",
        "logistic, x = 2·Beta(½, ½) − 1, β = (½, 2), the slope; pure ε-DP",
    ),
}


@dataclass(frozen=True)
class Quote:
    """One published number, or the range `low` to `high` of several."""

    source: str
    setting: str
    n: int | None
    level: float  # ε, or μ
    method: str
    measure: str
    low: float
    high: float


@cache
def quotes() -> tuple[Quote, ...]:
    """Every row of quoted.csv."""
    text = files(__package__).joinpath("quoted.csv").read_text(encoding="utf-8")
    return tuple(
        Quote(
            row["source"],
            row["setting"],
            int(row["n"]) if row["n"] else None,
            float(row["level"]),
            row["method"],
            row["measure"],
            float(row["low"]),
            float(row["high"]),
        )
        for row in csv.DictReader(text.splitlines())
    )


def theirs(setting: str, n: int, level: float) -> dict[str, dict[str, float]]:
    """Method → measure → value, of the single numbers of a cell."""
    found: dict[str, dict[str, float]] = {}
    for quote in quotes():
        if (quote.setting, quote.n, quote.level) == (setting, n, level) and quote.low == quote.high:
            found.setdefault(quote.method, {})[quote.measure] = quote.low
    return found


def cells(setting: str) -> list[tuple[int, float]]:
    """(n, ε or μ) of every published cell of a setting."""
    return list(dict.fromkeys((quote.n or 0, quote.level) for quote in quotes() if quote.setting == setting))
