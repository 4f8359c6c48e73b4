"""`curvedp plan`: what a release will cost and give, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvedp.cli.console import emit_json, err, out, progress
from curvedp.cli.options import AdjacencyOption, DeltaOption, EpsilonOption, JsonOption, QuietOption, Task

if TYPE_CHECKING:
    from curvedp.planning import PlanRow, PlanTable


def plan(
    rows: Annotated[
        int, typer.Option("--rows", help="Rows you expect: a number you declare, never counted.")
    ],
    features: Annotated[
        int, typer.Option("--features", help="Columns after one-hot coding, target excluded.")
    ],
    epsilon: EpsilonOption,
    delta: DeltaOption,
    adjacency: AdjacencyOption = "replace",
    task: Annotated[Task, typer.Option("--task", help="What the target is.")] = "regression",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with the curve against ε.")
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What will it cost? Every mechanism on a synthetic table of your shape: no data, nothing spent."""
    from curvedp.planning import CANDIDATES, CURVE, plan_table

    with progress("trying mechanisms", total=len(CANDIDATES), show=not (json or quiet)) as steps:
        table = plan_table(
            rows,
            features,
            epsilon,
            delta,
            adjacency,
            task,
            epsilons=[epsilon * factor for factor in CURVE] if html else (),
            on_step=lambda name: steps.done(),
        )
    if html is not None:
        from curvedp import report

        report.write(html, report.plan_page(table))
    if json:
        emit_json(as_document(table))
    elif not quiet:
        print_plan(table)
        if html is not None:
            err.print(f"page written to {html}", markup=False)


def print_plan(table: PlanTable) -> None:
    """The plan as a table for people."""
    from rich.table import Table

    from curvedp.report import noise_scales

    grid = Table(
        title=f"{table.rows_declared:,} rows × {table.features} features, ε = {table.epsilon:g}, "
        f"δ = {table.delta:g}, {table.adjacency}, {table.task}",
        title_justify="left",
    )
    grid.add_column("mechanism")
    grid.add_column("accounting")
    grid.add_column(f"expected {table.score_name}", justify="right")
    grid.add_column("rows needed", justify="right")
    grid.add_column("utility bound", justify="right")
    grid.add_column("noise scales", overflow="fold")
    for row in table.rows:
        scales = ", ".join(f"{p.symbol} {p.value:.3g}" for p in noise_scales(row.guarantee))
        bound = "" if row.utility_bound is None else f"{row.utility_bound:.3g}"
        grid.add_row(
            row.mechanism, row.accounting, f"{row.score:.3f}", rows_needed(row, table), bound, scales
        )
    grid.add_section()
    grid.add_row("no privacy", "", f"{table.nonprivate_score:.3f}", "", "", "")
    grid.add_row("constant answer", "", f"{table.constant_score:.3f}", "", "", "")
    out.print(grid)
    for label, reason in table.refused:
        out.print(f"{label}: {reason}", style="dim", markup=False)
    colour = {"good": "green", "warn": "yellow", "bad": "red"}[table.verdict.tone]
    out.print(table.verdict.sentence, style=f"bold {colour}", markup=False)
    out.print(
        "Scores are of a synthetic table of this shape: use their order, not their digits.", style="dim"
    )


def rows_needed(row: PlanRow, table: PlanTable) -> str:
    """The rows at which the noise stops dominating, as text."""
    return f"> {table.rows_limit:.0e}" if row.rows_needed is None else f"{row.rows_needed:,}"


def as_document(table: PlanTable) -> dict[str, Any]:
    """The plan for machines."""
    return {
        "rows": table.rows_declared,
        "features": table.features,
        "task": table.task,
        "epsilon": table.epsilon,
        "delta": table.delta,
        "adjacency": table.adjacency,
        "score": table.score_name,
        "nonprivate_score": table.nonprivate_score,
        "constant_score": table.constant_score,
        "verdict": table.verdict.sentence,
        "noise_dominates": table.verdict.tone == "bad",
        "mechanisms": [
            {
                "mechanism": row.mechanism,
                "accounting": row.accounting,
                "theorem": row.guarantee.theorem,
                "expected_score": row.score,
                "rows_needed": row.rows_needed,
                "utility_bound": row.utility_bound,
                "parameters": dict(row.guarantee.parameters),
                "score_by_epsilon": dict(zip(map(str, table.epsilons), row.scores_by_epsilon, strict=True)),
            }
            for row in table.rows
        ],
        "refused": [{"mechanism": label, "reason": reason} for label, reason in table.refused],
    }
