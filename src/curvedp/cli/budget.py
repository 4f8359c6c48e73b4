"""`curvedp ledger`: create a budget, look at what is left of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from curvedp.cli.console import Commands, emit_json, say, show_table
from curvedp.cli.options import AdjacencyOption, DeltaOption, EpsilonOption, JsonOption, QuietOption

if TYPE_CHECKING:
    from curvedp.ledger import Charge, LedgerState, Subtotal

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
    unit: Annotated[
        str | None,
        typer.Option("--unit", help="The column that says whose row it is, where a person has many."),
    ] = None,
    filter: Annotated[
        Literal["basic", "zcdp"],
        typer.Option(
            "--filter",
            help="How charges add up. zcdp refuses mechanisms that are not Gaussian throughout, the default "
            "among them.",
        ),
    ] = "basic",
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Create a ledger with a total (ε, δ). An existing file is never overwritten."""
    from curvedp.ledger import Ledger
    from curvedp.ledger.filters import NO_RHO

    made = Ledger.create(ledger, epsilon=epsilon, delta=delta, adjacency=adjacency, unit=unit, filter=filter)
    refused = f"{NO_RHO}. The default fit (recentered) has none and will be refused: pass --mechanism."
    notes = [refused] if filter == "zcdp" else []
    state = made.state()
    if json:
        emit_json({**asdict(state), "notes": notes})
    elif not quiet:
        say(f"{ledger}: a budget of ε = {epsilon:g}, δ = {delta:g} ({_terms(state)}), nothing spent")
        for note in notes:
            say(note, style="yellow")


@app.command("show", epilog="Example: curvedp ledger show budget.db --history")
def show(
    ledger: LedgerPath,
    history: Annotated[
        bool, typer.Option("--history", help="List every charge, and what charges of one kind cost in all.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify the whole file first: every charge, sum and page.")
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show the total, what is spent and what is left."""
    from curvedp.ledger import Ledger
    from curvedp.ledger.statements import subtotals

    book = Ledger(ledger)
    if verify:
        book.verify()
    state = book.state()
    charges = book.history() if history else []
    groups = subtotals(charges)
    if json:
        lists = {"history": [asdict(c) for c in charges], "subtotals": [asdict(g) for g in groups]}
        emit_json({**asdict(state), **(lists if history else {})})
    elif not quiet:
        _show_state(ledger, state, verify)
        if history:
            _show_history(charges, groups, state)


def _show_state(path: Path, state: LedgerState, verified: bool) -> None:
    rows = [
        ("ε", f"{state.epsilon:g}", f"{state.spent_epsilon:g}", f"{state.remaining_epsilon:g}"),
        ("δ", f"{state.delta:g}", f"{state.spent_delta:g}", f"{state.remaining_delta:g}"),
    ]
    if state.spent_rho is not None and state.remaining_rho is not None:
        total = state.spent_rho + state.remaining_rho
        rows.append(("ρ", f"{total:.6g}", f"{state.spent_rho:.6g}", f"{state.remaining_rho:.6g}"))
    headings = ("", "total", "spent", "left")
    say(f"{path} · {_terms(state)} · {state.filter} filter")  # a title would be folded to the table's width
    show_table("", headings, rows, right=headings)
    say(f"charges: {state.charges}{'; every charge, sum and page verified' if verified else ''}")


def _show_history(charges: list[Charge], groups: list[Subtotal], state: LedgerState) -> None:
    show_table(
        "Every charge",
        ("time (UTC)", "mechanism", "theorem", "ε", "δ", "label"),
        [(c.time, c.mechanism, c.theorem, f"{c.epsilon:g}", f"{c.delta:g}", c.label) for c in charges],
    )
    numbers = ("charges", "ε", "δ")
    sums = [(g.label, g.mechanism, str(g.charges), f"{g.epsilon:g}", f"{g.delta:g}") for g in groups]
    total = ("all", "", str(state.charges), f"{state.spent_epsilon:g}", f"{state.spent_delta:g}")
    show_table("In all", ("label", "mechanism", *numbers), [*sums, total], right=numbers)


def _terms(state: LedgerState) -> str:
    return state.adjacency if state.unit is None else f"{state.adjacency}, rows of one {state.unit} together"
