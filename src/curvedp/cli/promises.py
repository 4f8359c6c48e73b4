"""What every command says of a release: what was promised, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curvedp.cli.console import say

if TYPE_CHECKING:
    from curvedp.ledger import LedgerState
    from curvedp.privacy.guarantee import Guarantee


def say_promise(promise: Guarantee, again: str) -> None:
    """The guarantee in one line; `again` is what to do once more without a seed."""
    whose = "" if promise.neighbours.unit is None else f", {promise.neighbours.words}"
    say(
        f"Released under (ε, δ) = ({promise.epsilon:g}, {promise.delta:g}), {promise.adjacency}{whose}: "
        f"{promise.mechanism}, {promise.theorem}."
    )
    warn_of_a_seed(promise, again)
    warn_of_a_weak_promise(promise)


def warn_of_a_seed(promise: Guarantee, again: str) -> None:
    if not promise.private:
        say(f"Seeded: NOT private. {again} again without --seed before sharing.", style="bold red")


def warn_of_a_weak_promise(promise: Guarantee) -> None:
    from curvedp.privacy.promise import Promise

    if promise.private and Promise(promise).is_weak:
        say(
            f"ε = {promise.epsilon:g}, δ = {promise.delta:g} promise very little: show this to nobody who "
            "may not see the table. Take an ε near 1, and a δ far below one over the number of rows.",
            style="bold red",
        )


def say_what_is_left(state: LedgerState | None) -> None:
    """Of the budget; None: no ledger was charged."""
    if state is None:
        say("No ledger was charged: nothing keeps count of what this table has given away.", style="dim")
    else:
        left = f"ε = {state.remaining_epsilon:.4g}, δ = {state.remaining_delta:.4g}"
        say(f"Ledger: {left} left{'' if state.filter == 'basic' else f', {state.left}'}.")


def what_is_left(state: LedgerState | None) -> dict[str, float | None]:
    """Of the budget, for machines."""
    return {
        "remaining_epsilon": None if state is None else state.remaining_epsilon,
        "remaining_delta": None if state is None else state.remaining_delta,
    }
