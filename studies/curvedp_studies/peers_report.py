"""What a comparison says: medians, quartiles and the worst, wins, ties and losses."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Protocol

import numpy as np

from curvedp_studies.peers_data import UNIT
from curvedp_studies.peers_names import CONSTANT, FIRST, NONPRIVATE
from curvedp_studies.resume import read_rows

TIE = 0.01  # of a score: R², accuracy, log-loss, or a share of the zero predictor's error (unit)
WORSE = 0.01  # of the error of the constant answer
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
    """The least, the quartiles and the median of the score over the seeds; medians of the rest."""

    dataset: str
    mechanism: str
    adjacency: str
    epsilon: float
    seeds: int
    worst: float
    lower: float
    median: float
    upper: float
    auc: float
    log_loss: float
    n_mu: float
    kappa: float

    @property
    def point(self) -> tuple[str, str, str, float]:
        return self.dataset, self.mechanism, self.adjacency, self.epsilon

    @property
    def covered(self) -> bool:
        return not math.isnan(self.median)

    @property
    def is_unit(self) -> bool:
        return self.dataset.startswith(f"{UNIT}/")

    @property
    def is_loose(self) -> bool:
        return "~" in self.dataset

    @property
    def is_sized(self) -> bool:
        return "@" in self.dataset

    @property
    def is_whole(self) -> bool:
        """A table of its own size and bounds, not scaled."""
        return not (self.is_unit or self.is_loose or self.is_sized)


@dataclass(frozen=True)
class Tally:
    """How often the default won, tied (within ±0.01) and lost against another."""

    wins: int
    ties: int
    losses: int
    worst: float

    @property
    def cells(self) -> int:
        return self.wins + self.ties + self.losses


def summarise(rows: Iterable[Scored]) -> list[Summary]:
    """One summary per (dataset, mechanism, adjacency, ε) that is covered, in the order of the rows."""
    groups: dict[tuple[str, str, str, float], list[Scored]] = {}
    for row in rows:
        groups.setdefault((row.dataset, row.mechanism, row.adjacency, row.epsilon), []).append(row)
    summaries = [
        Summary(
            *key,
            len(fits),
            *(float(value) for value in np.quantile([fit.score for fit in fits], [0.0, 0.25, 0.5, 0.75])),
            *(
                float(np.median(values))
                for values in zip(*((f.auc, f.log_loss, f.n_mu, f.kappa) for f in fits), strict=True)
            ),
        )
        for key, fits in groups.items()
    ]
    return [summary for summary in summaries if summary.covered]


Key = tuple[str, str, float]


def by_cell(summaries: Iterable[Summary], adjacency: str = "add_remove") -> dict[Key, Summary]:
    """(dataset, mechanism, ε) → summary; what has no privacy belongs to both adjacencies."""
    return {
        (s.dataset, s.mechanism, s.epsilon): s
        for s in summaries
        if s.adjacency == adjacency or math.isinf(s.epsilon)
    }


def opponents(summaries: Iterable[Summary]) -> list[str]:
    return [
        name
        for name in dict.fromkeys(s.mechanism for s in summaries)
        if name not in (FIRST, NONPRIVATE, CONSTANT)
    ]


def score_of(summary: Summary) -> float:
    return summary.median


def minus_log_loss(summary: Summary) -> float:
    return -summary.log_loss


def tally(summaries: Iterable[Summary], other: str, value: Callable[[Summary], float] = score_of) -> Tally:
    """The default against another, cell by cell, each adjacency with its own."""
    cells = {(s.dataset, s.mechanism, s.adjacency, s.epsilon): value(s) for s in summaries}
    gaps = [
        own - cells[dataset, other, adjacency, e]
        for (dataset, name, adjacency, e), own in cells.items()
        if name == FIRST and (dataset, other, adjacency, e) in cells
    ]
    gaps = [gap for gap in gaps if not math.isnan(gap)]
    wins, losses = sum(gap > TIE for gap in gaps), sum(gap < -TIE for gap in gaps)
    return Tally(wins, len(gaps) - wins - losses, losses, min(gaps, default=math.nan))


def below_constant(summaries: Sequence[Summary]) -> list[Summary]:
    """Cells of the default whose error, or log-loss, exceeds the constant answer's by more than 1 %."""
    constant = {s.dataset: _error(s) for s in summaries if s.mechanism == CONSTANT}
    return [
        s
        for s in summaries
        if s.mechanism == FIRST and s.dataset in constant and _error(s) > (1.0 + WORSE) * constant[s.dataset]
    ]


def _error(s: Summary) -> float:
    return 1.0 - s.median if math.isnan(s.log_loss) else s.log_loss


def write_report(
    rows: Sequence[Scored], folder: Path, page: Path | None = None, known: Path | None = None
) -> list[Path]:
    """summary.csv; `page` gets its tables between its marks, and its own copy of the summary.

    Cells that are not among `rows` are those of `known`, a summary of before.
    """
    found = {summary.point: summary for summary in summarise(rows)}
    if known is not None:
        found = {summary.point: summary for summary in read_rows(known, Summary)} | found
    summaries = list(found.values())
    written = [_table(summaries, folder / "summary.csv")]
    if page is not None:
        from curvedp_studies.peers_document import document

        written += [document(summaries, page), _table(summaries, page.with_suffix(".csv"))]
    return written


def _table(summaries: Sequence[Summary], path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(Summary))
        for s in summaries:
            writer.writerow(f"{v:.4g}" if isinstance(v, float) else v for v in astuple(s))
    return path
