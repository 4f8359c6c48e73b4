"""`curvedp plan`: what a release will cost and give, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvedp.cli.console import emit_json, progress, say, show_table
from curvedp.cli.options import (
    AdjacencyOption,
    DeltaOption,
    EpsilonOption,
    ForceOption,
    FormulaOption,
    JsonOption,
    QuietOption,
    ReportOption,
    Task,
)
from curvedp.cli.words import in_options
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.forecast import Forecast, ForecastRow


def plan(
    rows: Annotated[
        int, typer.Option("--rows", help="Rows you expect: a number you declare, never counted.")
    ],
    epsilon: EpsilonOption,
    delta: DeltaOption,
    features: Annotated[
        int | None, typer.Option("--features", help="Columns after one-hot coding, target excluded.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Count the columns of this schema in place of --features.")
    ] = None,
    formula: FormulaOption = None,
    adjacency: AdjacencyOption = "replace",
    task: Annotated[Task, typer.Option("--task", help="What the target is.")] = "regression",
    report: ReportOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What will it cost? Every mechanism on a synthetic table of your shape: no data, nothing spent."""
    from curvedp.budget import Budget
    from curvedp.forecast import CANDIDATES, CURVE, forecast
    from curvedp.outputs import claimed

    budget, unit = Budget(epsilon, delta), None
    if schema is not None:
        from curvedp.schema import Schema
        from curvedp.workflow import task_of

        if features is not None:
            raise InvalidInput("the schema says how many columns there are: leave --features out")
        declared = Schema.load(schema).with_model(None, formula)
        features, adjacency, unit = len(declared.feature_names), declared.adjacency, declared.unit
        task = task_of(declared) if declared.has_target else task
        if declared.declared_offset is not None:
            raise InvalidInput(
                "there is no forecast for counts: --features in place of --schema gives a linear one"
            )
    elif features is None or formula is not None:
        raise InvalidInput("pass --features, or --schema, perhaps with --formula")
    with claimed({"--report": report}, inputs={}, force=force) as files:
        with progress("trying mechanisms", total=len(CANDIDATES), show=not (json or quiet)) as steps:
            found = forecast(
                rows,
                features,
                budget,
                adjacency,
                task,
                unit=unit,
                epsilons=[epsilon * factor for factor in CURVE] if files else (),
                on_step=lambda name: steps.done(),
            )
        for page in files.values():
            from curvedp.report import forecast_page

            page.write(forecast_page(found))
    if json:
        emit_json(as_document(found))
    elif not quiet:
        print_forecast(found)
        if unit is not None:
            say(f"Rows are persons here, one row of each {unit!r}: more rows of a person give better scores.")
        if report is not None:
            say(f"Page written to {report}.")


def print_forecast(found: Forecast) -> None:
    """The forecast as a table for people."""
    from curvedp.report import noise_scales

    score, budget = f"expected {found.score_name}", found.budget
    rows = [
        (
            row.mechanism,
            row.accounting,
            f"{row.score:.3f}",
            rows_needed(row, found),
            "" if row.utility_bound is None else f"{row.utility_bound:.3g}",
            ", ".join(f"{p.symbol} {p.value:.3g}" for p in noise_scales(row.guarantee)),
        )
        for row in found.rows
    ]
    rows.append(("no privacy", "", f"{found.nonprivate_score:.3f}", "", "", ""))
    rows.append(("constant answer", "", f"{found.constant_score:.3f}", "", "", ""))
    show_table(
        f"{found.rows_declared:,} rows × {found.features} features, ε = {budget.epsilon:g}, "
        f"δ = {budget.delta:g}, {found.adjacency}, {found.task}",
        ("mechanism", "accounting", score, "rows needed", "utility bound", "noise scales"),
        rows,
        right=(score, "rows needed", "utility bound"),
    )
    for label, reason in found.refused:
        say(f"{label}: {in_options(reason)}", style="dim")
    colour = {"good": "green", "warn": "yellow", "bad": "red"}[found.verdict.tone]
    say(found.verdict.sentence, style=f"bold {colour}")
    say("Scores are of a synthetic table of this shape: use their order, not their digits.", style="dim")


def rows_needed(row: ForecastRow, found: Forecast) -> str:
    """The rows at which the noise stops dominating, as text."""
    return f"> {found.rows_limit:.0e}" if row.rows_needed is None else f"{row.rows_needed:,}"


def as_document(found: Forecast) -> dict[str, Any]:
    """The forecast for machines."""
    return {
        "rows": found.rows_declared,
        "features": found.features,
        "task": found.task,
        "epsilon": found.budget.epsilon,
        "delta": found.budget.delta,
        "adjacency": found.adjacency,
        "score": found.score_name,
        "nonprivate_score": found.nonprivate_score,
        "constant_score": found.constant_score,
        "verdict": found.verdict.sentence,
        "noise_dominates": found.verdict.tone == "bad",
        "mechanisms": [
            {
                "mechanism": row.mechanism,
                "accounting": row.accounting,
                "theorem": row.guarantee.theorem,
                "expected_score": row.score,
                "rows_needed": row.rows_needed,
                "utility_bound": row.utility_bound,
                "parameters": dict(row.guarantee.parameters),
                "score_by_epsilon": dict(zip(map(str, found.epsilons), row.scores_by_epsilon, strict=True)),
            }
            for row in found.rows
        ],
        "refused": [{"mechanism": label, "reason": in_options(reason)} for label, reason in found.refused],
    }
