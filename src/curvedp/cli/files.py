"""`curvedp report` and `curvedp verify`: the record of a release, made later; whether a file is its."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvedp.cli import charging as o
from curvedp.cli.charging import what_is_left
from curvedp.cli.console import emit_json, refute, say
from curvedp.errors import InvalidInput, LedgerDamaged, ModelFileError

if TYPE_CHECKING:
    from curvedp.release.ledger.file import Ledger
    from curvedp.release.ledger.storage import LedgerState, Verified
    from curvedp.release.record import Verification
    from curvedp.reports.report import Caution


def report(
    model: o.ModelArgument,
    out_path: Annotated[
        Path | None,
        typer.Option("--out", help="File to write: the page; default: beside the model, as .html."),
    ] = None,
    registry: Annotated[
        Path | None,
        typer.Option("--registry", help="Write an entry for the registry of deployments (OpenDP), as YAML."),
    ] = None,
    nist: Annotated[
        Path | None,
        typer.Option("--nist", help="Write a page that answers the questions of NIST SP 800-226."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Budget; what is left of it is shown, nothing is charged.")
    ] = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Write the record of a release: promise, warnings, budget, limits, declarations, software, numbers.

    Free: nothing is read but the model file, and a ledger if you name one; that must hold the charge that
    released this very file (curvedp verify). With --registry or --nist alone no page is made.
    """
    from curvedp.release.outputs import claimed, ledger_inputs

    page = model.with_suffix(".html") if out_path is None and not (registry or nist) else out_path
    wanted = {"--out": page, "--registry": registry, "--nist": nist}
    inputs = {"the model": model, **ledger_inputs(ledger)}
    with claimed(wanted, inputs=inputs, force=force) as files:
        from curvedp.cli import workflow
        from curvedp.release import modelfile
        from curvedp.release.ledger.file import Ledger
        from curvedp.reports.filings import deployment_yaml, nist_page

        document = modelfile.load(model)
        fitted = document.to_estimator()
        book = None if ledger is None else Ledger(ledger)
        state = None if book is None else book.state()
        refits = [] if book is None else _charged(book, model)
        warnings = [*refits, *workflow.release_warnings(fitted)]
        texts = {
            "--out": lambda: workflow.release_report(fitted, state, cautions=refits),
            "--registry": lambda: deployment_yaml(document, state),
            "--nist": lambda: nist_page(document, state, [found.text for found in warnings]),
        }
        made = {option: texts[option]() for option in files}
        for option, text in made.items():
            files[option].write(text)
    if json:
        emit_json(
            {
                "report": None if page is None else str(page),
                "registry": None if registry is None else str(registry),
                "nist": None if nist is None else str(nist),
                "guarantee": fitted.privacy_.to_dict(),
                "warnings": [{"level": found.level, "text": found.text} for found in warnings],
                "record": None if fitted.record_ is None else fitted.record_.to_dict(),
                **what_is_left(state),
            }
        )
    elif not quiet:
        for found in warnings:
            say(found.text, style="bold red" if found.level == "red" else "yellow")
        for what, path in (("Report", page), ("Registry entry", registry), ("Answers to NIST", nist)):
            if path is not None:
                say(f"{what} written to {path}.")


def _charged(book: Ledger, model: Path) -> list[Caution]:
    """Refuse what the ledger did not release; of a refit say so."""
    from curvedp.reports.report import Caution

    book.verify()
    found, _ = compared(model, book)
    if not (found.holds or found.refit):
        raise InvalidInput(f"{model}: {found.answer}. File what was released, or ask who changed it")
    return [] if found.holds else [Caution("amber", f"{found.answer[0].upper()}{found.answer[1:]}.")]


# `curvedp verify`: is a file what its charge released?


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
    from curvedp.release.ledger.file import Ledger

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
    from curvedp.release.record import verify as compare

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
    from curvedp.cli import workflow
    from curvedp.release.modelfile import Release

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
