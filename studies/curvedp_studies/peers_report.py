"""What a comparison says: medians and quartiles, a figure, and a page with wins, ties and losses."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from matplotlib.artist import Artist

from curvedp.pages import environment
from curvedp_studies.drawing import canvas, pictures

TIE = 0.01
REFERENCE = "nonprivate"
SHOWN = {
    "recentered": "recentered QOP",
    "statistics": "Gaussian statistics",
    "adassp": "AdaSSP",
    "qop": "QOP, direct",
    "lop": "LOP (P-8)",
    "amp": "AMP",
    "pure_lop": "LOP, pure ε",
    "output": "output perturbation",
    "functional": "functional mechanism",
    "exponential": "exponential mechanism",
    "gradient": "gradient descent, default",
    "dp_sgd": "DP-SGD, default",
    "gradient_tuned": "gradient descent, tuned on test",
    "nonprivate": "no privacy",
}


class Scored(Protocol):
    """One fit."""

    @property
    def dataset(self) -> str: ...

    @property
    def mechanism(self) -> str: ...

    @property
    def epsilon(self) -> float: ...

    @property
    def score(self) -> float: ...

    @property
    def auc(self) -> float: ...


@dataclass(frozen=True)
class Summary:
    """Median and quartiles over the seeds."""

    dataset: str
    mechanism: str
    epsilon: float
    seeds: int
    lower: float
    median: float
    upper: float
    auc: float

    @property
    def covered(self) -> bool:
        return not math.isnan(self.median)


@dataclass(frozen=True)
class Tally:
    """How often the first mechanism won, tied (within ±0.01) and lost against another."""

    mechanism: str
    wins: int
    ties: int
    losses: int
    worst: float

    @property
    def share(self) -> float:
        total = self.wins + self.ties + self.losses
        return (self.wins + self.ties) / total if total else math.nan


def summarise(rows: Iterable[Scored]) -> list[Summary]:
    """One summary per (dataset, mechanism, ε), in the order of the rows."""
    groups: dict[tuple[str, str, float], list[Scored]] = {}
    for row in rows:
        groups.setdefault((row.dataset, row.mechanism, row.epsilon), []).append(row)
    summaries = []
    for (dataset, mechanism, epsilon), fits in groups.items():
        lower, median, upper = np.quantile([fit.score for fit in fits], [0.25, 0.5, 0.75])
        auc = float(np.median([fit.auc for fit in fits]))
        summaries.append(
            Summary(dataset, mechanism, epsilon, len(fits), float(lower), float(median), float(upper), auc)
        )
    return summaries


def tallies(summaries: Sequence[Summary], first: str) -> list[Tally]:
    """Wins, ties and losses of `first` by cell (dataset, ε), against every mechanism that covers it."""
    own = {(s.dataset, s.epsilon): s.median for s in summaries if s.mechanism == first and s.covered}
    others = list(dict.fromkeys(s.mechanism for s in summaries))
    found = []
    for other in others:
        if other in (first, REFERENCE):
            continue
        gaps = [
            own[s.dataset, s.epsilon] - s.median
            for s in summaries
            if s.mechanism == other and s.covered and (s.dataset, s.epsilon) in own
        ]
        wins, losses = sum(gap > TIE for gap in gaps), sum(gap < -TIE for gap in gaps)
        worst = min(gaps, default=math.nan)
        found.append(Tally(other, wins, len(gaps) - wins - losses, losses, worst))
    return found


def write_report(rows: Sequence[Scored], folder: Path, first: str) -> list[Path]:
    """summary.csv, comparison.png, .svg and .html."""
    summaries = summarise(rows)
    table = folder / "summary.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["dataset", "mechanism", "epsilon", "seeds", "lower", "median", "upper", "auc"])
        for s in summaries:
            numbers = [f"{value:.5g}" for value in (s.lower, s.median, s.upper, s.auc)]
            writer.writerow([s.dataset, s.mechanism, f"{s.epsilon:g}", s.seeds, *numbers])
    _draw(summaries, folder)
    html = folder / "comparison.html"
    html.write_text(comparison_page(summaries, first), encoding="utf-8")
    return [table, *pictures(folder, "comparison"), html]


def comparison_page(summaries: Sequence[Summary], first: str) -> str:
    """The page: the matrix of wins, ties and losses, then every median."""
    mechanisms = list(dict.fromkeys(s.mechanism for s in summaries if s.mechanism != REFERENCE))
    datasets = list(dict.fromkeys(s.dataset for s in summaries))
    epsilons = sorted({s.epsilon for s in summaries if math.isfinite(s.epsilon)})
    median = {(s.dataset, s.mechanism, s.epsilon): s for s in summaries}
    matrix = [
        {
            "name": SHOWN.get(tally.mechanism, tally.mechanism),
            "tally": tally,
            "cells": [
                [_verdict(median.get((d, first, e)), median.get((d, tally.mechanism, e))) for e in epsilons]
                for d in datasets
            ],
        }
        for tally in tallies(summaries, first)
    ]
    tables = [
        {
            "name": dataset,
            "reference": median.get((dataset, REFERENCE, math.inf)),
            "rows": [
                {
                    "name": SHOWN.get(mechanism, mechanism),
                    "cells": [median.get((dataset, mechanism, e)) for e in epsilons],
                }
                for mechanism in mechanisms
            ],
        }
        for dataset in datasets
    ]
    return (
        environment("curvedp_studies")
        .get_template("comparison.html")
        .render(
            first=SHOWN.get(first, first),
            matrix=matrix,
            datasets=datasets,
            epsilons=epsilons,
            tables=tables,
            tie=TIE,
        )
    )


def _verdict(own: Summary | None, other: Summary | None) -> str:
    """ "win", "tie", "lose", or "" where one of the two is missing."""
    if own is None or other is None or not own.covered or not other.covered:
        return ""
    gap = own.median - other.median
    return "win" if gap > TIE else "lose" if gap < -TIE else "tie"


def _draw(summaries: Sequence[Summary], folder: Path) -> None:
    """One panel per dataset: median score against ε, a band for the quartiles of the first mechanism."""
    datasets = list(dict.fromkeys(s.dataset for s in summaries))
    mechanisms = list(dict.fromkeys(s.mechanism for s in summaries if s.mechanism != REFERENCE))
    shades = ("C0", "C1", "C2", "C4", "C5", "C6", "C7", "C8", "C9")  # C3 is the first mechanism's
    palette = [
        {"linewidth": 1.0, "color": shades[i % len(shades)], "linestyle": ("-", "--")[i // len(shades) % 2]}
        for i in range(len(mechanisms))
    ]
    columns = min(4, len(datasets))
    lines = math.ceil(len(datasets) / columns)
    with canvas(folder, "comparison", (3.2 * columns, 2.4 * lines + 0.8)) as figure:
        axes = figure.subplots(lines, columns, squeeze=False)
        for axis in axes.ravel()[len(datasets) :]:
            axis.axis("off")
        for axis, dataset in zip(axes.ravel(), datasets, strict=False):
            cells = [s for s in summaries if s.dataset == dataset]
            best = [s.median for s in cells if s.mechanism == REFERENCE]
            if best:
                axis.axhline(best[0], color="0.6", linestyle=":", linewidth=1.2, label=SHOWN[REFERENCE])
            for index, mechanism in enumerate(mechanisms):
                curve = sorted(
                    (s for s in cells if s.mechanism == mechanism and s.covered), key=lambda s: s.epsilon
                )
                if not curve:
                    continue
                x = [s.epsilon for s in curve]
                style = {"linewidth": 2.2, "color": "C3", "zorder": 5} if index == 0 else palette[index - 1]
                axis.plot(
                    x,
                    [s.median for s in curve],
                    marker="o",
                    ms=2.5,
                    label=SHOWN.get(mechanism, mechanism),
                    **style,
                )
                if index == 0:
                    axis.fill_between(
                        x, [s.lower for s in curve], [s.upper for s in curve], color="C3", alpha=0.2
                    )
            finite = [s.median for s in cells if s.covered]
            top = max([*finite, 0.0])
            low = max(min([*finite, top]), top - 1.0)
            axis.set_ylim(low - 0.03, top + 0.03)
            axis.set_xscale("log")
            axis.set_title(dataset)
            axis.set_xlabel("ε")
        handles: dict[str, Artist] = {}
        for axis in axes.ravel():
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, frameon=False)
