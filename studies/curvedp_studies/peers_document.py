"""The numbers of docs/comparison.md, written from a finished comparison between the marks of the page."""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from curvedp.errors import InvalidInput
from curvedp_studies.peers_charts import drawn_names
from curvedp_studies.peers_data import UNIT
from curvedp_studies.peers_names import (
    ADASSP_REFERENCE,
    CHOSEN_ON,
    CLAIMED,
    FRESH,
    IHM_REFERENCE,
    NONPRIVATE,
    PLAIN,
    ZERO,
    shown,
)
from curvedp_studies.peers_report import FEWEST, TIE, Key, Summary, Tally, below_zero, by_cell, tallies

BEGIN, END = "<!-- results -->", "<!-- end of results -->"
_NO_PEER = (FRESH, CLAIMED, PLAIN, NONPRIVATE, ZERO, IHM_REFERENCE, ADASSP_REFERENCE)


def document(summaries: Sequence[Summary], results: Path, page: Path, first: str) -> list[Path]:
    """Put the tables between the marks of `page`, and the pictures and summary.csv of `results` beside it."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise InvalidInput(f"{page} must hold the marks {BEGIN} and {END}")
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    shutil.copy(results / "summary.csv", page.with_suffix(".csv"))
    figures = page.parent / "figures"
    figures.mkdir(exist_ok=True)
    drawn = [results / f"{name}.png" for name in drawn_names(summaries)]
    for picture in drawn:
        shutil.copy(picture, figures / picture.name)
    shown_there = "\n".join(f"![Score against ε](figures/{picture.name})\n" for picture in drawn)
    found = f"{BEGIN}\n\n{tables(summaries, first)}\n{shown_there}\n{END}"
    page.write_text(head + found + tail, encoding="utf-8")
    return [page, page.with_suffix(".csv"), *(figures / picture.name for picture in drawn)]


def tables(summaries: Sequence[Summary], first: str) -> str:
    """Everything between the marks."""
    real = [s for s in summaries if not s.is_unit]
    unit = [s for s in summaries if s.is_unit]
    parts = [
        _counts(summaries),
        "### Won, tied, lost",
        _wins(summaries, first),
        _constant(summaries, first),
    ]
    if real:
        parts += ["### Cell by cell", _scores(real, first)]
        if classes := _classes(real, first):
            parts += ["### Classes: area under the curve and log-loss", classes]
    if unit:
        parts += [
            "### The small and awkward tables of `unit/`",
            _unit(unit, first),
        ]
    if replaced := _replace(summaries, first):
        parts += ["### `replace` beside `add_remove`", replaced]
    return "\n\n".join(parts) + "\n"


def _counts(summaries: Sequence[Summary]) -> str:
    names = dict.fromkeys(s.dataset for s in summaries)
    used = [name for name in names if name in CHOSEN_ON]
    held_out = [name for name in names if name not in CHOSEN_ON]
    seeds = max(s.seeds for s in summaries)
    return _wrapped(
        f"Medians of {seeds} seeds. The rule was chosen on {', '.join(used) or 'none of these tables'}; "
        f"held out: {', '.join(held_out) or 'none'}."
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 115, break_long_words=False, break_on_hyphens=False)


def _triple(tally: Tally | None) -> str:
    return f"{tally.wins} / {tally.ties} / {tally.losses}" if tally and tally.cells else "—"


def _worst(tally: Tally | None) -> str:
    return f"{tally.worst:+.3f}" if tally and tally.cells else "—"


def _wins(summaries: Sequence[Summary], first: str) -> str:
    real = [s for s in summaries if not s.is_unit]
    groups = (
        real,
        [s for s in real if s.dataset in CHOSEN_ON],
        [s for s in real if s.dataset not in CHOSEN_ON],
        [s for s in summaries if s.is_unit],
    )
    whole, used, held_out, unit = ({t.mechanism: t for t in tallies(part, first)} for part in groups)
    lines = [
        "| against | tables: won / tied / lost | worst | of these chosen on | held out | unit | worst |",
        "|---|---|---|---|---|---|---|",
    ]
    for tally in tallies(summaries, first):
        name = tally.mechanism
        lines.append(
            f"| {shown(name)} | {_triple(whole.get(name))} | {_worst(whole.get(name))} "
            f"| {_triple(used.get(name))} | {_triple(held_out.get(name))} "
            f"| {_triple(unit.get(name))} | {_worst(unit.get(name))} |"
        )
    lines += [
        "",
        f"A difference of at most {TIE:g} is a tie: of R² or accuracy, on `unit/` of the error of zero.",
    ]
    return "\n".join(lines)


def _constant(summaries: Sequence[Summary], first: str) -> str:
    flagged = [s for s in below_zero(summaries, first) if s.adjacency == "add_remove"]
    seen = [s for s in flagged if s.n_mu >= FEWEST]
    named = ", ".join(f"{s.dataset} ε = {s.epsilon:g}" for s in flagged)
    return _wrapped(
        f"Worse than θ = 0 by more than 1 % of its error: {len(seen)} cells with nμ ≥ {FEWEST:g}, "
        f"{len(flagged)} in all{f' ({named})' if named else ''}."
    )


def _with_quartiles(s: Summary | None) -> str:
    return f"{s.median:.3f} [{s.lower:.3f}, {s.upper:.3f}]" if s else "—"


def _median(s: Summary | None) -> str:
    return f"{s.median:.3f}" if s else "—"


def _bold_where_better(text: str, s: Summary | None, own: Summary) -> str:
    return f"**{text}**" if s and s.median - own.median > TIE else text


def _own_cells(cells: dict[Key, Summary], first: str) -> list[Summary]:
    return [s for (_, name, _), s in sorted(cells.items()) if name == first]


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *(list(line) for line in lines))
    )


def _scores(summaries: Sequence[Summary], first: str) -> str:
    """Per table and ε: ours, the tuned descent both ways, the best of the others, θ = 0, no privacy."""
    cells = by_cell(summaries)
    flagged = {(s.dataset, s.epsilon) for s in below_zero(summaries, first) if s.adjacency == "add_remove"}
    lines = []
    for own in _own_cells(cells, first):
        d, e = own.dataset, own.epsilon
        others = [s for (name, m, level), s in cells.items() if (name, level) == (d, e)]
        peers = [s for s in others if s.mechanism not in (first, *_NO_PEER)]
        best = max(peers, key=lambda s: s.median, default=None)
        fresh, claimed = cells.get((d, FRESH, e)), cells.get((d, CLAIMED, e))
        lines.append(
            [
                d if d in CHOSEN_ON else f"{d}*",
                f"{e:g}",
                f"{own.kappa:.3g}",
                _with_quartiles(own),
                _bold_where_better(_with_quartiles(fresh), fresh, own),
                _bold_where_better(_median(claimed), claimed, own),
                _bold_where_better(f"{best.median:.3f} ({shown(best.mechanism)})", best, own)
                if best
                else "—",
                _median(cells.get((d, ZERO, math.inf))) + (" !" if (d, e) in flagged else ""),
                _median(cells.get((d, NONPRIVATE, math.inf))),
            ]
        )
    head = [
        "table",
        "ε",
        "κ",
        f"{shown(first)} [quartiles]",
        "tuned descent, fresh noise",
        "as claimed",
        "best of the others",
        "θ = 0",
        "no privacy",
    ]
    note = (
        "R² or accuracy. κ = nμ/(dρ). \\* held out: not used to choose the rule. Bold: better than ours "
        "by more than 0.01. θ = 0 predicts the middle of the range, or tosses a coin; ! ours is worse than "
        "that by more than 1 % of its error."
    )
    return _table(head, lines) + "\n\n" + _wrapped(note)


def _classes(summaries: Sequence[Summary], first: str) -> str:
    cells = by_cell(summaries)
    lines = []
    for own in _own_cells(cells, first):
        if math.isnan(own.log_loss):
            continue
        columns = [own, cells.get((own.dataset, FRESH, own.epsilon))]
        columns.append(cells.get((own.dataset, NONPRIVATE, math.inf)))
        shapes = ("median", "auc", "log_loss")
        lines.append(
            [own.dataset, f"{own.epsilon:g}"]
            + [" · ".join(_number(getattr(s, shape)) if s else "—" for shape in shapes) for s in columns]
        )
    if not lines:
        return ""
    head = ["table", "ε", shown(first), "tuned descent, fresh noise", "no privacy"]
    return _table(head, lines) + "\n\nAccuracy · area under the curve (two classes) · log-loss."


def _number(value: float) -> str:
    return "—" if math.isnan(value) else f"{value:.3f}"


def _unit(summaries: Sequence[Summary], first: str) -> str:
    cells = by_cell(summaries)
    flagged = {(s.dataset, s.epsilon) for s in below_zero(summaries, first) if s.adjacency == "add_remove"}
    rivals = (IHM_REFERENCE, ADASSP_REFERENCE, "ihm", "adassp", FRESH)
    lines = []
    for own in _own_cells(cells, first):
        found = [cells.get((own.dataset, rival, own.epsilon)) for rival in rivals]
        mark = " !" if (own.dataset, own.epsilon) in flagged else ""
        lines.append(
            [
                own.dataset.removeprefix(f"{UNIT}/"),
                f"{own.epsilon:g}",
                f"{own.n_mu:.3g}",
                f"{own.kappa:.3g}",
                _with_quartiles(own) + mark,
                *(_bold_where_better(_median(s), s, own) for s in found),
                _median(cells.get((own.dataset, NONPRIVATE, math.inf))),
            ]
        )
    head = ["table", "ε", "nμ", "κ", f"{shown(first)} [quartiles]", *map(shown, rivals), "no privacy"]
    note = (
        "1 − MSE/MSE of predicting 0, on test rows; δ = 1/n². Bold: better than ours by more than 0.01. ! "
        "worse than predicting 0 by more than 1 % of its error. Authors' code: medians of the "
        "benchmark's own code over its own splits of these tables, predictions not clipped."
    )
    return _table(head, lines) + "\n\n" + _wrapped(note)


def _replace(summaries: Sequence[Summary], first: str) -> str:
    add, swapped = by_cell(summaries), by_cell(summaries, "replace")
    lines = []
    for dataset in sorted({s.dataset for s in swapped.values()}):
        levels = sorted(e for (name, m, e) in swapped if name == dataset and m == first)
        lines += [
            [
                dataset,
                f"{e:g}",
                _with_quartiles(add.get((dataset, first, e))),
                _with_quartiles(swapped[dataset, first, e]),
            ]
            for e in levels
        ]
    if not lines:
        return ""
    head = ["table", "ε", "add_remove [quartiles]", "replace [quartiles]"]
    return _table(head, lines) + "\n\nThe same mechanism; a replaced record moves sums twice as far."
