"""The tables and pictures of docs/others.md: others' numbers as quoted, ours as measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curvedp_studies.coverage.cells import ADJACENCIES
from curvedp_studies.others import quoted
from curvedp_studies.others.card import EPSILONS, TERMS, CardScore
from curvedp_studies.others.simulations import AWAN_WANG, BINAGG, SimulationScore
from curvedp_studies.others.tables import TableScore
from curvedp_studies.pages import fill

COVERS = 0.93  # the least coverage that counts as that of a 95 % interval
LOST = "†"
_COLOURS = ("#31688e", "#d1495b", "#e08214", "#6a3d9a", "#2a9d8f")
_THEIRS = {"BinAgg": ("#e08214", "s"), "DP-CI-ERM": ("#8c6d1f", "D"), "repro samples": ("#6a3d9a", "^")}


def document(
    folder: Path,
    page: Path | None,
    asked: Sequence[CardScore],
    simulated: Sequence[SimulationScore],
    predicted: Sequence[TableScore],
) -> list[Path]:
    """Pictures into the folder, or beside the page, whose marked parts are filled."""
    pictures = folder if page is None else page.parent / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = [*draw_card(asked, pictures), *draw_intervals(simulated, pictures)]
    if page is None:
        return drawn
    parts = {
        "card": card_table(asked),
        "binagg": interval_table(simulated, BINAGG, "μ"),
        "tables": prediction_table(predicted),
        "awan": interval_table(simulated, AWAN_WANG, "ε"),
        "sources": sources(),
    }
    return [fill(page, parts), *drawn]


def card_table(scores: Sequence[CardScore]) -> list[str]:
    """One row for each ε and adjacency: ranges over the five coefficients, and theirs."""
    lines = [
        "| | ε | interval ratio | overlap | sign | significance | refused |",
        "|---|---|---|---|---|---|---|",
    ]
    for quote in (quote for quote in quoted.quotes() if quote.source == "urban"):
        if quote.measure == "overlap":
            ratios = [q for q in quoted.quotes() if q.method == quote.method and q.measure == "ratio"]
            ratio = f"{ratios[0].low:g} … {ratios[0].high:g}" if ratios else ""
            shared = f"{quote.low:g} … {quote.high:g}".replace("-", "−")
            lines.append(f"| theirs: {quote.method} | {quote.level:g} | {ratio} | {shared} | | | |")
    for adjacency in ADJACENCIES:
        for epsilon in EPSILONS:
            here = [s for s in scores if (s.epsilon, s.adjacency) == (epsilon, adjacency)]
            if here:
                lines.append(
                    f"| ours, {adjacency} | {epsilon:g} | {_range([s.ratio for s in here])} "
                    f"| {_range([s.overlap for s in here])} | {_share([s.sign for s in here])} "
                    f"| {_share([s.significance for s in here])} | {_share([s.refused for s in here])} |"
                )
    runs = _numbers(score.runs for score in scores)
    return [*lines, "", f"Medians of {runs} fits, least and largest of the five coefficients."]


def _range(values: Sequence[float]) -> str:
    stated = [value for value in values if np.isfinite(value)]
    return f"{min(stated):.2f} … {max(stated):.2f}" if stated else "—"


def _share(values: Sequence[float]) -> str:
    low, high = (f"{100 * value:.0f}" for value in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low} … {high} %"


def _numbers(values: Any) -> str:
    return " or ".join(str(number) for number in sorted(set(values)))


def lost(score: SimulationScore) -> bool:
    """Whether it refuses more than half or covers too little, or a method that covers is narrower."""
    if score.refused > 0.5 or not score.coverage >= COVERS:
        return True
    others = quoted.theirs(score.paper, score.n, score.level).values()
    return any(other["coverage"] >= COVERS and other["width"] < score.width for other in others)


def interval_table(scores: Sequence[SimulationScore], paper: str, level: str) -> list[str]:
    """Coverage · mean width of every published cell: theirs and ours."""
    by_point = {score.point: score for score in scores}
    methods = list(dict.fromkeys(quote.method for quote in quoted.quotes() if quote.setting == paper))
    names = " | ".join([*methods, *(f"ours, {adjacency}" for adjacency in ADJACENCIES)])
    lines = [
        f"| n | {level} | {names} | without privacy |",
        "|---|---|" + "---|" * (len(methods) + len(ADJACENCIES) + 1),
    ]
    for n, value in quoted.cells(paper):
        found = [by_point.get((paper, n, value, adjacency)) for adjacency in ADJACENCIES]
        there = [score for score in found if score is not None]
        if there:
            theirs = quoted.theirs(paper, n, value)
            shown = [f"{theirs[name]['coverage']:g} · {theirs[name]['width']:g}" for name in methods]
            row = " | ".join([*shown, *map(_interval, found)])
            lines.append(f"| {n:,} | {value:g} | {row} | {there[0].plain:.3g} |")
    runs = _numbers(score.runs for score in scores if score.paper == paper)
    note = "Coverage ± its standard error · mean width (median), share refused"
    return [*lines, "", f"{note}; {runs} runs each. {LOST} marks a cell that is lost."]


def _interval(score: SimulationScore | None) -> str:
    if score is None:
        return ""
    mark = f" {LOST}" if lost(score) else ""
    if not np.isfinite(score.coverage):
        return f"refused{mark}"
    refused = f", {100 * score.refused:.1f} %" if score.refused else ""
    held = f"{score.coverage:.3f} ± {score.coverage_error:.3f}"
    return f"{held} · {score.width:.3g} ({score.median:.3g}){refused}{mark}"


def prediction_table(scores: Sequence[TableScore]) -> list[str]:
    """RelMSE of every published table; ours where a package ships it."""
    methods = ("OLS", "BinAgg", "AdaSSP", "DP-GD")
    by_point = {score.point: score for score in scores}
    names = " | ".join([*methods, "OLS, ours", *(f"ours, {adjacency}" for adjacency in ADJACENCIES)])
    lines = [f"| table | n | {names} |", "|---|---|" + "---|" * (len(methods) + 1 + len(ADJACENCIES))]
    published = {quote.setting: quote.n for quote in quoted.quotes() if quote.source == "binagg"}
    for name, n in published.items():
        theirs = quoted.theirs(name, n or 0, 1.0)
        row = [f"{theirs[method]['relmse']:g}" if method in theirs else "" for method in methods]
        found = [by_point.get((name, adjacency)) for adjacency in ADJACENCIES]
        there = [score for score in found if score is not None]
        row.append(f"{there[0].plain:.3f}" if there else "not to be had")
        for score in found:
            private = [entry["relmse"] for method, entry in theirs.items() if method != "OLS"]
            mark = f" {LOST}" if score is not None and score.relmse > min(private) else ""
            row.append("" if score is None else f"{score.relmse:.4f} ± {score.deviation:.4f}{mark}")
        lines.append(f"| {name} | {n:,} | " + " | ".join(row) + " |")
    runs = _numbers(score.runs for score in scores)
    return [*lines, "", f"RelMSE; ours mean ± deviation of {runs} fits."]


def sources() -> list[str]:
    """Where the quoted numbers were read."""
    lines = ["| read in | setting |", "|---|---|"]
    return lines + [f"| {source.cited} | {source.setting} |" for source in quoted.SOURCES.values()]


def draw_card(scores: Sequence[CardScore], folder: Path) -> list[Path]:
    """Overlap and interval ratio of the five coefficients against ε; bars are quartiles of the fits."""
    from curvedp_studies.drawing import canvas, pictures

    with canvas(folder, "others-card", (7.6, 5.0)) as figure:
        panels = figure.subplots(2, 2, sharex=True, sharey="row")
        for axes, adjacency in zip(panels.T, ADJACENCIES, strict=True):
            for index, (term, colour) in enumerate(zip(TERMS, _COLOURS, strict=True)):
                here = [s for s in scores if (s.adjacency, s.term) == (adjacency, term)]
                x = [EPSILONS.index(s.epsilon) + 0.12 * (index - 2) for s in here]
                for panel, name in zip(axes, ("overlap", "ratio"), strict=True):
                    middle, low, high = (
                        np.array([getattr(s, name + end) for s in here]) for end in ("", "_low", "_high")
                    )
                    bars = [middle - low, high - middle]
                    panel.errorbar(x, middle, bars, fmt="o", ms=4, color=colour, label=term, elinewidth=1.0)
            axes[0].set_title(adjacency, fontsize=9)
            axes[0].axhline(1.0, color="#6b7280", linewidth=0.8)
            axes[1].axhline(1.0, color="#6b7280", linewidth=0.8)
            axes[1].set_yscale("log")
            _plain_ticks(axes[1].yaxis, (1, 2, 3, 5, 10))
            axes[1].set_xticks(range(len(EPSILONS)), [f"{epsilon:g}" for epsilon in EPSILONS])
            axes[1].set_xlabel("ε")
        panels[0, 0].set_ylabel("overlap with the OLS interval")
        panels[1, 0].set_ylabel("width over the OLS interval")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(TERMS), frameon=False)
    return pictures(folder, "others-card")


def draw_intervals(scores: Sequence[SimulationScore], folder: Path) -> list[Path]:
    """Coverage and width in two papers' cells, theirs and ours; bars are two standard errors."""
    from curvedp_studies.drawing import canvas, pictures

    ours = dict(zip(ADJACENCIES, _COLOURS, strict=False))
    with canvas(folder, "others-intervals", (7.6, 5.2)) as figure:
        panels = figure.subplots(2, 2, sharex="col", width_ratios=(4, 8))
        for axes, (paper, level) in zip(panels.T, ((BINAGG, "μ"), (AWAN_WANG, "ε")), strict=True):
            cells = quoted.cells(paper)
            methods = list(dict.fromkeys(quote.method for quote in quoted.quotes() if quote.setting == paper))
            for name in methods:
                colour, marker = _THEIRS[name]
                found = [quoted.theirs(paper, *cell)[name] for cell in cells]
                for panel, measure in zip(axes, ("coverage", "width"), strict=True):
                    values = [entry[measure] for entry in found]
                    panel.plot(range(len(cells)), values, marker, ms=5, color=colour, label=name)
            for index, (adjacency, colour) in enumerate(ours.items()):
                here = [s for s in scores if (s.paper, s.adjacency) == (paper, adjacency)]
                x = [cells.index((s.n, s.level)) + 0.14 * (2 * index - 1) for s in here]
                for panel, measure in zip(axes, ("coverage", "width"), strict=True):
                    values = [getattr(s, measure) for s in here]
                    bars = [2.0 * getattr(s, f"{measure}_error") for s in here]
                    label = f"ours, {adjacency}"
                    panel.errorbar(x, values, bars, fmt="o", ms=4, color=colour, label=label, elinewidth=1.0)
            plain = {cells.index((s.n, s.level)): s.plain for s in scores if s.paper == paper}
            axes[1].plot([*plain], [*plain.values()], "_", ms=12, color="#6b7280", label="without privacy")
            axes[0].axhline(0.95, color="#2a9d8f", linewidth=1.0)
            axes[0].set_ylim(top=1.01)
            axes[0].set_title(paper, fontsize=9)
            axes[1].set_yscale("log")
            _plain_ticks(
                axes[1].yaxis, (0.02, 0.05, 0.1, 0.2, 0.5) if paper == BINAGG else (0.3, 0.5, 1, 2, 3)
            )
            names = [f"{value:g}" if paper == BINAGG else f"{value:g}\n{n:,}" for n, value in cells]
            axes[1].set_xticks(range(len(cells)), names)
            axes[1].set_xlabel(level if paper == BINAGG else f"{level} above, n below")
        panels[0, 0].set_ylabel("coverage of 95 % intervals")
        panels[1, 0].set_ylabel("mean width")
        legend: dict[str, Any] = {}
        for panel in panels[1]:
            legend |= {
                label: handle for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
            }
        figure.legend([*legend.values()], [*legend], loc="outside lower center", ncols=3, frameon=False)
    return pictures(folder, "others-intervals")


def _plain_ticks(axis: Any, ticks: Sequence[float]) -> None:
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)
