"""`curvedp report`, `verify`, `predict` and `ledger`: what was released, what is left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from curvedp.cli import charging as o
from curvedp.cli.charging import what_is_left
from curvedp.cli.console import (
    Commands,
    Steps,
    emit_json,
    emit_text,
    err,
    in_options,
    out,
    progress,
    refute,
    say,
    show_table,
    visible,
)
from curvedp.errors import InvalidInput, LedgerDamaged, ModelFileError

if TYPE_CHECKING:
    from curvedp.analyses.predictions import OddCells, Predicted, Predictor
    from curvedp.release.ledger.file import Ledger
    from curvedp.release.ledger.storage import Charge, LedgerState, Subtotal, Verified
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
        from curvedp.reports.filings import deployment_yaml, nist_page, unanswered

        document = modelfile.load(model)
        fitted = document.to_estimator()
        book = None if ledger is None else Ledger(ledger)
        state = None if book is None else book.state()
        known = [] if book is None else _charged(book, model)
        warnings = [*known, *workflow.release_warnings(fitted)]
        texts = {
            "--out": lambda: workflow.release_report(fitted, state, cautions=known),
            "--registry": lambda: deployment_yaml(document, state),
            "--nist": lambda: nist_page(document, state, [found.text for found in warnings]),
        }
        made = {option: texts[option]() for option in files}
        asked = [] if registry is None else unanswered(document)
        for option, text in made.items():
            files[option].write(text)
    if json:
        emit_json(
            {
                "report": None if page is None else str(page),
                "registry": None if registry is None else str(registry),
                "to_fill_in": asked,
                "nist": None if nist is None else str(nist),
                "guarantee": fitted.privacy_.to_dict(),
                "warnings": [{"level": found.level, "text": found.text} for found in warnings],
                "record": fitted.record_.to_dict(),
                **what_is_left(state),
            }
        )
    elif not quiet:
        for found in warnings:
            say(found.text, style="bold red" if found.level == "red" else "yellow")
        for what, path in (("Report", page), ("Registry entry", registry), ("Answers to NIST", nist)):
            if path is not None:
                say(f"{what} written to {path}.")
        if asked:
            lines = "\n  ".join(asked)
            say(f"For tier 3, the registry's highest, a person still has to fill in {len(asked)}:\n  {lines}")


def _charged(book: Ledger, model: Path) -> list[Caution]:
    """Refuse what the ledger did not release; of a refit, and of a ledger without a check, say so."""
    from curvedp.reports.report import Caution, unchecked

    book.verify()
    found, _ = compared(model, book)
    if not (found.holds or found.refit):
        raise InvalidInput(f"{model}: {found.answer}. File what was released, or ask who changed it")
    refit = [] if found.holds else [Caution("amber", f"{found.answer[0].upper()}{found.answer[1:]}.")]
    return [*refit, *unchecked(book.history())]


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
        str | None, typer.Option("--head", help="The head of an earlier moment, which was kept elsewhere.")
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


# `curvedp predict`: new rows with a released model.


STDOUT = Path("-")


def predict(
    model: o.ModelArgument,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="New rows, CSV or Parquet, with the same columns; no target needed."
        ),
    ],
    out_path: Annotated[
        Path | None,
        typer.Option(
            "--out", help="File to write: .csv, .csv.gz or .parquet; default, and -: stdout, as CSV."
        ),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="The probability of each class, beside the class.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="Of two classes, predict the event from this probability on."),
    ] = None,
    copied: Annotated[
        list[str] | None,
        typer.Option("--id", help="A column of DATA to copy beside the prediction; may be given again."),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse DATA with cells that are missing or not what was declared."),
    ] = False,
    delimiter: o.DelimiterOption = None,
    encoding: o.EncodingOption = None,
    decimal: o.DecimalOption = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Predict new rows with a released model. This is free: the privacy of the training rows is paid.

    Numbers stay within the declared range of the target. Missing and unreadable cells follow the schema's
    rules, as in the fit; how many there are is said on stderr, and nowhere else. Rows are read in chunks.
    What is copied is as sensitive as DATA.
    """
    from curvedp.release.outputs import claimed

    path = None if out_path == STDOUT else out_path
    inputs = {"the model": model, "the data": data}
    with claimed({"--out": path}, inputs=inputs, force=force, source=data) as files:
        from curvedp.analyses.predictions import (
            CORRECT,
            Predictor,
            Wanted,
            added,
            in_words,
            require_form,
            write_file,
            write_rows,
        )
        from curvedp.release import modelfile

        wanted = Wanted(proba=proba, threshold=threshold, copied=tuple(copied or ()))
        document = modelfile.load(model).with_file(encoding=encoding, delimiter=delimiter, decimal=decimal)
        predictor = Predictor(document, wanted)
        if path is not None:
            require_form(path)
        if strict:
            predictor.require_declared(data)
        odd: list[OddCells] = []
        shown = not (json or quiet) and (path is not None or not out.is_terminal)
        with progress("predicting", total=rows_of(data), show=shown) as steps:
            chunks = counted(predictor.chunks(data), steps, odd)
            if json and path is None:
                emit_json(document_of(predictor, list(chunks)))
            elif path is None:
                write_rows(_Stdout(), predictor.names, chunks)  # type: ignore[arg-type]
            else:
                with files["--out"].stream() as file:
                    write_file(file, path, predictor.names, chunks)
    if odd and not quiet:
        said = f"Predicted by the schema's rule for such cells: {in_words(added(odd))}. {CORRECT}; "
        err.print(visible(in_options(said + "`strict` refuses them.")), style="yellow", soft_wrap=True)
    if path is not None and json:
        emit_json({"predictions": str(path), "columns": predictor.names})
    elif path is not None and not quiet:
        say(f"Predictions written to {path}.")


def counted(chunks: Iterator[Predicted], steps: Steps, odd: list[OddCells]) -> Iterator[Predicted]:
    """The chunks, their rows told to the progress bar, and what is odd in their cells to the list."""
    for chunk in chunks:
        odd += [chunk.odd] if chunk.odd else []
        yield chunk
        steps.done(len(chunk))


def rows_of(data: Path) -> int | None:
    """The number of rows where a file declares it."""
    from curvedp.data.delimited import is_parquet
    from curvedp.data.source import parquet_rows

    return parquet_rows(data) if is_parquet(data) else None


def document_of(predictor: Predictor, chunks: list[Predicted]) -> dict[str, Any]:
    parts = zip(*(chunk.columns() for chunk in chunks), strict=True)
    joined = ([cell for part in column for cell in part] for column in parts)
    columns = dict(zip(predictor.names, joined, strict=True))
    own = list(columns)[len(predictor.wanted.copied) :]
    labels = map(str, predictor.labels)
    return {
        "target": predictor.document.schema.target,
        "predictions": columns[own[0]],
        "probabilities": dict(zip(labels, (columns[name] for name in own[1:]), strict=True)),
        "copied": {name: columns[name] for name in predictor.wanted.copied},
    }


class _Stdout:
    """Where lines of CSV go, refused where stdout cannot hold one of their letters."""

    def write(self, text: str) -> int:
        emit_text(text)
        return len(text)


# `curvedp ledger`: create a budget, look at what is left of it, verify its history.


CURVE_WIDTH, BARS = 40, " ▁▂▃▄▅▆▇█"

ledger_app = typer.Typer(
    cls=Commands, help="Create and read a budget that cannot be overspent.", no_args_is_help=True
)

LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger file, e.g. budget.db")]


@ledger_app.command("create", epilog="Example: curvedp ledger create budget.db --epsilon 3 --delta 1e-5")
def create_ledger(
    ledger: LedgerPath,
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption,
    adjacency: o.AdjacencyOption = "replace",
    unit: Annotated[
        str | None, typer.Option("--unit", help="The column that says whose row it is: a ledger for persons.")
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
        if unit is not None:
            say(f'For check, bounds, describe, fit, search and score alike, of schemas with unit = "{unit}"')


@ledger_app.command("show", epilog="Example: curvedp ledger show budget.db --history")
def show_ledger(
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


@ledger_app.command(
    "verify", epilog="Example: curvedp ledger verify budget.db HEAD, where a report prints the head"
)
def verify_ledger(
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
