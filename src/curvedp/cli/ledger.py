"""`curvedp ledger`: create a budget, look at what is left of it, verify its history."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from curvedp.cli import charging as o
from curvedp.cli.console import Commands, emit_json, refute, say, show_table
from curvedp.errors import LedgerDamaged

if TYPE_CHECKING:
    from curvedp.release.ledger.storage import Charge, LedgerState, Subtotal, Verified

CURVE_WIDTH, BARS = 40, " ▁▂▃▄▅▆▇█"

app = typer.Typer(
    cls=Commands, help="Create and read a budget that cannot be overspent.", no_args_is_help=True
)

LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger file, e.g. budget.db")]


@app.command("create", epilog="Example: curvedp ledger create budget.db --epsilon 3 --delta 1e-5")
def create(
    ledger: LedgerPath,
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption,
    adjacency: o.AdjacencyOption = "replace",
    unit: Annotated[
        str | None,
        typer.Option("--unit", help="The column that says whose row it is, where a person has many."),
    ] = None,
    filter: Annotated[
        Literal["gaussian", "basic"],
        typer.Option(
            "--filter",
            help="How charges add up: squares of μ, which goes further, or (basic) Σε and Σδ, for rules that "
            "ask for it.",
        ),
    ] = "gaussian",
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Create a ledger with a total (ε, δ). An existing file is never overwritten."""
    from curvedp.release.ledger.file import Ledger

    made = Ledger.create(ledger, epsilon=epsilon, delta=delta, adjacency=adjacency, unit=unit, filter=filter)
    state = made.state()
    if json:
        emit_json(asdict(state))
    elif not quiet:
        say(f"{ledger}: a budget of ε = {epsilon:g}, δ = {delta:g} ({_terms(state)}), nothing spent")
        say(f"It pays for {state.left}")


@app.command("show", epilog="Example: curvedp ledger show budget.db --history")
def show(
    ledger: LedgerPath,
    history: Annotated[
        bool, typer.Option("--history", help="List every charge, and what charges of one kind cost in all.")
    ] = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Show the total, what is spent, what is left, and the head to write down elsewhere."""
    from curvedp.release.ledger.file import Ledger
    from curvedp.release.ledger.storage import subtotals

    book = Ledger(ledger)
    state = book.state()
    charges = book.history() if history else []
    groups = subtotals(charges)
    if json:
        lists = {"history": [asdict(c) for c in charges], "subtotals": [asdict(g) for g in groups]}
        emit_json({**asdict(state), **(lists if history else {})})
    elif not quiet:
        _show_state(ledger, state)
        if history:
            _show_history(charges, groups, state)


@app.command("verify", epilog="Example: curvedp ledger verify budget.db HEAD, where a report prints the head")
def verify(
    ledger: LedgerPath,
    head: Annotated[
        str | None,
        typer.Argument(metavar="HEAD", help="The head of an earlier moment, which was kept elsewhere."),
    ] = None,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Verify every charge, sum and page, and that HEAD is in the history. Exit code 1: it does not stand."""
    from curvedp.release.ledger.file import Ledger

    try:
        found = Ledger(ledger).verify(head)
    except LedgerDamaged as problem:
        refute(str(problem), {"sound": False, "reason": str(problem)}, json)
    if json:
        emit_json({"sound": True, **asdict(found), "after": found.after})
    elif not quiet:
        _show_verified(ledger, found)


def _show_verified(path: Path, found: Verified) -> None:
    say(f"{path} · ledger {found.ledger} · charges: {found.charges}; every charge, sum and page verified")
    if found.found is None:
        say(f"head: {found.head}")
        say(
            "This notices damage. A rewriting by somebody who knows how the hashes are made is noticed only "
            "against a head that was kept elsewhere: pass it as HEAD"
        )
        return
    which = f"charge {found.found.charge}" if found.found.charge else "the new ledger, before any charge"
    said = _said(found.found.by, found.found.purpose)
    say(f"HEAD is that of {which}, {found.found.time}{said}; charges after it: {found.after}")
    say("Nothing up to it was changed, removed or put in another order since it was written down", "green")


def _said(by: str | None, purpose: str | None) -> str:
    """Who and why, where it was said."""
    return "".join((f", by {by}" if by else "", f", for: {purpose}" if purpose else ""))


def _show_state(path: Path, state: LedgerState) -> None:
    rows = [
        ("ε", f"{state.epsilon:g}", f"{state.spent_epsilon:.4g}", f"{state.remaining_epsilon:.4g}"),
        ("δ", f"{state.delta:g}", f"{state.spent_delta:.4g}", f"{state.remaining_delta:.4g}"),
    ]
    headings = ("", "total", "spent", "left")
    say(f"{path} · {_terms(state)} · {state.filter} filter")  # a title would be folded to the table's width
    show_table("", headings, rows, right=headings)
    if state.filter == "gaussian":
        for line in _curves(state):
            say(line)
    say(f"Left: {state.left}")
    say(f"charges: {state.charges} · ledger {state.ledger}")
    say(f"head: {state.digest}")


def _curves(state: LedgerState) -> list[str]:
    """δ(ε) of what is spent, and of all that Gaussian releases may spend, as bars on a logarithmic scale."""
    from curvedp.privacy.gaussian import boxes

    floor = max(state.delta / 1000, 1e-300)
    levels = [state.epsilon * step / (CURVE_WIDTH - 1) for step in range(CURVE_WIDTH)]
    curves = {"spent": state.spent, "in all": boxes(state.epsilon, state.delta)[0]}

    def bar(delta: float) -> str:
        height = 1 - math.log(max(delta, floor)) / math.log(floor)
        return BARS[math.ceil(height * (len(BARS) - 1))]

    lines = [
        f"{name:>6} {''.join(bar(cost.delta_at(level)) for level in levels)}" for name, cost in curves.items()
    ]
    axis = f"δ(ε) for ε from 0 to {state.epsilon:g}, bars from {floor:.0e} to 1; squares of μ add up:"
    return [axis, *lines]


def _show_history(charges: list[Charge], groups: list[Subtotal], state: LedgerState) -> None:
    extra = tuple(name for name in ("by", "purpose") if any(getattr(c, name) for c in charges))
    show_table(
        "Every charge",
        ("", "time (UTC)", "mechanism", "theorem", "ε", "δ", "label", *extra),
        [
            (
                *(str(number), charge.time, charge.mechanism, charge.theorem),
                *(f"{charge.epsilon:g}", f"{charge.delta:g}", charge.label),
                *(getattr(charge, name) or "" for name in extra),
            )
            for number, charge in enumerate(charges, 1)
        ],
        right=("",),
    )
    numbers = ("charges", "ε", "δ")
    sums = [(g.label, g.mechanism, str(g.charges), f"{g.epsilon:g}", f"{g.delta:g}") for g in groups]
    total = ("all", "", str(state.charges), f"{state.spent_epsilon:.4g}", f"{state.spent_delta:.4g}")
    show_table("In all", ("label", "mechanism", *numbers), [*sums, total], right=numbers)


def _terms(state: LedgerState) -> str:
    return state.adjacency if state.unit is None else f"{state.adjacency}, rows of one {state.unit} together"
