"""`curvedp report`, `verify`, `predict` and `ledger`: what was released, what is left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import curvedp
from curvedp.cli import charging as o
from curvedp.cli import console
from curvedp.cli.charging import Terms, say_cautions, says, sharing, what_is_left
from curvedp.cli.console import Steps, emit_json, emit_text, progress, refute, say, show_table
from curvedp.errors import InvalidInput, LedgerDamaged, ModelFileError
from curvedp.release.outputs import claimed, ledger_inputs

if TYPE_CHECKING:
    from curvedp.analyses.predictions import OddCells, Predicted, Predictor
    from curvedp.release.ledger.storage import Charge, LedgerState, Subtotal
    from curvedp.release.record import Verification
    from curvedp.reports.report import Caution


@sharing("force", "json", "quiet")
def report(
    terms: Terms,
    model: o.ModelArgument,
    out: Annotated[Path | None, "File to write: the page; default: beside the model, as .html."] = None,
    registry: Annotated[
        Path | None, "Write an entry for the registry of deployments (OpenDP), as YAML."
    ] = None,
    nist: Annotated[Path | None, "Write a page that answers the questions of NIST SP 800-226."] = None,
    ledger: Annotated[Path | None, "Budget; what is left of it is shown, nothing is charged."] = None,
) -> None:
    """Write the record of a release: promise, warnings, budget, limits, declarations, software, numbers.

    Free: nothing is read but the model file, and a ledger if you name one; that must hold the charge that
    released this very file (curvedp verify). With --registry or --nist alone no page is made.
    """
    page = model.with_suffix(".html") if out is None and not (registry or nist) else out
    wanted = {"--out": page, "--registry": registry, "--nist": nist}
    inputs = {"the model": model, **ledger_inputs(ledger)}
    with claimed(wanted, inputs=inputs, force=terms.force) as files:
        from curvedp.cli import workflow
        from curvedp.reports import filings
        from curvedp.reports.report import Caution, unchecked

        fitted = curvedp.load(model)
        document, state = fitted.release_, None
        known: list[Caution] = []
        if ledger is not None:
            book = curvedp.Ledger(ledger)
            book.verify()
            state, (paid, _) = book.state(), compared(model, book)
            if not (paid.holds or paid.refit):
                raise InvalidInput(f"{model}: {paid.answer}. File what was released, or ask who changed it")
            refit = [] if paid.holds else [Caution("amber", f"{paid.answer[0].upper()}{paid.answer[1:]}.")]
            known = [*refit, *unchecked(book.history())]
        warnings = [*known, *workflow.release_warnings(fitted)]
        texts = {
            "--out": lambda: workflow.release_report(fitted, state, cautions=known),
            "--registry": lambda: filings.deployment_yaml(document, state),
            "--nist": lambda: filings.nist_page(document, state, [found.text for found in warnings]),
        }
        made = {file: texts[name]() for name, file in files.items()}
        asked = [] if registry is None else filings.unanswered(document)
        for file, text in made.items():
            file.write(text)
    told = {
        "report": page,
        "registry": registry,
        "to_fill_in": asked,
        "nist": nist,
        "guarantee": fitted.privacy_.to_dict(),
        "warnings": [{"level": found.level, "text": found.text} for found in warnings],
        "record": fitted.record_.to_dict(),
        **what_is_left(state),
    }
    if terms.answers(told):
        say_cautions(warnings)
        for what, path in (("Report", page), ("Registry entry", registry), ("Answers to NIST", nist)):
            if path is not None:
                say(f"{what} written to {path}.")
        if asked:
            lines = "\n  ".join(asked)
            say(f"For tier 3, the registry's highest, a person still has to fill in {len(asked)}:\n  {lines}")


@sharing("json", "quiet")
def verify(
    terms: Terms,
    released: Annotated[
        Path,
        "FILE",
        "What was released: a model file; the page or the JSON of scores, bounds, a description, a check.",
    ],
    ledger: Annotated[Path, "Budget; the one that paid, only read."],
    head: Annotated[str | None, "The head of an earlier moment, which was kept elsewhere."] = None,
) -> None:
    """Verify that a file is what its charge released. Exit code 1: it is not, and the fields that differ."""
    warnings: Sequence[Caution] = ()
    try:
        book = curvedp.Ledger(ledger)
        history = book.verify(head)
        found, document = compared(released, book)
        if found.holds and "format" in document:
            from curvedp.cli import workflow
            from curvedp.release.modelfile import Release

            warnings = workflow.release_warnings(Release.from_dict(document).to_estimator())
    except (LedgerDamaged, ModelFileError) as problem:
        refute(str(problem), {"verified": False, "answer": str(problem)}, terms.json)
    told = {"verified": found.holds, **asdict(found), "warnings": [caution.text for caution in warnings]}
    told |= {"ledger": asdict(history)}
    if not found.holds:
        refute(f"{released}: {found.answer}", told, terms.json)
    if terms.answers(told):
        say(f"{released}: {found.answer}", style="green")
        promise, state = document["guarantee"], book.state()
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
        say_cautions(warnings)


def compared(path: Path, book: curvedp.Ledger) -> tuple[Verification, dict[str, Any]]:
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
    if (inner := text if page is None else document_in(page)) is None:
        raise InvalidInput(
            f"{path} is a page without a released document: verify the model file that it was made from"
        )
    if not isinstance(document := plain_json(inner), dict):
        refuse("it is no document")
    return compare(document, book, page), document


@sharing("delimiter", "encoding", "decimal", "force", "json", "quiet")
def predict(
    terms: Terms,
    model: o.ModelArgument,
    data: Annotated[Path, "DATA", "New rows, CSV or Parquet, with the same columns; no target needed."],
    out: Annotated[
        Path | None, "File to write: .csv, .csv.gz or .parquet; default, and -: stdout, as CSV."
    ] = None,
    proba: Annotated[bool, "The probability of each class, beside the class."] = False,
    threshold: Annotated[float | None, "Of two classes, predict the event from this probability on."] = None,
    copied: Annotated[
        list[str] | None, says("A column of DATA to copy beside the prediction; may be given again.", "--id")
    ] = None,
    strict: Annotated[bool, "Refuse DATA with cells that are missing or not what was declared."] = False,
) -> None:
    """Predict new rows with a released model. This is free: the privacy of the training rows is paid.

    Numbers stay within the declared range of the target. Missing and unreadable cells follow the schema's
    rules, as in the fit; how many there are is said on stderr, and nowhere else. Rows are read in chunks.
    What is copied is as sensitive as DATA.
    """
    path = None if out == Path("-") else out
    inputs = {"the model": model, "the data": data}
    with claimed({"--out": path}, inputs=inputs, force=terms.force, source=data) as files:
        from curvedp.analyses import predictions
        from curvedp.data import delimited, source
        from curvedp.release import modelfile

        wanted = predictions.Wanted(proba=proba, threshold=threshold, copied=tuple(copied or ()))
        document = modelfile.load(model).with_file(**terms.file)
        predictor = predictions.Predictor(document, wanted)
        if path is not None:
            predictions.require_form(path)
        if strict:
            predictor.require_declared(data)
        odd: list[OddCells] = []
        shown = terms.talks and (path is not None or not console.out.is_terminal)
        total = source.source(data).rows() if delimited.is_parquet(data) else None
        with progress("predicting", total=total, show=shown) as steps:
            chunks = counted(predictor.chunks(data), steps, odd)
            if terms.json and path is None:
                emit_json(document_of(predictor, list(chunks)))
            elif path is None:
                predictions.write_rows(SimpleNamespace(write=emit_text), predictor.names, chunks)  # type: ignore[arg-type]
            else:
                with files["--out"].stream() as file:
                    predictions.write_file(file, path, predictor.names, chunks)
    if odd and not terms.quiet:
        cells = predictions.in_words(predictions.added(odd))
        said = f"Predicted by the schema's rule for such cells: {cells}. {predictions.CORRECT}; "
        said = console.visible(console.in_options(said + "`strict` refuses them."))
        console.err.print(said, style="yellow", soft_wrap=True)
    if path is not None and terms.answers({"predictions": path, "columns": predictor.names}):
        say(f"Predictions written to {path}.")


def counted(chunks: Iterator[Predicted], steps: Steps, odd: list[OddCells]) -> Iterator[Predicted]:
    """The chunks, their rows told to the progress bar, and what is odd in their cells to the list."""
    for chunk in chunks:
        odd += [chunk.odd] if chunk.odd else []
        yield chunk
        steps(advance=len(chunk))


def document_of(predictor: Predictor, chunks: list[Predicted]) -> dict[str, Any]:
    parts = zip(*(chunk.columns() for chunk in chunks), strict=True)
    columns = [[cell for part in column for cell in part] for column in parts]
    copied = predictor.wanted.copied
    predictions, *probabilities = columns[len(copied) :]
    return {
        "target": predictor.document.schema.target,
        "predictions": predictions,
        "probabilities": dict(zip(map(str, predictor.labels), probabilities, strict=True)),
        "copied": dict(zip(copied, columns, strict=False)),
    }


CURVE_WIDTH, BARS = 40, " ▁▂▃▄▅▆▇█"

ledger_app = typer.Typer(
    cls=console.Commands, help="Create and read a budget that cannot be overspent.", no_args_is_help=True
)

LedgerPath = Annotated[Path, "LEDGER", "The ledger file, e.g. budget.db"]


@ledger_app.command("create", epilog="Example: curvedp ledger create budget.db --epsilon 3 --delta 1e-5")
@sharing("json", "quiet")
def create_ledger(
    terms: Terms,
    ledger: LedgerPath,
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption,
    adjacency: Annotated[
        o.Adjacency, "Neighbouring tables: one record replaced, or one added or removed."
    ] = "replace",
    unit: Annotated[str | None, "The column that says whose row it is: a ledger for persons."] = None,
    filter: Annotated[
        Literal["gaussian", "basic"],
        "How charges add up: squares of μ, which goes further, or (basic) Σε and Σδ, for rules that "
        "ask for it.",
    ] = "gaussian",
) -> None:
    """Create a ledger with a total (ε, δ). An existing file is never overwritten."""
    told: dict[str, Any] = {"adjacency": adjacency, "unit": unit, "filter": filter}
    state = curvedp.Ledger.create(ledger, epsilon=epsilon, delta=delta, **told).state()
    if terms.answers(asdict(state)):
        say(f"{ledger}: a budget of ε = {epsilon:g}, δ = {delta:g} ({_terms(state)}), nothing spent")
        say(f"It pays for {state.left}")
        if unit is not None:
            say(f'For check, bounds, describe, fit, search and score alike, of schemas with unit = "{unit}"')


@ledger_app.command("show", epilog="Example: curvedp ledger show budget.db --history")
@sharing("json", "quiet")
def show_ledger(
    terms: Terms,
    ledger: LedgerPath,
    history: Annotated[bool, "List every charge, and what charges of one kind cost in all."] = False,
) -> None:
    """Show the total, what is spent, what is left, and the head to write down elsewhere."""
    from curvedp.release.ledger.storage import subtotals

    book = curvedp.Ledger(ledger)
    state = book.state()
    charges = book.history() if history else []
    groups = subtotals(charges)
    lists = {"history": [asdict(c) for c in charges], "subtotals": [asdict(g) for g in groups]}
    if terms.answers({**asdict(state), **(lists if history else {})}):
        say(f"{ledger} · {_terms(state)} · {state.filter} filter")  # a title would be folded to the table's
        rows = [
            ("ε", f"{state.epsilon:g}", f"{state.spent_epsilon:.4g}", f"{state.remaining_epsilon:.4g}"),
            ("δ", f"{state.delta:g}", f"{state.spent_delta:.4g}", f"{state.remaining_delta:.4g}"),
        ]
        headings = ("", "total", "spent", "left")
        show_table("", headings, rows, right=headings)
        for line in _curves(state) if state.filter == "gaussian" else ():
            say(line)
        say(f"Left: {state.left}")
        say(f"charges: {state.charges} · ledger {state.ledger}")
        say(f"head: {state.digest}")
        if history:
            _show_history(charges, groups, state)


@ledger_app.command(
    "verify", epilog="Example: curvedp ledger verify budget.db HEAD, where a report prints the head"
)
@sharing("json", "quiet")
def verify_ledger(
    terms: Terms,
    ledger: LedgerPath,
    head: Annotated[str | None, "HEAD", "The head of an earlier moment, which was kept elsewhere."] = None,
) -> None:
    """Verify every charge, sum and page, and that HEAD is in the history. Exit code 1: it does not stand."""
    try:
        found = curvedp.Ledger(ledger).verify(head)
    except LedgerDamaged as problem:
        refute(str(problem), {"sound": False, "reason": str(problem)}, terms.json)
    if not terms.answers({"sound": True, **asdict(found), "after": found.after}):
        return
    say(f"{ledger} · ledger {found.ledger} · charges: {found.charges}; every charge, sum and page verified")
    if (asked := found.found) is None:
        say(f"head: {found.head}")
        say(
            "This notices damage. A rewriting by somebody who knows how the hashes are made is noticed only "
            "against a head that was kept elsewhere: pass it as HEAD"
        )
        return
    which = f"charge {asked.charge}" if asked.charge else "the new ledger, before any charge"
    said = (f", by {asked.by}" if asked.by else "") + (f", for: {asked.purpose}" if asked.purpose else "")
    say(f"HEAD is that of {which}, {asked.time}{said}; charges after it: {found.after}")
    say("Nothing up to it was changed, removed or put in another order since it was written down", "green")


def _curves(state: LedgerState) -> list[str]:
    """δ(ε) of what is spent, and of all that Gaussian releases may spend, as bars on a logarithmic scale."""
    from curvedp.privacy.gaussian import boxes

    floor = max(state.delta / 1000, 1e-300)
    levels = [state.epsilon * step / (CURVE_WIDTH - 1) for step in range(CURVE_WIDTH)]
    curves = {"spent": state.spent, "in all": boxes(state.epsilon, state.delta)[0]}

    def bar(delta: float) -> str:
        height = 1 - math.log(max(delta, floor)) / math.log(floor)
        return BARS[math.ceil(height * (len(BARS) - 1))]

    axis = f"δ(ε) for ε from 0 to {state.epsilon:g}, bars from {floor:.0e} to 1; squares of μ add up:"
    bars = {name: "".join(bar(cost.delta_at(level)) for level in levels) for name, cost in curves.items()}
    return [axis, *(f"{name:>6} {text}" for name, text in bars.items())]


def _show_history(charges: list[Charge], groups: list[Subtotal], state: LedgerState) -> None:
    extra = tuple(name for name in ("by", "purpose") if any(getattr(c, name) for c in charges))
    rows = []
    for number, c in enumerate(charges, 1):
        told = (c.time, c.mechanism, c.theorem, f"{c.epsilon:g}", f"{c.delta:g}", c.label)
        rows.append((str(number), *told, *(getattr(c, name) or "" for name in extra)))
    headings = ("", "time (UTC)", "mechanism", "theorem", "ε", "δ", "label", *extra)
    show_table("Every charge", headings, rows, right=("",))
    numbers = ("charges", "ε", "δ")
    sums = [(g.label, g.mechanism, str(g.charges), f"{g.epsilon:g}", f"{g.delta:g}") for g in groups]
    total = ("all", "", str(state.charges), f"{state.spent_epsilon:.4g}", f"{state.spent_delta:.4g}")
    show_table("In all", ("label", "mechanism", *numbers), [*sums, total], right=numbers)


def _terms(state: LedgerState) -> str:
    return state.adjacency if state.unit is None else f"{state.adjacency}, rows of one {state.unit} together"
