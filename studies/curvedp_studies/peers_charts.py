"""Score against ε, one panel per table: the tables in one picture, those of unit/ in another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvedp_studies.drawing import canvas, pictures
from curvedp_studies.peers_data import UNIT
from curvedp_studies.peers_names import (
    ADASSP_REFERENCE,
    CLAIMED,
    FRESH,
    IHM_REFERENCE,
    NONPRIVATE,
    ZERO,
    shown,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from curvedp_studies.peers_report import Summary

_THIN: dict[str, Any] = {"linewidth": 1.1, "marker": "o", "ms": 2.5}
STYLES: dict[str, dict[str, Any]] = {
    FRESH: {**_THIN, "color": "C0"},
    CLAIMED: {**_THIN, "color": "C0", "linestyle": ":"},
    "statistics": {**_THIN, "color": "C2"},
    "adassp": {**_THIN, "color": "C1"},
    "ihm": {**_THIN, "color": "C4"},
    IHM_REFERENCE: {**_THIN, "color": "C4", "linestyle": ":"},
    ADASSP_REFERENCE: {**_THIN, "color": "C1", "linestyle": ":"},
    "dp_newton": {**_THIN, "color": "C5"},
}
_OWN: dict[str, Any] = {"linewidth": 2.2, "color": "C3", "zorder": 5, "marker": "o", "ms": 3}
_LEVELS: tuple[tuple[str, dict[str, Any]], ...] = (
    (NONPRIVATE, {"color": "0.35", "linestyle": "--"}),
    (ZERO, {"color": "0.6", "linestyle": ":"}),
)


def draw(summaries: Sequence[Summary], folder: Path, first: str) -> list[Path]:
    """comparison.png and .svg, comparison-unit.png and .svg: whichever has tables."""
    written: list[Path] = []
    for name, part in _parts(summaries).items():
        _picture(part, folder, name, first)
        written += pictures(folder, name)
    return written


def drawn_names(summaries: Sequence[Summary]) -> list[str]:
    """The pictures that `draw` makes."""
    return list(_parts(summaries))


def _parts(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    parts = {
        "comparison": [s for s in summaries if not s.is_unit],
        "comparison-unit": [s for s in summaries if s.is_unit],
    }
    return {name: part for name, part in parts.items() if part}


def _picture(summaries: Sequence[Summary], folder: Path, name: str, first: str) -> None:
    datasets = list(dict.fromkeys(s.dataset for s in summaries))
    columns = min(4, len(datasets))
    lines = math.ceil(len(datasets) / columns)
    with canvas(folder, name, (max(3.2 * columns, 6.4), 2.4 * lines + 0.9)) as figure:
        axes = figure.subplots(lines, columns, squeeze=False)
        for axis in axes.ravel()[len(datasets) :]:
            axis.axis("off")
        for axis, dataset in zip(axes.ravel(), datasets, strict=False):
            _panel(axis, [s for s in summaries if s.dataset == dataset and s.covered], first)
            axis.set_title(dataset.removeprefix(f"{UNIT}/"))
            axis.set_xlabel("ε")
        handles: dict[str, Artist] = {}
        for axis in axes.ravel():
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        columns = 4 if columns > 2 else 2
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False
        )


def _panel(axis: Axes, cells: Sequence[Summary], first: str) -> None:
    for mechanism, style in _LEVELS:
        for s in cells:
            if s.mechanism == mechanism:
                axis.axhline(s.median, linewidth=1.1, label=shown(mechanism), **style)
    seen = [s.median for s in cells if s.mechanism in (first, NONPRIVATE, ZERO, FRESH)]
    for mechanism, style in ((first, _OWN), *STYLES.items()):
        curve = sorted(
            (s for s in cells if s.mechanism == mechanism and s.adjacency == "add_remove"),
            key=lambda s: s.epsilon,
        )
        if not curve or (mechanism == first and style is not _OWN):
            continue
        x = [s.epsilon for s in curve]
        axis.plot(x, [s.median for s in curve], label=shown(mechanism), **style)
        if mechanism == first:
            axis.fill_between(x, [s.lower for s in curve], [s.upper for s in curve], color="C3", alpha=0.2)
    top = max([*seen, 0.0])
    low = max(min([*seen, top]), top - 1.0)
    margin = max(0.06 * (top - low), 0.005)
    axis.set_ylim(low - margin, top + margin)
    axis.set_xscale("log")
    levels = sorted({s.epsilon for s in cells if math.isfinite(s.epsilon)})
    axis.set_xticks(levels, [f"{e:g}" for e in levels])
    axis.minorticks_off()
