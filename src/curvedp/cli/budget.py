"""`curvedp ledger`: create a budget, look at what is left of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from curvedp.cli.console import Commands, emit_json, out
from curvedp.cli.options import AdjacencyOption, DeltaOption, EpsilonOption, JsonOption, QuietOption

app = typer.Typer(
    cls=Commands, help="Create and read a budget that cannot be overspent.", no_args_is_help=True
)

LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger file, e.g. budget.db")]


@app.command("create", epilog="Example: curvedp ledger create budget.db --epsilon 3 --delta 1e-5")
def create(
    ledger: LedgerPath,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    adjacency: AdjacencyOption = "replace",
    filter: Annotated[
        Literal["basic", "zcdp"],
        typer.Option(
            "--filter", help="How charges add up; zcdp is for mechanisms that are Gaussian throughout."
        ),
    ] = "basic",
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Create a ledger with a total (ε, δ). An existing file is never overwritten."""
    from curvedp.ledger import Ledger

    state = Ledger.create(ledger, epsilon=epsilon, delta=delta, adjacency=adjacency, filter=filter).state()
    if json:
        emit_json(asdict(state))
    elif not quiet:
        out.print(
            f"{ledger}: a budget of ε = {epsilon:g}, δ = {delta:g} ({adjacency}), nothing spent", markup=False
        )


@app.command("show", epilog="Example: curvedp ledger show budget.db --json")
def show(
    ledger: LedgerPath,
    history: Annotated[bool, typer.Option("--history", help="List every charge.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the total, what is spent and what is left."""
    from curvedp.ledger import Ledger

    book = Ledger(ledger)
    state = book.state()
    if json:
        charges = {"history": [asdict(charge) for charge in book.history()]} if history else {}
        emit_json({**asdict(state), **charges})
        return
    from rich.table import Table

    table = Table(title=f"{ledger} · {state.adjacency} · {state.filter} filter", title_justify="left")
    for heading in ("", "total", "spent", "left"):
        table.add_column(heading, justify="right")
    table.add_row("ε", f"{state.epsilon:g}", f"{state.spent_epsilon:g}", f"{state.remaining_epsilon:g}")
    table.add_row("δ", f"{state.delta:g}", f"{state.spent_delta:g}", f"{state.remaining_delta:g}")
    out.print(table)
    out.print(f"charges: {state.charges}")
    if history:
        lines = Table()
        for heading in ("time (UTC)", "mechanism", "theorem", "ε", "δ", "label"):
            lines.add_column(heading)
        for charge in book.history():
            lines.add_row(
                charge.time,
                charge.mechanism,
                charge.theorem,
                f"{charge.epsilon:g}",
                f"{charge.delta:g}",
                charge.label,
            )
        out.print(lines)
