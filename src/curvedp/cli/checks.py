"""`curvedp audit`, `compare` and `reproduce`: try to break it, compare it, repeat the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from curvedp.cli.console import emit_json, out, progress
from curvedp.cli.options import (
    AccountingOption,
    Adjacency,
    AdjacencyOption,
    DeltaOption,
    EpsilonOption,
    JsonOption,
    MechanismOption,
    QuietOption,
    numbers,
)
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.audit import AuditReport
    from curvedp.audit.grid import Cell

LossName = Literal["squared", "logistic", "huber", "squared_hinge"]
LOSS_OF: Mapping[str, LossName] = {
    "PrivateHuberRegressor": "huber",
    "PrivateLogisticRegression": "logistic",
    "PrivateLinearSVC": "squared_hinge",
}


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
    seed: Annotated[int, typer.Option("--seed", help="An audit is repeatable; it uses no private data.")] = 0,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Stop after this many seconds (each).")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Keep counts here and continue from them.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page, claimed against attacked.")
    ] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write a picture of the same.")] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Attack a guarantee on worst-case tables. Exit code 0: no attack beat the claim; 1: one did."""
    if full and (model is not None or resume is not None):
        raise InvalidInput("--full audits the whole library: leave --model and --resume out")
    with progress("attacking", total=None, show=not (json or quiet)) as steps:
        from curvedp.audit import audit as attack
        from curvedp.audit import write_html, write_png
        from curvedp.audit.grid import audit_grid, cells

        options: dict[str, Any] = {
            "fits": fits,
            "confidence": confidence,
            "seed": seed,
            "time_limit": math.inf if time_limit is None else time_limit,
        }
        found: list[AuditReport] = []
        if full:
            grid = list(cells(epsilon, delta))
            for cell, report in audit_grid(iter(grid), **options):
                found.append(report)
                steps.begin(f"attacked {cell.name}")
                steps.at(grid.index(cell) + 1, len(grid))
        else:
            if model is not None:
                cell = cell_of_model(model, features)
            else:
                cell = cell_of_options(mechanism, accounting, epsilon, delta, loss, adjacency, features or 2)
            steps.begin(f"attacking {cell.name}")
            found.append(
                attack(
                    cell.mechanism,
                    features=cell.features,
                    problem=cell.problem,
                    progress=steps.at,
                    resume_path=resume,
                    **options,
                )
            )
    if html is not None:
        write_html(found, html)
    if png is not None:
        write_png(found, png)
    if json:
        emit_json([report.to_dict() for report in found] if full else found[0].to_dict())
    elif not quiet:
        if full:
            print_grid(found)
        else:
            print_audit(found[0])
    if any(report.beaten for report in found):
        raise typer.Exit(1)


def cell_of_options(
    mechanism: str,
    accounting: str,
    epsilon: float,
    delta: float,
    loss: LossName,
    adjacency: Adjacency,
    features: int,
) -> Cell:
    """What the options ask to attack."""
    from curvedp import losses
    from curvedp.audit.grid import Cell
    from curvedp.domain import Domain
    from curvedp.mechanisms import named
    from curvedp.problem import Problem

    known: dict[str, losses.Loss] = {
        "squared": losses.Squared(),
        "logistic": losses.Logistic(),
        "huber": losses.Huber(0.25),
        "squared_hinge": losses.SquaredHinge(),
    }
    problem = Problem(known[loss], domain=Domain(adjacency=adjacency))
    chosen = named(mechanism, epsilon=epsilon, delta=delta, accounting=accounting)
    return Cell(chosen, problem, features)


def cell_of_model(path: Path, features: int | None) -> Cell:
    """The settings of a released model, its number of columns included."""
    from curvedp import modelfile

    document = modelfile.load(path)
    promise = document.guarantee
    if document.classes is not None and len(document.classes) > 2:
        raise InvalidInput("the audit covers one output: pass a model of a number or of two classes")
    return cell_of_options(
        promise["mechanism"],
        promise["accounting"] if promise["mechanism"] in ("qop", "lop", "lop_clip") else "auto",
        promise["epsilon"],
        promise["delta"],
        LOSS_OF.get(document.estimator, "squared"),
        promise["adjacency"],
        features or len(document.schema.feature_names) + 1,
    )


def print_grid(found: list[AuditReport]) -> None:
    """One line per audit."""
    from rich.table import Table

    table = Table(title=f"{len(found)} audits", title_justify="left")
    for heading in ("mechanism", "accounting", "loss", "adjacency", "d", "claimed ε", "attacked ε", ""):
        table.add_column(heading)
    for report in found:
        table.add_row(
            report.mechanism,
            report.accounting,
            report.loss,
            report.adjacency,
            str(report.features),
            f"{report.epsilon:g}",
            f"{report.epsilon_lower:.3f}",
            "[bold red]BEATEN[/bold red]" if report.beaten else "[green]holds[/green]",
        )
    out.print(table)


def print_audit(found: AuditReport) -> None:
    """Claimed against attacked."""
    from rich.table import Table

    table = Table(
        title=f"{found.mechanism} ({found.accounting}), {found.adjacency}, {found.loss} loss, "
        f"d = {found.features}: {found.fits:,} fits, {found.pairs_tried} pairs",
        title_justify="left",
    )
    for heading in ("", "claimed at most", "attacks prove at least"):
        table.add_column(heading, justify="right")
    table.add_row(f"ε at δ = {found.delta:g}", f"{found.epsilon:g}", f"{found.epsilon_lower:.4g}")
    table.add_row(f"δ at ε = {found.epsilon:g}", f"{found.delta:g}", f"{found.delta_lower:.3g}")
    out.print(table)
    if found.attacks:
        best = found.attacks[0]
        out.print(f"Best attack: {best.pair}, {best.direction}, by {best.score}.", markup=False)
    out.print(f"Confidence of all statements together: {100 * found.confidence:g} %.", style="dim")
    if not found.complete:
        out.print("Stopped early by the time limit.", style="yellow")
    if found.beaten:
        out.print("An attack BEATS the claim: do not release with this mechanism.", style="bold red")
    else:
        out.print("No attack beat the claim.", style="bold green")


def compare(
    data: Annotated[Path, typer.Option("--data", help="A folder of tables with their public bounds.")],
    folder: Annotated[Path, typer.Option("--out", help="Where scores, figure and page go.")],
    datasets: Annotated[str | None, typer.Option("--datasets", help="Names, separated by commas.")] = None,
    mechanisms: Annotated[
        str | None, typer.Option("--mechanisms", help="Names, separated by commas.")
    ] = None,
    epsilon: Annotated[str, typer.Option("--epsilon", help="Levels, separated by commas.")] = "0.1,0.5,1,3",
    seeds: Annotated[int, typer.Option("--seeds", help="Splits and noises per cell.")] = 10,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes; default: all cores.")] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Every mechanism on real tables, 80/20 splits. An interrupted run continues.

    Scores are computed on the tables themselves: they are not covered by any guarantee.
    """
    if not data.is_dir():
        raise InvalidInput(f"there is no folder {data}: pass the one that holds the tables")
    with progress("comparing", total=None, show=not (json or quiet)) as steps:
        from curvedp.studies import peers

        written = peers.compare(
            data,
            datasets.split(",") if datasets else None,
            mechanisms.split(",") if mechanisms else None,
            numbers(epsilon),
            seeds,
            folder,
            steps.at,
            workers=workers,
        )
    show_written(written, json, quiet)


def reproduce(
    what: Annotated[Literal["figure1", "figure2", "tables"], typer.Argument(help="What to repeat.")],
    folder: Annotated[Path, typer.Option("--out", help="Where figures and numbers go.")],
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The paper's figures and tables, our accountings beside them. An interrupted run continues."""
    with progress(what, total=None, show=not (json or quiet)) as steps:
        from curvedp.studies.reproduce import reproduce as run

        written = run(what, folder, progress=steps.at)
    show_written(written, json, quiet)


def show_written(written: Sequence[Path], json: bool, quiet: bool) -> None:
    """The files of a study, one to a line."""
    if json:
        emit_json({"written": [str(path) for path in written]})
    elif not quiet:
        for path in written:
            out.print(str(path), markup=False, soft_wrap=True)
