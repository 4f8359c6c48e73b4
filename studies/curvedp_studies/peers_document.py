"""The numbers of docs/comparison.md, written from a finished comparison between the marks of the page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean

from curvedp_studies.pages import fill
from curvedp_studies.peers_data import UNIT
from curvedp_studies.peers_names import (
    ADASSP_REFERENCE,
    CLAIMED,
    CONSTANT,
    FIRST,
    FRESH,
    IHM_REFERENCE,
    NONPRIVATE,
    PLAIN,
    shown,
)
from curvedp_studies.peers_report import (
    FEWEST,
    TIE,
    Key,
    Summary,
    Tally,
    below_constant,
    by_cell,
    minus_log_loss,
    opponents,
    score_of,
    tally,
)

_NO_PEER = (FIRST, FRESH, CLAIMED, PLAIN, NONPRIVATE, CONSTANT, IHM_REFERENCE, ADASSP_REFERENCE)
_ADJACENCIES = ("add_remove", "replace")


def document(summaries: Sequence[Summary], page: Path) -> Path:
    """Put the tables between the marks of `page`."""
    return fill(page, {"results": tables(summaries)})


def tables(summaries: Sequence[Summary]) -> list[str]:
    """Everything between the marks."""
    real = [s for s in summaries if s.is_whole]
    unit = [s for s in summaries if s.is_unit]
    parts = ["### Won, tied, lost", "", *_wins(summaries), "", *_constants(summaries)]
    parts += _section("Cell by cell, add_remove", _scores(real, "add_remove"), _SCORES)
    parts += _section("Classes: accuracy, area under the curve, log-loss", _classes(real), _CLASSES)
    parts += _section("The small and awkward tables of `unit/`, add_remove", _unit(unit, "add_remove"), _UNIT)
    parts += _section("Bounds ten times too wide", _loose(summaries), _LOOSE)
    return parts + _section("From 200 to a million records", _sizes(summaries), _SIZES)


_SCORES = (
    "R² or accuracy: median [quartiles] worst. κ = nμ/(dρ). Bold: better than ours by more than 0.01; ! ours "
    "is worse than the constant answer by more than 1 % of its error, or log-loss. Those of replace are in "
    "[comparison.csv](comparison.csv)."
)
_CLASSES = (
    "Accuracy · area under the curve (two classes) · log-loss, medians. The best of the others by log-loss."
)
_UNIT = (
    "1 − MSE/MSE of predicting 0, on test rows; δ = 1/n². Bold: better than ours by more than 0.01. ! worse "
    "than predicting 0 by more than 1 % of its error. Authors' code: medians of the benchmark's own code "
    "over its own splits of these tables, predictions not clipped."
)
_LOOSE = "ε = 1. Declared ranges of the columns that are numbers, ten times as wide about the same middle."
_SIZES = (
    "ε = 1, n training records; medians. Bold: better than ours, of the same adjacency, by more than 0.01. "
    "! as above."
)


def _section(title: str, table: Sequence[str], note: str) -> list[str]:
    return ["", f"### {title}", "", *table, "", *_wrapped(note)] if len(table) > 2 else []


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 115, break_long_words=False, break_on_hyphens=False)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines)]


Group = tuple[str, Callable[[Summary], bool], Callable[[Summary], float]]
_GROUPS: tuple[Group, ...] = (
    ("tables, add_remove", lambda s: s.is_whole and s.adjacency == "add_remove", score_of),
    ("replace", lambda s: s.is_whole and s.adjacency == "replace", score_of),
    ("classes by log-loss, both", lambda s: s.is_whole, minus_log_loss),
    ("`unit/`, add_remove", lambda s: s.is_unit and s.adjacency == "add_remove", score_of),
    ("replace", lambda s: s.is_unit and s.adjacency == "replace", score_of),
    ("loose bounds, both", lambda s: s.is_loose, score_of),
    ("subsamples, both", lambda s: s.is_sized, score_of),
)


def _wins(summaries: Sequence[Summary]) -> list[str]:
    lines = [
        [shown(name)]
        + [_triple(tally((s for s in summaries if belongs(s)), name, value)) for _, belongs, value in _GROUPS]
        for name in opponents(summaries)
    ]
    seeds = max(s.seeds for s in summaries)
    note = (
        f"Won / tied / lost (worst), medians of {seeds} seeds. A difference of at most {TIE:g} is a tie: of "
        "R² or accuracy, on `unit/` of the error of zero."
    )
    return [*_table(["against", *(name for name, *_ in _GROUPS)], lines), "", *_wrapped(note)]


def _triple(found: Tally) -> str:
    return f"{found.wins} / {found.ties} / {found.losses} ({found.worst:+.3f})" if found.cells else "—"


def _constants(summaries: Sequence[Summary]) -> list[str]:
    flagged = below_constant(summaries)
    seen = [s for s in flagged if s.n_mu >= FEWEST]
    listed = ", ".join(f"{s.dataset} ε = {s.epsilon:g} {s.adjacency}" for s in flagged)
    named = f" ({listed})" if listed else ""
    total = sum(s.mechanism == FIRST for s in summaries)
    return _wrapped(
        "Worse than the constant answer by more than 1 % of its error, or of its log-loss: "
        f"{len(seen)} cells with nμ ≥ {FEWEST:g}, {len(flagged)} of {total} in all{named}."
    )


def _spread(s: Summary | None) -> str:
    return f"{s.median:.3f} [{s.lower:.3f}, {s.upper:.3f}] {s.worst:.3f}" if s else "—"


def _median(s: Summary | None) -> str:
    return f"{s.median:.3f}" if s else "—"


def _named(s: Summary | None) -> str:
    return f"{s.median:.3f} ({shown(s.mechanism)})" if s else "—"


def _bold_where_better(text: str, s: Summary | None, own: Summary) -> str:
    return f"**{text}**" if s and s.median - own.median > TIE else text


def _own_cells(cells: dict[Key, Summary]) -> list[Summary]:
    return [s for (_, name, _), s in sorted(cells.items()) if name == FIRST]


def _best(
    cells: dict[Key, Summary], own: Summary, value: Callable[[Summary], float] = score_of
) -> Summary | None:
    """The best of the others, none of which is tuned."""
    here = [s for (d, name, e), s in cells.items() if (d, e) == (own.dataset, own.epsilon)]
    return max((s for s in here if s.mechanism not in _NO_PEER), key=value, default=None)


def _mark(flagged: Sequence[Summary], s: Summary) -> str:
    return " !" if s in flagged else ""


def _scores(summaries: Sequence[Summary], adjacency: str) -> list[str]:
    """Per table and ε: ours, the tuned descent both ways, the best of the others, no privacy."""
    cells, flagged = by_cell(summaries, adjacency), below_constant(summaries)
    lines = []
    for own in _own_cells(cells):
        fresh, claimed = (cells.get((own.dataset, name, own.epsilon)) for name in (FRESH, CLAIMED))
        best = _best(cells, own)
        lines.append(
            [
                own.dataset,
                f"{own.epsilon:g}",
                f"{own.kappa:.3g}",
                _spread(own) + _mark(flagged, own),
                _bold_where_better(_spread(fresh), fresh, own),
                _bold_where_better(_median(claimed), claimed, own),
                _bold_where_better(_named(best), best, own),
                _median(cells.get((own.dataset, NONPRIVATE, math.inf))),
            ]
        )
    head = ["table", "ε", "κ", shown(FIRST), shown(FRESH), "as claimed", "best of the others", "no privacy"]
    return _table(head, lines)


def _classes(summaries: Sequence[Summary]) -> list[str]:
    lines = []
    both = [by_cell(summaries, adjacency) for adjacency in _ADJACENCIES]
    for own in _own_cells(both[0]):
        if math.isnan(own.log_loss):
            continue
        name, e = own.dataset, own.epsilon
        found = [cells.get((name, mechanism, e)) for mechanism in (FIRST, FRESH) for cells in both]
        found.append(_best(both[0], own, minus_log_loss))
        found += [both[0].get((name, mechanism, math.inf)) for mechanism in (CONSTANT, NONPRIVATE)]
        lines.append([name, f"{e:g}", *map(_three, found)])
    head = ["table", "ε", shown(FIRST), "replace", shown(FRESH), "replace", "best of the others"]
    return _table([*head, shown(CONSTANT), shown(NONPRIVATE)], lines)


def _three(s: Summary | None) -> str:
    return " · ".join(map(_number, (s.median, s.auc, s.log_loss))) if s else "—"


def _number(value: float) -> str:
    return "—" if math.isnan(value) else f"{value:.3f}"


def _unit(summaries: Sequence[Summary], adjacency: str) -> list[str]:
    cells, flagged = by_cell(summaries, adjacency), below_constant(summaries)
    rivals = (FRESH, IHM_REFERENCE, ADASSP_REFERENCE) if adjacency == "add_remove" else (FRESH,)
    lines = []
    for own in _own_cells(cells):
        found = [cells.get((own.dataset, rival, own.epsilon)) for rival in rivals]
        best = _best(cells, own)
        lines.append(
            [
                own.dataset.removeprefix(f"{UNIT}/"),
                f"{own.epsilon:g}",
                f"{own.n_mu:.3g}",
                f"{own.kappa:.3g}",
                _spread(own) + _mark(flagged, own),
                *(_bold_where_better(_median(s), s, own) for s in found),
                _bold_where_better(_named(best), best, own),
                _median(cells.get((own.dataset, NONPRIVATE, math.inf))),
            ]
        )
    head = ["table", "ε", "nμ", "κ", shown(FIRST), *map(shown, rivals), "best of the others", "no privacy"]
    return _table(head, lines)


def _loose(summaries: Sequence[Summary]) -> list[str]:
    """As given → ten times too wide, for ours and for the best of the others on loose bounds."""
    lines, changes = [], []
    for adjacency in _ADJACENCIES:
        cells = by_cell(summaries, adjacency)
        for loose in (s for s in _own_cells(cells) if s.is_loose):
            base = loose.dataset.partition("~")[0]
            tight = cells.get((base, FIRST, loose.epsilon))
            best = _best(cells, loose)
            given = cells.get((base, best.mechanism, loose.epsilon)) if best else None
            others = f"{_median(given)} → {_named(best)}"
            lines.append(
                [
                    base,
                    adjacency,
                    f"{_median(tight)} → {_spread(loose)}",
                    _bold_where_better(others, best, loose),
                ]
            )
            if tight and best and given:
                changes.append((loose.median - tight.median, best.median - given.median))
    if changes:
        own, others = (f"{fmean(side):+.3f}" for side in zip(*changes, strict=True))
        lines.append(["mean change", "", own, others])
    return _table(["table", "adjacency", shown(FIRST), "best of the others"], lines)


def _sizes(summaries: Sequence[Summary]) -> list[str]:
    both = [by_cell(summaries, adjacency) for adjacency in _ADJACENCIES]
    flagged = below_constant(summaries)
    lines = []
    for own in sorted((s for s in _own_cells(both[0]) if s.is_sized), key=lambda s: _sized(s.dataset)):
        base, n = _sized(own.dataset)
        ours = [cells.get((own.dataset, FIRST, own.epsilon)) for cells in both]
        others = [_best(cells, s) if s else None for cells, s in zip(both, ours, strict=True)]
        lines.append(
            [
                base,
                f"{n:,}",
                *(_median(s) + _mark(flagged, s) if s else "—" for s in ours),
                *(
                    _bold_where_better(_named(best), best, s) if s else "—"
                    for best, s in zip(others, ours, strict=True)
                ),
                _median(both[0].get((own.dataset, NONPRIVATE, math.inf))),
            ]
        )
    head = ["table", "n", shown(FIRST), "replace", "best of the others", "replace", "no privacy"]
    return _table(head, lines)


def _sized(dataset: str) -> tuple[str, int]:
    base, _, n = dataset.partition("@")
    return base, int(n)
