"""`curvedp verify`: is a file what its charge released?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvedp.cli import options as o
from curvedp.cli.console import emit_json, refute, say
from curvedp.errors import InvalidInput, LedgerDamaged, ModelFileError

if TYPE_CHECKING:
    from curvedp.ledger import Ledger, LedgerState, Verified
    from curvedp.record import Verification


def verify(
    released: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="What was released: a model file; the page or the JSON of scores, bounds, a description, a "
            "check.",
        ),
    ],
    ledger: Annotated[Path, typer.Option("--ledger", help="Budget; the one that paid, only read.")],
    head: Annotated[
        str | None,
        typer.Option("--head", help="The head of an earlier moment, which was kept elsewhere."),
    ] = None,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Verify that a file is what its charge released. Exit code 1: it is not, and the fields that differ."""
    from curvedp.ledger import Ledger

    try:
        book = Ledger(ledger)
        history = book.verify(head)
        found, document = compared(released, book)
        warnings = _warnings(document) if found.holds else []
    except (LedgerDamaged, ModelFileError) as problem:
        refute(str(problem), {"verified": False, "answer": str(problem)}, json)
    told = {"verified": found.holds, **asdict(found), "warnings": [said for _, said in warnings]}
    told |= {"ledger": asdict(history)}
    if not found.holds:
        refute(f"{released}: {found.answer}", told, json)
    if json:
        emit_json(told)
    elif not quiet:
        say(f"{released}: {found.answer}", style="green")
        _say_more(document, book.state(), history)
        for red, text in warnings:
            say(text, style="bold red" if red else "yellow")


def compared(path: Path, book: Ledger) -> tuple[Verification, dict[str, Any]]:
    """A file against its ledger, and the document in it."""
    from curvedp.forms import plain_json, refuse
    from curvedp.pages import document_in
    from curvedp.record import verify as compare

    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}): check the path") from None
    except UnicodeDecodeError:
        refuse("it is not text")
    page = text if text.lstrip().lower().startswith("<!doctype html") else None
    inner = text if page is None else document_in(page)
    if inner is None:
        raise InvalidInput(
            f"{path} is a page without a released document: verify the model file that it was made from"
        )
    document = plain_json(inner)
    if not isinstance(document, dict):
        refuse("it is no document")
    return compare(document, book, page), document


def _warnings(document: dict[str, Any]) -> list[tuple[bool, str]]:
    """What the report of a model would warn of; whether in red."""
    if "format" not in document:
        return []
    from curvedp import workflow
    from curvedp.modelfile import Release

    found = workflow.release_warnings(Release.from_dict(document).to_estimator())
    return [(one.level == "red", one.text) for one in found]


def _say_more(document: dict[str, Any], state: LedgerState, history: Verified) -> None:
    """What was promised, what the ledger counts, the head to keep."""
    promise = document["guarantee"]
    whose = "one row" if promise["unit"] is None else f"all rows of one {promise['unit']}"
    numbers = f"ε = {promise['epsilon']:g}, δ = {promise['delta']:g}"
    proof = f"{promise['mechanism']}, {promise['theorem']}"
    say(f"Promise: {numbers} for {whose} ({promise['adjacency']}); {proof}")
    say(
        f"Ledger {history.ledger}: every entry, sum and page verified; charges: {history.charges}; spent "
        f"ε = {state.spent_epsilon:g} of {state.epsilon:g}, δ = {state.spent_delta:g} of {state.delta:g}"
    )
    if history.found is not None:
        say(f"HEAD was its head after charge {history.found.charge}; charges after it: {history.after}")
    say(f"Head to keep elsewhere: {history.head}")
