"""The numbers and the picture of docs/inference.md, written from finished runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from curvedp.errors import InvalidInput
from curvedp_studies.coverage.cells import ADJACENCIES, EPSILONS, Score
from curvedp_studies.coverage.criteria import BAND, criteria, inside
from curvedp_studies.coverage.groups import GroupScore, group_table
from curvedp_studies.coverage.noise import RIGHT, NoiseScore
from curvedp_studies.coverage.rivals import METHODS, FieldScore
from curvedp_studies.coverage.synthetic import NAMES
from curvedp_studies.pages import fill
from curvedp_studies.resume import read_rows

FIGURE = "inference"
MANY = 40  # populations: more are counted, not shown


def document(
    page: Path,
    scores: Path | None = None,
    noise: Path | None = None,
    field: Path | None = None,
    groups: Path | None = None,
    **cells: Path | None,
) -> list[Path]:
    """Fill the marked parts of `page` whose numbers are given; the figure and the CSV go beside it.

    `cells` are coverage.csv of some populations, each for the mark of its name.
    """
    missing = [
        path
        for path in (page, scores, noise, field, groups, *cells.values())
        if path is not None and not path.exists()
    ]
    if missing:
        raise InvalidInput(f"there is no file {missing[0]}")
    files = [page]
    if scores is not None:
        told = read_rows(scores, Score)
        fill(page, {"criteria": criteria_table(told), "coverage": coverage_tables(told)})
        figures = page.parent / "figures"
        figures.mkdir(exist_ok=True)
        csv = page.with_suffix(".csv")
        if scores.resolve() != csv.resolve():
            shutil.copyfile(scores, csv)
        files += [csv, *draw(told, figures)]
    if noise is not None:
        fill(page, {"noise": noise_table(read_rows(noise, NoiseScore))})
    if field is not None:
        fill(page, {"field": field_table(read_rows(field, FieldScore))})
    for name, path in cells.items():
        if path is not None:
            told = read_rows(path, Score)
            shown = [a for a in ADJACENCIES if any(score.adjacency == a for score in told)]
            many = len({score.population for score in told}) > MANY
            lines = [line for a in shown for line in _of_adjacency(told, a)]
            fill(page, {name: many_tables(told) if many else lines})
    if groups is not None:
        fill(page, {"groups": group_table(read_rows(groups, GroupScore))})
    return files


def criteria_table(scores: Sequence[Score]) -> list[str]:
    rows = [f"| {c.asked} | {c.measured} | {'yes' if c.met else 'no'} |" for c in criteria(scores)]
    return ["| asked | measured | met |", "|---|---|---|", *rows]


def coverage_tables(scores: Sequence[Score]) -> list[str]:
    """By population; then cell by cell, one table for each adjacency."""
    lines = [
        "| population | cells | inside | below | above | least | worst coefficient | widths | refused |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(score.population for score in scores):
        told = [score for score in scores if score.population == name and score.counts]
        if not told:
            lines.append(f"| {name} | 0 | | | | | | | 100 % |")
            continue
        widths = [score.width for score in told]
        lines.append(
            f"| {name} | {len(told)} | {sum(map(inside, told))} | {sum(s.coverage < BAND[0] for s in told)} "
            f"| {sum(s.coverage > BAND[1] for s in told)} | {min(s.coverage for s in told):.3f} "
            f"| {_number(np.nanmin([s.worst for s in told]), 2)} | {min(widths):.2f} … {max(widths):.2f} "
            f"| {100 * np.mean([s.refused for s in told]):.0f} % |"
        )
    runs = sorted({score.runs for score in scores if score.runs})
    shown = " or ".join(str(number) for number in runs)
    lines += ["", f"Cells in which something is stated; {shown} runs each."]
    mostly = [score for score in scores if score.counts and score.refused <= 0.5]
    if mostly:
        share = 100 * np.mean([inside(score) for score in mostly])
        lines.append(f"Where at most half is refused, {share:.0f} % of {len(mostly)} cells lie inside.")
    for adjacency in dict.fromkeys(score.adjacency for score in scores):
        lines += ["", f"<details><summary>Every cell, {adjacency}</summary>", ""]
        lines += [*_cells([score for score in scores if score.adjacency == adjacency]), "", "</details>"]
    return lines


def many_tables(scores: Sequence[Score]) -> list[str]:
    """Of each adjacency and ε: how many cells cover how much, those that cover least, medians of the rest."""
    lines = [
        "| | tables with intervals | below 0.92 | 0.92 … 0.98 | above | median | least | width | refused |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for adjacency, epsilon in dict.fromkeys((score.adjacency, score.epsilon) for score in scores):
        tried = [s for s in scores if (s.adjacency, s.epsilon) == (adjacency, epsilon)]
        told = sorted((s for s in tried if s.counts), key=lambda score: score.coverage)
        coverage, refused = np.array([s.coverage for s in told]), np.array([s.refused for s in tried])
        least = ", ".join(f"{s.population.split('/')[-1]} {s.coverage:.2f}" for s in told[:3])
        lines.append(
            f"| {adjacency}, ε = {epsilon:g} | {len(told)} | {(coverage < 0.92).sum()} "
            f"| {((coverage >= 0.92) & (coverage <= 0.98)).sum()} | {(coverage > 0.98).sum()} "
            f"| {np.median(coverage):.3f} | {least} | {np.median([s.width for s in told]):.2f} "
            f"| {100 * np.median(refused):.0f} %, mean {100 * refused.mean():.0f} % |"
        )
    runs = max(score.runs for score in scores)
    return [*lines, "", f"{runs} runs each; {len(tried)} tables, refused ones included."]


def _cells(scores: Sequence[Score]) -> list[str]:
    """Coverage (worst coefficient) · width · refused, for each population and n; "—" where all is refused."""
    by_cell = {(s.population, s.n, s.epsilon): s for s in scores}
    levels = [level for level in EPSILONS if any(score.epsilon == level for score in scores)]
    lines = [
        "| population | n | " + " | ".join(f"ε = {level:g}" for level in levels) + " |",
        "|---|---|" + "---|" * len(levels),
    ]
    for name, n in dict.fromkeys((score.population, score.n) for score in scores):
        cells = [by_cell.get((name, n, level)) for level in levels]
        if any(cell is not None and cell.counts for cell in cells):
            lines.append(f"| {name} | {n} | " + " | ".join(map(_shown, cells)) + " |")
    return lines


def _of_adjacency(scores: Sequence[Score], adjacency: str) -> list[str]:
    here = [score for score in scores if score.adjacency == adjacency]
    runs = " or ".join(str(number) for number in sorted({score.runs for score in here}))
    return [f"{adjacency}, {runs} runs each:", "", *_cells(here), ""]


def _shown(score: Score | None) -> str:
    if score is None:
        return ""
    if not score.counts:
        return "—"
    worst = _number(score.worst, 2)
    return f"{score.coverage:.3f} ({worst}) · {score.width:.2f} · {100 * score.refused:.0f} %"


def noise_table(scores: Sequence[NoiseScore]) -> list[str]:
    lines = [
        "| table | n | ε | κ | withheld | right | least · median · largest | right (median) | largest |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for score in scores:
        spread = " · ".join(_number(value, 2) for value in (score.least, score.median, score.largest))
        right, of_median = (
            "—" if np.isnan(share) else f"{100 * share:.0f} %"
            for share in (score.right, score.right_of_median)
        )
        lines.append(
            f"| {score.population} | {score.n} | {score.epsilon:g} | {score.kappa:.0f} "
            f"| {100 * score.withheld:.0f} % | {right} | {spread} | {of_median} "
            f"| {_number(score.largest_of_median, 2)} |"
        )
    refits = " or ".join(str(number) for number in sorted({score.refits for score in scores}))
    return [*lines, "", f"{refits} refits of each table. Right: within [{RIGHT[0]}, {RIGHT[1]}]."]


def field_table(scores: Sequence[FieldScore]) -> list[str]:
    """Coverage · width, methods in rows."""
    cells = list(dict.fromkeys((s.population, s.n, s.epsilon) for s in scores))
    by_point = {score.point: score for score in scores}
    lines: list[str] = []
    for population in dict.fromkeys(cell[0] for cell in cells):
        here = [cell for cell in cells if cell[0] == population]
        heads = " | ".join(f"n = {n:,}, ε = {epsilon:g}" for _, n, epsilon in here)
        lines += [f"| {population} | {heads} |", "|---|" + "---|" * len(here)]
        for method in dict.fromkeys((*METHODS, *(score.method for score in scores))):
            if not any(score.method == method for score in scores):
                continue
            shown = [_rival(by_point.get((method, *cell))) for cell in here]
            lines.append(f"| {method} | " + " | ".join(shown) + " |")
        lines.append("")
    runs = " or ".join(str(number) for number in sorted({score.runs for score in scores}))
    return [*lines, f"Coverage · width over the interval without privacy · refused; {runs} runs each."]


def _rival(score: FieldScore | None) -> str:
    if score is None:
        return ""
    if np.isnan(score.coverage):
        return "— · — · 100 %"
    return f"{score.coverage:.2f} · {score.width:.1f} · {100 * score.refused:.0f} %"


def _number(value: float, digits: int) -> str:
    return "—" if np.isnan(value) else f"{value:.{digits}f}"


def draw(scores: Sequence[Score], folder: Path) -> list[Path]:
    """Coverage against width, one point per cell."""
    from curvedp_studies.drawing import canvas, pictures

    told = [score for score in scores if score.counts]
    groups: list[tuple[str, Callable[[Score], bool], str, str]] = [
        ("generated", lambda score: score.population in NAMES, "#31688e", "o"),
        ("real table", lambda score: score.population not in NAMES, "#d1495b", "s"),
    ]
    with canvas(folder, FIGURE, (7.0, 4.2)) as figure:
        axes = figure.add_subplot()
        axes.axhspan(*BAND, color="#2a9d8f", alpha=0.15, linewidth=0)
        axes.axhline(0.95, color="#2a9d8f", linewidth=1.0)
        for label, belongs, color, marker in groups:
            part = [score for score in told if belongs(score)]
            sizes = [10.0 + 40.0 * (1.0 - score.refused) for score in part]
            x, y = [score.width for score in part], [score.coverage for score in part]
            axes.scatter(x, y, s=sizes, c=color, marker=marker, alpha=0.55, linewidths=0, label=label)
        for score in _lowest(told):
            at = (score.width, score.coverage)
            axes.annotate(score.population, at, (4, -3), textcoords="offset points", fontsize=7)
        axes.set_xscale("log")
        widest = max(score.width for score in told)
        ticks = [tick for tick in (1, 1.5, 2, 3, 5, 8, 12, 20, 40, 80) if tick <= 1.2 * widest]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("width over the interval without privacy (median)")
        axes.set_ylabel("coverage of 95 % intervals")
        axes.legend(loc="lower right", frameon=False)
    return pictures(folder, FIGURE)


def _lowest(told: Sequence[Score]) -> list[Score]:
    """The lowest cell of every population that has one below the band."""
    low: dict[str, Score] = {}
    for score in sorted(told, key=lambda score: score.coverage):
        if score.coverage < BAND[0]:
            low.setdefault(score.population, score)
    return list(low.values())
