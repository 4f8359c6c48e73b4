"""`curvedp report`: the record of a release as a page, made later from the model file alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curvedp.cli import options as o
from curvedp.cli.charging import what_is_left
from curvedp.cli.console import emit_json, say
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.filing.report import Caution
    from curvedp.ledger import Ledger


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
    from curvedp.outputs import claimed, ledger_inputs

    page = model.with_suffix(".html") if out_path is None and not (registry or nist) else out_path
    wanted = {"--out": page, "--registry": registry, "--nist": nist}
    inputs = {"the model": model, **ledger_inputs(ledger)}
    with claimed(wanted, inputs=inputs, force=force) as files:
        from curvedp import modelfile, workflow
        from curvedp.filing.nist import nist_page
        from curvedp.filing.registry import deployment_yaml
        from curvedp.ledger import Ledger

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
    from curvedp.cli.verify import compared
    from curvedp.filing.report import Caution

    book.verify()
    found, _ = compared(model, book)
    if not (found.holds or found.refit):
        raise InvalidInput(f"{model}: {found.answer}. File what was released, or ask who changed it")
    return [] if found.holds else [Caution("amber", f"{found.answer[0].upper()}{found.answer[1:]}.")]
