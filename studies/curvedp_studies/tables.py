"""The paper's four tables, its numbers beside ours.

For every mechanism: the standard deviation and the standard error of the risk over the runs, averaged over κ
and at their largest, and the average time of a solve.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curvedp_studies import figure2
from curvedp_studies.experiment import MECHANISMS, READING_WORDS, Configuration
from curvedp_studies.figure2 import MAIN_READING, CurveKey, Grid, RiskCurve, Row
from curvedp_studies.resume import Progress


@dataclass(frozen=True)
class Spread:
    """One line of a table; SE = Std/√runs. The spreads are relative standard deviations of the two Std."""

    avg_std: float
    max_std: float
    avg_se: float
    max_se: float
    seconds: float
    avg_spread: float = math.nan
    max_spread: float = math.nan


NAMES = ("Avg Std", "Max Std", "Avg SE", "Max SE", "Avg runtime (s)")

# Section "Statistical Significance Reporting".
PAPER = {
    Configuration(300, 70, 0.5, 0.01): {
        "LOP": Spread(47229.6, 1.07102e06, 14935.3, 338686, 0.00821865),
        "LOP-Clip-1e4": Spread(95.691, 360.477, 30.2602, 113.993, 0.00900318),
        "LOP-Clip-1e5": Spread(4623.81, 35825.8, 1462.18, 11329.1, 0.00900562),
        "QOP": Spread(7.12276e-05, 0.000127098, 2.25241e-05, 4.0192e-05, 0.0114504),
    },
    Configuration(300, 70, 0.01, 1e-5): {
        "LOP": Spread(44411.3, 1.15901e06, 14044.1, 366511, 0.00823114),
        "LOP-Clip-1e4": Spread(575.211, 2902.89, 181.898, 917.975, 0.00897382),
        "LOP-Clip-1e5": Spread(16805.4, 226260, 5314.34, 71549.7, 0.00897671),
        "QOP": Spread(8.13505e-05, 0.000156076, 2.57253e-05, 4.93557e-05, 0.0115443),
    },
    Configuration(400, 100, 0.5, 0.01): {
        "LOP": Spread(35137.4, 834103, 11111.4, 263767, 0.00833787),
        "LOP-Clip-1e4": Spread(31.5804, 136.781, 9.98659, 43.2541, 0.00917076),
        "LOP-Clip-1e5": Spread(1709.59, 10474.9, 540.618, 3312.46, 0.00909861),
        "QOP": Spread(3.48617e-05, 5.62145e-05, 1.10242e-05, 1.77766e-05, 0.0125463),
    },
    Configuration(400, 100, 0.01, 1e-5): {
        "LOP": Spread(35451.7, 710939, 11210.8, 224819, 0.0081972),
        "LOP-Clip-1e4": Spread(225.999, 1114.31, 71.4671, 352.374, 0.00902137),
        "LOP-Clip-1e5": Spread(9831.14, 108552, 3108.88, 34327, 0.00900035),
        "QOP": Spread(4.30336e-05, 8.13922e-05, 1.36084e-05, 2.57385e-05, 0.0123227),
    },
}


def statistics(curve: RiskCurve, seconds: float) -> Spread:
    """Std over runs (divided by their number, as numpy does), then mean and maximum over κ.

    A Std of R runs varies by 1/√(2(R−1)) of itself; their mean over κ by ‖Std‖₂/‖Std‖₁ times that.
    """
    std, runs = curve.risks.std(axis=0), len(curve.risks)
    se, spread = std / math.sqrt(runs), 1 / math.sqrt(2 * max(runs - 1, 1))
    return Spread(
        float(std.mean()),
        float(std.max()),
        float(se.mean()),
        float(se.max()),
        seconds,
        spread * float(np.linalg.norm(std) / std.sum()),
        spread,
    )


@dataclass(frozen=True)
class Line:
    """One mechanism of one table: the paper's numbers, ours, and what the differences come from."""

    configuration: Configuration
    mechanism: str
    paper: Spread | None
    stotos: Spread
    exact: Spread
    scaling: tuple[float, float]  # other readings of the rescaling change Avg Std by a factor in this range

    def explanation(self) -> str:
        """Which differences are explained by what."""
        parts = []
        if self.paper is not None:
            avg = self.stotos.avg_std / self.paper.avg_std
            top = self.stotos.max_std / self.paper.max_std
            # Both sides were sampled, hence √2; three standard deviations.
            sampled = (
                abs(math.log(avg)) < 3 * math.sqrt(2) * self.stotos.avg_spread
                and abs(math.log(top)) < 3 * math.sqrt(2) * self.stotos.max_spread
            )
            verdict = "sampling" if sampled else "beyond sampling"
            parts.append(f"StoTOS / paper ×{avg:.2f} (avg), ×{top:.2f} (max): {verdict}")
        effect = self.exact.avg_std / self.stotos.avg_std
        parts.append(f"exact / StoTOS ×{effect:.2f}: solver accuracy")
        low, high = self.scaling
        if math.isfinite(low):
            parts.append(f"another data scaling: ×{low:.1f} to ×{high:.1f}")
        if self.paper is not None:
            faster = self.paper.seconds / self.stotos.seconds
            parts.append(f"runtime ÷{faster:.1f}: hardware, compiled code")
        return "; ".join(parts)


def table_lines(rows: Sequence[Row], grid: Grid) -> list[Line]:
    """Every line of the tables, in the paper's order."""
    found = figure2.curves(rows)
    time: dict[CurveKey, list[float]] = {}
    for row in rows:
        time.setdefault((row.solver, row.reading, row.configuration, row.mechanism), []).append(row.seconds)

    def of(key: CurveKey) -> Spread:
        return statistics(found[key], float(np.mean(time[key])))

    return [
        Line(
            c,
            mechanism.name,
            PAPER.get(c, {}).get(mechanism.name),
            of(("stotos", MAIN_READING, c, mechanism.name)),
            of(("exact", MAIN_READING, c, mechanism.name)),
            _scaling(found, grid, c, mechanism.name),
        )
        for c in grid.configurations
        for mechanism in MECHANISMS
    ]


def _scaling(
    found: dict[CurveKey, RiskCurve], grid: Grid, c: Configuration, name: str
) -> tuple[float, float]:
    """How the other readings change Avg Std, on the κ they share with the main one; nan: not computed."""
    main = found["stotos", MAIN_READING, c, name]
    base = main.risks[:, :: grid.sparse].std(axis=0).mean()
    others = [found.get(("stotos", reading, c, name)) for reading in grid.other_readings]
    factors = [float(curve.risks.std(axis=0).mean() / base) for curve in others if curve is not None]
    return (min(factors), max(factors)) if factors else (math.nan, math.nan)


def tables(
    out_dir: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    grid: Grid | None = None,
    workers: int | None = None,
) -> list[Path]:
    """Write tables.md and tables.csv into `out_dir` from the figure2.csv there, completed if need be."""
    folder, grid = Path(out_dir), grid or Grid()
    rows = figure2.study(folder, progress=progress, grid=grid, workers=workers)
    lines = table_lines(rows, grid)
    markdown, numbers = folder / "tables.md", folder / "tables.csv"
    markdown.write_text("\n".join(_markdown(lines)) + "\n", encoding="utf-8")
    with numbers.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            (
                "n",
                "d",
                "epsilon",
                "delta",
                "mechanism",
                "statistic",
                "paper",
                "stotos",
                "exact",
                "explanation",
            )
        )
        for line in lines:
            c = line.configuration
            for label, *values in zip(NAMES, *(_values(s) for s in _columns(line)), strict=True):
                head = (c.n, c.d, c.epsilon, c.delta, line.mechanism, label)
                writer.writerow((*head, *values, line.explanation()))
    return [markdown, numbers]


def _columns(line: Line) -> tuple[Spread | None, Spread, Spread]:
    return line.paper, line.stotos, line.exact


def _values(s: Spread | None) -> tuple[float, ...]:
    if s is None:
        return (math.nan,) * len(NAMES)
    return s.avg_std, s.max_std, s.avg_se, s.max_se, s.seconds


def _markdown(lines: Sequence[Line]) -> list[str]:
    text = [
        "# The paper's tables",
        "",
        "Each cell: the paper's number / ours with StoTOS / ours solved exactly. Std and SE over the runs of",
        "the mean risk, averaged over κ and at their largest; runtimes are CPU seconds of one solve.",
        f"Data: {READING_WORDS[MAIN_READING]}. Step of StoTOS: 1/(nL + λ_max(Q)), L = dξ².",
        "Sampling: within three standard deviations of the difference of two such experiments.",
    ]
    for c in dict.fromkeys(line.configuration for line in lines):
        text += ["", f"## {c}", "", f"| | {' | '.join(NAMES)} | what explains the differences |"]
        text.append("|---|" + "---|" * (len(NAMES) + 1))
        for line in lines:
            if line.configuration == c:
                cells = zip(*(_values(s) for s in _columns(line)), strict=True)
                shown = " | ".join(" / ".join(f"{value:.4g}" for value in cell) for cell in cells)
                text.append(f"| {line.mechanism} | {shown} | {line.explanation()} |")
    return text
