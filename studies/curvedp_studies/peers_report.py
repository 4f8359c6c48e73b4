"""What a comparison says: medians and quartiles, wins, ties, losses, where a public constant is better."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Protocol

import numpy as np

from curvedp.pages import environment
from curvedp_studies.peers_charts import draw
from curvedp_studies.peers_data import UNIT
from curvedp_studies.peers_names import NONPRIVATE, ZERO, shown

TIE = 0.01  # of a score: R², accuracy, or a share of the zero predictor's error (unit)
WORSE = 0.01  # of the error of θ = 0
FEWEST = 25.0  # nμ below which histograms and counts are noise


class Scored(Protocol):
    """One fit."""

    @property
    def dataset(self) -> str: ...

    @property
    def mechanism(self) -> str: ...

    @property
    def adjacency(self) -> str: ...

    @property
    def epsilon(self) -> float: ...

    @property
    def score(self) -> float: ...

    @property
    def auc(self) -> float: ...

    @property
    def log_loss(self) -> float: ...

    @property
    def n_mu(self) -> float: ...

    @property
    def kappa(self) -> float: ...


@dataclass(frozen=True)
class Summary:
    """Median and quartiles of the score over the seeds; medians of the rest."""

    dataset: str
    mechanism: str
    adjacency: str
    epsilon: float
    seeds: int
    lower: float
    median: float
    upper: float
    auc: float
    log_loss: float
    n_mu: float
    kappa: float

    @property
    def covered(self) -> bool:
        return not math.isnan(self.median)

    @property
    def is_unit(self) -> bool:
        return self.dataset.startswith(f"{UNIT}/")


@dataclass(frozen=True)
class Tally:
    """How often the first mechanism won, tied (within ±0.01) and lost against another."""

    mechanism: str
    wins: int
    ties: int
    losses: int
    worst: float

    @property
    def cells(self) -> int:
        return self.wins + self.ties + self.losses

    @property
    def share(self) -> float:
        return (self.wins + self.ties) / self.cells if self.cells else math.nan


def summarise(rows: Iterable[Scored]) -> list[Summary]:
    """One summary per (dataset, mechanism, adjacency, ε), in the order of the rows."""
    groups: dict[tuple[str, str, str, float], list[Scored]] = {}
    for row in rows:
        groups.setdefault((row.dataset, row.mechanism, row.adjacency, row.epsilon), []).append(row)
    return [
        Summary(
            *key,
            len(fits),
            *(float(value) for value in np.quantile([fit.score for fit in fits], [0.25, 0.5, 0.75])),
            *(
                float(np.median(values))
                for values in zip(*((f.auc, f.log_loss, f.n_mu, f.kappa) for f in fits), strict=True)
            ),
        )
        for key, fits in groups.items()
    ]


Key = tuple[str, str, float]


def by_cell(summaries: Iterable[Summary], adjacency: str = "add_remove") -> dict[Key, Summary]:
    """(dataset, mechanism, ε) → summary, those that are covered."""
    return {
        (s.dataset, s.mechanism, s.epsilon): s for s in summaries if s.covered and s.adjacency == adjacency
    }


def tallies(summaries: Sequence[Summary], first: str) -> list[Tally]:
    """The first mechanism against every other, cell by cell, on medians under add_remove."""
    cells = by_cell(summaries)
    own = {(dataset, e): s.median for (dataset, name, e), s in cells.items() if name == first}
    found = []
    for other in dict.fromkeys(s.mechanism for s in summaries):
        if other in (first, NONPRIVATE, ZERO):
            continue
        gaps = [
            own[dataset, e] - s.median
            for (dataset, name, e), s in cells.items()
            if name == other and (dataset, e) in own
        ]
        wins, losses = sum(gap > TIE for gap in gaps), sum(gap < -TIE for gap in gaps)
        worst = min(gaps, default=math.nan)
        found.append(Tally(other, wins, len(gaps) - wins - losses, losses, worst))
    return found


def zero_scores(summaries: Iterable[Summary]) -> dict[str, float]:
    """The score of θ = 0 on every table."""
    return {s.dataset: s.median for s in summaries if s.mechanism == ZERO}


def below_zero(summaries: Sequence[Summary], first: str) -> list[Summary]:
    """Cells of the first mechanism whose error exceeds that of θ = 0 by more than 1 %, any nμ."""
    zero = zero_scores(summaries)
    return [
        s
        for s in summaries
        if s.mechanism == first
        and s.covered
        and s.dataset in zero
        and 1.0 - s.median > (1.0 + WORSE) * (1.0 - zero[s.dataset])
    ]


def write_report(rows: Sequence[Scored], folder: Path, first: str, page: Path | None = None) -> list[Path]:
    """summary.csv, two pictures and comparison.html; `page` gets its tables between its marks."""
    summaries = summarise(rows)
    table = folder / "summary.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(Summary))
        for s in summaries:
            writer.writerow(f"{v:.5g}" if isinstance(v, float) else v for v in astuple(s))
    pictures = draw(summaries, folder, first)
    html = folder / "comparison.html"
    html.write_text(comparison_page(summaries, first), encoding="utf-8")
    written = [table, *pictures, html]
    if page is not None:
        from curvedp_studies.peers_document import document

        written += document(summaries, folder, page, first)
    return written


def comparison_page(summaries: Sequence[Summary], first: str) -> str:
    """The page: the matrix of wins, ties and losses, then every median."""
    mechanisms = list(dict.fromkeys(s.mechanism for s in summaries if s.mechanism != NONPRIVATE))
    datasets = list(dict.fromkeys(s.dataset for s in summaries))
    cells = by_cell(summaries)
    levels = {
        d: sorted({e for (dataset, _, e) in cells if dataset == d and math.isfinite(e)}) for d in datasets
    }
    matrix = [
        {
            "name": shown(tally.mechanism),
            "tally": tally,
            "cells": [
                [_verdict(cells.get((d, first, e)), cells.get((d, tally.mechanism, e))) for e in levels[d]]
                for d in datasets
            ],
        }
        for tally in tallies(summaries, first)
    ]
    tables = [
        {
            "name": dataset,
            "levels": levels[dataset],
            "reference": cells.get((dataset, NONPRIVATE, math.inf)),
            "rows": [
                {
                    "name": shown(mechanism),
                    "cells": [
                        cells.get((dataset, mechanism, math.inf if mechanism == ZERO else e))
                        for e in levels[dataset]
                    ],
                }
                for mechanism in mechanisms
            ],
        }
        for dataset in datasets
    ]
    return (
        environment("curvedp_studies")
        .get_template("comparison.html")
        .render(first=shown(first), matrix=matrix, datasets=datasets, tables=tables, tie=TIE)
    )


def _verdict(own: Summary | None, other: Summary | None) -> str:
    """ "win", "tie", "lose", or "" where one of the two is missing."""
    if own is None or other is None:
        return ""
    gap = own.median - other.median
    return "win" if gap > TIE else "lose" if gap < -TIE else "tie"
