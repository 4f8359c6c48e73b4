"""`curvedp audit`, `compare` and `reproduce`: try to break it, compare it, repeat the paper."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from curvedp.cli.console import emit_json, out, progress
from curvedp.cli.options import (
    AccountingOption,
    AdjacencyOption,
    DeltaOption,
    EpsilonOption,
    JsonOption,
    MechanismOption,
    QuietOption,
)

if TYPE_CHECKING:
    from curvedp.audit import AuditReport


def audit(
    mechanism: MechanismOption = "qop",
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-3,
    features: Annotated[int, typer.Option("--features", help="Columns of the attacked tables.")] = 2,
    loss: Annotated[
        Literal["squared", "logistic"], typer.Option("--loss", help="Loss of the model.")
    ] = "squared",
    accounting: AccountingOption = "auto",
    adjacency: AdjacencyOption = "replace",
    fits: Annotated[int, typer.Option("--fits", help="Private fits to attack with.")] = 100_000,
    confidence: Annotated[float, typer.Option("--confidence", help="Of all statements together.")] = 0.99,
    seed: Annotated[int, typer.Option("--seed", help="An audit is repeatable; it uses no private data.")] = 0,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Stop after this many seconds.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Keep counts here and continue from them.")
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Attack a guarantee on worst-case tables. Exit code 0: no attack beat the claim; 1: one did."""
    with progress("attacking", total=fits, show=not (json or quiet)) as steps:
        from curvedp.audit import audit as attack
        from curvedp.domain import Domain
        from curvedp.losses import Logistic, Squared
        from curvedp.mechanisms import named
        from curvedp.problem import Problem

        chosen = Squared() if loss == "squared" else Logistic()
        found = attack(
            named(mechanism, epsilon=epsilon, delta=delta, accounting=accounting),
            features=features,
            problem=Problem(chosen, domain=Domain(adjacency=adjacency)),
            fits=fits,
            confidence=confidence,
            seed=seed,
            time_limit=math.inf if time_limit is None else time_limit,
            progress=steps.at,
            resume_path=resume,
        )
    if json:
        emit_json(found.to_dict())
    elif not quiet:
        print_audit(found)
    if found.beaten:
        raise typer.Exit(1)


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


def compare() -> None:
    """Compare mechanisms on real tables."""


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
    if json:
        emit_json({"written": [str(path) for path in written]})
    elif not quiet:
        for path in written:
            out.print(str(path), markup=False)
