"""What variants of the rule do, in tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from curvedp_studies.accuracy.choose import (
    Field,
    Fold,
    Verdict,
    against_present,
    countable,
    leave_out,
    worse_than_zero,
)
from curvedp_studies.accuracy.opponents import DESCENT, PUBLISHED
from curvedp_studies.accuracy.results import Cell
from curvedp_studies.accuracy.variants import PRESENT


def report(field: Field, folds: int) -> list[str]:
    """Everything that is printed."""
    lines = [_size(field), "", *present_table(field), ""]
    if field.chosen_on:
        lines += ["### Left out", "", *fold_table(leave_out(field, folds)), ""]
    return [*lines, "### Every constant up and down", "", *variant_table(field)]


def _size(field: Field) -> str:
    seeds = sorted({cell.seeds for cell in field.cells})
    adjacencies = ", ".join(sorted({cell.adjacency for cell in field.cells}))
    runs = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    return (
        f"{len(field.variants)} variants, {len(field.chosen_on)} tables with opponents and "
        f"{len(field.unopposed)} without, {adjacencies}; medians of {runs} splits and noises."
    )


def present_table(field: Field) -> list[str]:
    """The rule as it stands."""
    with_opponents, others = field.of(PRESENT, field.chosen_on), field.of(PRESENT, field.unopposed)
    rows = [
        ("lost against the tuned descent, fresh noise", _lost(field, with_opponents, DESCENT)),
        *((f"lost against {name}, as published", _lost(field, with_opponents, name)) for name in PUBLISHED),
        ("worse than θ = 0 by 1 %, tables with opponents", _worse(with_opponents)),
        ("worse than θ = 0 by 1 %, tables without opponents", _worse(others)),
        (
            "a larger ε is worse, by more than 0.005 and twice the error",
            _not_monotone(field.of(PRESENT, field.tables)),
        ),
    ]
    return [
        "| the rule as it stands | cells |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows),
    ]


def _lost(field: Field, cells: Sequence[Cell], method: str) -> str:
    met = sum(
        any(o.method == method and (o.table, o.epsilon) == c.place[:2] for o in field.opponents)
        for c in cells
    )
    found = [(c, o) for c in cells for o in field.lost(c) if o.method == method]
    return _named(met, (f"{c.table} ε = {c.epsilon:g}: {c.score - o.score:+.3f}" for c, o in found))


def _worse(cells: Sequence[Cell]) -> str:
    found = [f"{c.table} ε = {c.epsilon:g}: {c.error:.3f}" for c in cells if worse_than_zero(c)]
    return _named(sum(map(countable, cells)), found)


def _not_monotone(cells: Sequence[Cell]) -> str:
    found = []
    for cell in cells:
        below = [c for c in cells if c.table == cell.table and c.epsilon < cell.epsilon]
        if any(c.score > cell.score + 0.005 + 2.0 * cell.se for c in below):
            found.append(f"{cell.table} ε = {cell.epsilon:g}")
    return _named(len(cells), found)


def _named(total: int, found: Iterable[str]) -> str:
    listed = list(found)
    return f"{len(listed)} of {total}" + (f" ({'; '.join(listed)})" if listed else "")


def fold_table(told: Sequence[Fold]) -> list[str]:
    lines = [
        "| left out | the others choose | lost | worse than 0 | mean score "
        "| present rule: lost | worse than 0 | mean score |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for fold in told:
        own, present = _columns(fold.held_out), _columns(fold.present)
        lines.append(f"| {', '.join(fold.tables)} | {fold.chosen} | {own} | {present} |")
    chosen, stands = ([getattr(fold, side) for fold in told] for side in ("held_out", "present"))
    lines.append(
        f"| together | | {_columns(_together(chosen, told))} | {_columns(_together(stands, told))} |"
    )
    return lines


def _together(verdicts: Sequence[Verdict], told: Sequence[Fold]) -> Verdict:
    tables = [len(fold.tables) for fold in told]
    mean = sum(v.loss * size for v, size in zip(verdicts, tables, strict=True)) / sum(tables)
    return Verdict(sum(v.lost for v in verdicts), sum(v.worse for v in verdicts), mean)


def _columns(verdict: Verdict) -> str:
    return f"{verdict.lost} | {verdict.worse} | {-verdict.loss:.4f}"


def variant_table(field: Field) -> list[str]:
    """Sorted by the criterion on the tables with opponents, or by the mean score where there are none."""
    used = field.chosen_on or field.tables
    lines = [
        "| variant | lost | worse than 0 | mean score | better / worse than present "
        "| without opponents: worse than 0 | better / worse | mean gain |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for variant in sorted(field.variants, key=lambda name: field.verdict(name, used)):
        own = against_present(field, variant, used)
        parts = [variant, _columns(field.verdict(variant, used)), f"{own.better} / {own.worse}"]
        if field.unopposed:
            other = against_present(field, variant, field.unopposed)
            bad = sum(map(worse_than_zero, field.of(variant, field.unopposed)))
            parts += [str(bad), f"{other.better} / {other.worse}", f"{other.mean:+.4f}"]
        else:
            parts += ["", "", ""]
        lines.append(f"| {' | '.join(parts)} |")
    return lines
