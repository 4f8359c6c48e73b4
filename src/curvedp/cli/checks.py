"""`curvedp audit`: try to break a guarantee."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from curvedp.cli.console import emit_json, progress, say, show_table
from curvedp.cli.options import (
    AccountingOption,
    Adjacency,
    AdjacencyOption,
    DeltaOption,
    EpsilonOption,
    ForceOption,
    JsonOption,
    LossName,
    MechanismOption,
    QuietOption,
    ReportOption,
)
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.audit import AuditReport
    from curvedp.audit.grid import Cell
    from curvedp.budget import Budget

REFUTED = 1  # the exit code, and nothing else has it


def audit(
    mechanism: MechanismOption = "qop",
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-3,
    features: Annotated[
        int | None, typer.Option("--features", help="Columns of the attacked tables.")
    ] = None,
    loss: Annotated[LossName, typer.Option("--loss", help="Loss of the attacked model.")] = "squared",
    accounting: AccountingOption = "auto",
    adjacency: AdjacencyOption = "replace",
    model: Annotated[
        Path | None,
        typer.Option("--model", help="Take all of these from a model file; its data are not needed."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every mechanism, accounting and adjacency, d = 1, 2, 5, 20.")
    ] = False,
    fits: Annotated[int, typer.Option("--fits", help="Private fits to attack with (each).")] = 100_000,
    confidence: Annotated[float, typer.Option("--confidence", help="Of all statements together.")] = 0.99,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="An audit is repeatable; it uses no private data.")
    ] = 0,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Stop after this many seconds (each).")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Keep counts here and continue from them.")
    ] = None,
    report: ReportOption = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write a picture of the same.")] = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Attack a guarantee on worst-case tables. Exit code 0: no attack beat the claim; 1: one did."""
    from curvedp.budget import Budget
    from curvedp.outputs import claimed

    if full and (model is not None or resume is not None):
        raise InvalidInput("--full audits the whole library: leave --model and --resume out")
    if features is not None and features < 1:
        raise InvalidInput(f"--features must be at least 1, got {features}")
    budget = Budget(epsilon, delta)
    inputs = {"the model": model, "--resume": resume}
    with claimed({"--report": report, "--png": png}, inputs=inputs, force=force) as files:
        with progress("attacking", total=None, show=not (json or quiet)) as steps:
            from curvedp.audit.grid import audit_cell, audit_grid, cells

            options: dict[str, Any] = {
                "fits": fits,
                "confidence": confidence,
                "seed": seed,
                "time_limit": math.inf if time_limit is None else time_limit,
            }
            found: list[AuditReport] = []
            if full:
                grid = list(cells(budget))
                for cell, result in audit_grid(iter(grid), **options):
                    found.append(result)
                    steps.begin(f"attacked {cell.name}")
                    steps.at(grid.index(cell) + 1, len(grid))
            else:
                if model is not None:
                    cell = cell_of_model(model, features)
                else:
                    cell = cell_of_options(mechanism, accounting, budget, loss, adjacency, features or 2)
                steps.begin(f"attacking {cell.name}")
                found.append(audit_cell(cell, progress=steps.at, resume_path=resume, **options))
        from curvedp.audit.pages import audit_page, audit_picture

        if "--report" in files:
            files["--report"].write(audit_page(found))
        if "--png" in files:
            files["--png"].write(audit_picture(found))
    if json:
        emit_json([result.to_dict() for result in found] if full else found[0].to_dict())
    elif not quiet:
        if full:
            print_grid(found)
        else:
            print_audit(found[0])
    if any(result.beaten for result in found):
        raise typer.Exit(REFUTED)


def cell_of_options(
    mechanism: str, accounting: str | None, budget: Budget, loss: str, adjacency: Adjacency, features: int
) -> Cell:
    """What the options ask to attack."""
    from curvedp import catalogue
    from curvedp.audit.grid import Cell
    from curvedp.domain import Domain
    from curvedp.problem import Problem

    problem = Problem(catalogue.LOSSES[loss].load(), domain=Domain(adjacency=adjacency))
    return Cell(catalogue.mechanism(mechanism, accounting=accounting), budget, problem, features)


def cell_of_model(path: Path, features: int | None) -> Cell:
    """The settings of a released model, its number of columns included."""
    from curvedp import catalogue, modelfile

    document = modelfile.load(path)
    promise = document.privacy
    if promise.neighbours.unit is not None:
        raise InvalidInput(
            f"an audit attacks with single rows, and this model protects all rows of one "
            f"{promise.neighbours.unit!r} together: leave --model out to attack the mechanism for rows"
        )
    if document.classes is not None and len(document.classes) > 2:
        raise InvalidInput("the audit covers one output: pass a model of a number or of two classes")
    entry = catalogue.MECHANISMS.get(promise.mechanism)
    if entry is None:
        raise InvalidInput(f"the audit does not know the mechanism {promise.mechanism!r} of this model")
    return cell_of_options(
        promise.mechanism,
        promise.accounting if promise.accounting in entry.accountings else None,
        promise.budget,
        catalogue.estimator_of(document.estimator).loss_name,
        promise.adjacency,
        features or len(document.schema.feature_names) + 1,
    )


def print_grid(found: list[AuditReport]) -> None:
    """One line per audit."""
    show_table(
        f"{len(found)} audits",
        ("mechanism", "accounting", "loss", "adjacency", "d", "claimed ε", "attacked ε", ""),
        [
            (
                result.mechanism,
                result.accounting,
                result.loss,
                result.adjacency,
                str(result.features),
                f"{result.epsilon:g}",
                f"{result.epsilon_lower:.3f}",
                Text("BEATEN", style="bold red") if result.beaten else Text("holds", style="green"),
            )
            for result in found
        ],
    )


def print_audit(found: AuditReport) -> None:
    """Claimed against attacked."""
    show_table(
        f"{found.mechanism} ({found.accounting}), {found.adjacency}, {found.loss} loss, "
        f"d = {found.features}: {found.fits:,} fits, {found.pairs_tried} pairs",
        ("", "claimed at most", "attacks prove at least"),
        [
            (f"ε at δ = {found.delta:g}", f"{found.epsilon:g}", f"{found.epsilon_lower:.4g}"),
            (f"δ at ε = {found.epsilon:g}", f"{found.delta:g}", f"{found.delta_lower:.3g}"),
        ],
        right=("", "claimed at most", "attacks prove at least"),
    )
    if found.attacks:
        best = found.attacks[0]
        say(f"Best attack: {best.pair}, {best.direction}, by {best.score}.")
    say(f"Confidence of all statements together: {100 * found.confidence:g} %.", style="dim")
    if not found.complete:
        say("Stopped early by the time limit.", style="yellow")
    if found.beaten:
        say("An attack BEATS the claim: do not release with this mechanism.", style="bold red")
    else:
        say("No attack beat the claim.", style="bold green")
