"""`purchase`: what every command that charges does. It opens the ledger, proves that outputs can be written,
plans, charges and releases, says what a signal cost, and loses no release.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from curvedp.cli.console import TRACEBACK, ReaderGone, Steps, as_json, emit_json, in_words, progress, say
from curvedp.errors import CurvedpError, InvalidInput, PrivacyWarning, StoppedAfterCharge
from curvedp.release import catalogue

if TYPE_CHECKING:
    from curvedp.data.schema import Schema
    from curvedp.privacy.guarantee import Guarantee
    from curvedp.release.ledger.file import Ledger
    from curvedp.release.ledger.storage import LedgerState, Receipt

# Options that several commands share, so that they read the same everywhere; those of estimators among them.
#
# One word is one thing: wherever an option occurs, its help begins with the same words, up to the first colon
# or semicolon; what a command does with it comes after (tests/cli/test_manners.py).


# As in curvedp.privacy.budget, which is not imported here: `--help` must not load the numerical libraries.
Adjacency = Literal["replace", "add_remove"]
Task = Literal["regression", "classification"]

if TYPE_CHECKING:
    MechanismName = str
    ModelName = str
else:
    MechanismName = StrEnum("MechanismName", {name: name for name in catalogue.offered()})
    ModelName = StrEnum("ModelName", {name: name for name in ("auto", *catalogue.one_target())})

EpsilonOption = Annotated[
    float, typer.Option("--epsilon", help="ε: one record shifts any odds by at most e^ε.")
]
DeltaOption = Annotated[float, typer.Option("--delta", help="δ: the chance of failure; far below 1/rows.")]
AlphasOption = Annotated[str, typer.Option("--alphas", help="Penalty weights, separated by commas.")]
AdjacencyOption = Annotated[
    Adjacency,
    typer.Option("--adjacency", help="Neighbouring tables: one record replaced, or one added or removed."),
]
TableArgument = Annotated[
    Path, typer.Argument(metavar="DATA", help="The sensitive table: a CSV file, or Parquet files.")
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file written by curvedp fit.")]
SchemaOption = Annotated[Path, typer.Option("--schema", help="Declared columns; see: curvedp schema DATA")]
TargetOption = Annotated[
    str | None, typer.Option("--target", help="Column to predict, if the schema names none.")
]
FormulaOption = Annotated[
    str | None,
    typer.Option(
        "--formula", help='The model in R\'s notation: "wage ~ age + I(age**2) + C(region):female".'
    ),
]
SightOption = Annotated[
    int | None,
    typer.Option("--rows", help="Rows you declare: what can be seen in so many is said beforehand."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only say what could be seen: nothing is released or charged.")
]
DelimiterOption = Annotated[
    str | None,
    typer.Option("--delimiter", help="What separates the cells of a line, if not what the schema says."),
]
EncodingOption = Annotated[
    str | None,
    typer.Option("--encoding", help="How the file is saved, such as latin-1, if not what the schema says."),
]
DecimalOption = Annotated[
    str | None, typer.Option("--decimal", help="The decimal sign, . or , if not what the schema says.")
]
HeaderOption = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first line of a CSV file names the columns."),
]
NamesOption = Annotated[
    str | None,
    typer.Option("--names", help="The columns of a CSV file without a header, in order, by commas."),
]
ReportOption = Annotated[Path | None, typer.Option("--report", help="Write an HTML page of it.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def _of_estimators() -> dict[str, Any]:
    """The numbers and switches that estimators take, with their names, kinds and first sentences there.

    Read from the docstrings in their source: importing it would load the numerical libraries.
    """
    folder = Path(__file__).parents[1] / "analyses" / "estimators"
    sources = (path.read_text("utf-8") for path in sorted(folder.glob("*.py")))
    text = "\n".join(source for source in sources if "documented" in source)
    parameter = re.compile(r"^    ([a-z]\w*[a-z]) : (float|bool)\b.*\n((?: {8}.*\n)+)", re.MULTILINE)
    found: dict[str, Any] = {}
    told = (
        (name, kind, re.split("[.;]", " ".join(words.split()))[0])
        for name, kind, words in parameter.findall(text)
    )
    for name, kind, words in sorted(told, key=lambda told: len(told[2])):  # the most general says least
        option = f"--{name.replace('_', '-')}"
        if kind == "bool":
            option = f"{option}/{option.replace('--', '--no-')}"
        said = typer.Option(option, help=f"{words}.")
        found.setdefault(name, Annotated[{"float": float, "bool": bool}[kind] | None, said])
    for otherwise in ("epsilon", "delta", "weight_max"):  # of fits in Python
        del found[otherwise]
    return dict(sorted(found.items()))


ESTIMATOR_OPTIONS = _of_estimators()


def as_parameters(annotations: dict[str, Any], **defaults: Any) -> list[inspect.Parameter]:
    """For the signature of a command."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, kind, default=defaults.get(name), annotation=annotation)
        for name, annotation in annotations.items()
    ]


def numbers(text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers such as 0.1,1") from None


def listed(text: str | None) -> list[str]:
    """Names separated by commas."""
    return [] if text is None else [name.strip() for name in text.split(",")]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What every charging command is told: what pays, how the table is written, how to answer."""

    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Budget; charged beforehand. See: curvedp ledger create")
    ] = None
    by: Annotated[
        str,
        typer.Option("--by", help="Who releases: a name or an office; the ledger and the record keep it."),
    ] = ""
    purpose: Annotated[
        str, typer.Option("--purpose", help="What it is for, in one line; the ledger and the record keep it.")
    ] = ""
    report: ReportOption = None
    delimiter: DelimiterOption = None
    encoding: EncodingOption = None
    decimal: DecimalOption = None
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="For research: repeatable, NOT private, refused by a ledger."),
    ] = None
    force: ForceOption = False
    json: JsonOption = False
    quiet: QuietOption = False

    @property
    def talks(self) -> bool:
        return not (self.json or self.quiet)

    @property
    def file(self) -> dict[str, str | None]:
        """How the table is written, where the schema says otherwise."""
        return {"encoding": self.encoding, "delimiter": self.delimiter, "decimal": self.decimal}

    def declared(self, path: Path, target: str | None = None, formula: str | None = None) -> Schema:
        """The schema of a file."""
        from curvedp.data.schema import Schema

        return Schema.load(path).with_model(target, formula).with_file(**self.file)


def charging(
    *more: inspect.Parameter, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command with further options and those of `Terms`; these come to it as its first argument."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        known = get_type_hints(Terms, include_extras=True)
        shared = {f.name: f.default for f in fields(Terms) if f.name not in without}
        hints = get_type_hints(command, include_extras=True)
        _, *parameters = inspect.signature(command).parameters.values()
        own = [
            p.replace(annotation=hints[p.name], kind=p.KEYWORD_ONLY)
            for p in parameters
            if p.kind is not p.VAR_KEYWORD
        ]

        @wraps(command)
        def run(**given: Any) -> None:
            terms = Terms(**{name: given.pop(name) for name in shared})
            command(terms, **given)

        ends = as_parameters({name: known[name] for name in shared}, **shared)
        signature = inspect.Signature([*own, *more, *ends])
        del run.__wrapped__  # type: ignore[attr-defined]  # it has another signature
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        return run

    return decorate


@dataclass(frozen=True)
class Order:
    """A planned release: nothing is charged before `release()`.

    `model` is what it fits, if it does; `outlook` what can be expected, under which `promise`, for a dry run.
    """

    release: Callable[[], Any]
    model: Any = None
    outlook: str = ""
    promise: Guarantee | None = None


@dataclass(frozen=True)
class Shown:
    """A release for machines, for people, and by option in files; `page_of`: the charge of its page."""

    document: Mapping[str, Any]
    say: Callable[[], None]
    files: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    written: str = ""
    page_of: Receipt | None = None


def purchase(
    terms: Terms,
    price: tuple[float, float],
    plan: Callable[[Ledger | None, Steps], Order],
    show: Callable[[Any, LedgerState | None], Shown],
    *,
    inputs: Mapping[str, Path | None],
    outputs: Mapping[str, Path | None] | None = None,
    doing: str,
    overwrite: bool | None = None,
    dry_run: bool = False,
) -> None:
    """Plan a release of `price` = (ε, δ), pay for it, make it, write its files and show it.

    What can be refused is refused before the charge, and at once where that needs no large library.
    """
    from curvedp.privacy.budget import Budget
    from curvedp.release.outputs import claimed, ledger_inputs

    outputs = {"--report": terms.report} if outputs is None else outputs
    if terms.quiet and not (terms.json or dry_run or any(outputs.values())):
        raise InvalidInput(
            "--quiet prints nothing and no file is asked for, so that what is paid for would be lost: pass "
            f"{next(iter(outputs))} or --json, or leave --quiet out"
        )
    Budget(*price)
    for what, path in inputs.items():
        if path is not None and not os.path.exists(path):
            named = f"the schema {path}" if what == "the schema" else str(path)
            raise InvalidInput(f"cannot read {named} (No such file or directory): check the path")
    force = terms.force if overwrite is None else overwrite
    with (
        _opened(terms, None if dry_run else price) as book,
        claimed(outputs, inputs={**inputs, **ledger_inputs(terms.ledger)}, force=force) as files,
    ):
        with progress("loading", total=None, show=terms.talks) as steps:
            order = plan(book, steps)
        if order.outlook and terms.talks:
            say(order.outlook)
        outlook = {"outlook": order.outlook} if order.outlook else {}
        if dry_run:
            if terms.json and order.promise is not None:
                emit_json({**outlook, "guarantee": order.promise.to_dict()})
            return
        with progress(doing, total=None, show=terms.talks):
            made, whole = _made(order)
        promise = made.privacy if order.model is None else order.model.privacy_
        with _after_the_charge(book, promise, lambda: _kept(show(made, None))) as paid:
            if not whole:
                raise KeyboardInterrupt
            state = None if book is None else book.state()
            shown = show(made, state)
            for option, file in files.items():
                if option not in shown.files:
                    continue
                page = shown.files[option]()
                file.write(page)
                paid.where = paid.where or f"what was released is in {file.path}"
                if shown.page_of is not None:
                    from curvedp.release.record import keep_page

                    keep_page(book, shown.page_of, page)
            if terms.json:
                emit_json({**shown.document, **outlook, **what_is_left(state)})
            elif not terms.quiet:
                shown.say()
                say_what_is_left(state)
                if shown.written:
                    say(shown.written)


def _kept(shown: Shown) -> str:
    """The text that must not be lost: the first file, or the document where no file holds it."""
    return shown.files["--out"]() if "--out" in shown.files else as_json(shown.document)


@contextmanager
def _opened(terms: Terms, price: tuple[float, float] | None) -> Iterator[Ledger | None]:
    """The ledger to charge, if there is one; refused at once where `price` is beyond it.

    Whenever Ctrl-C comes, what is said is what the file says.
    """
    if terms.ledger is None:
        if terms.by or terms.purpose:
            raise InvalidInput(
                "--by and --purpose are kept by a ledger: pass --ledger, too, or leave them out"
            )
        yield None
        return
    from curvedp.release.ledger.file import Ledger

    book = Ledger(terms.ledger, by=terms.by, purpose=terms.purpose)
    before = book.state()
    if terms.seed is None and price is not None:
        book.refuse_beyond(*price)
    try:
        yield book
    except StoppedAfterCharge:
        raise
    except KeyboardInterrupt:
        charged = _charged_since(book, before)
        if not charged:
            raise
        raise StoppedAfterCharge(f"stopped; {charged}") from None


def _charged_since(book: Ledger, before: LedgerState) -> str:
    """What was charged to the ledger meanwhile, in words; "" if nothing was."""
    try:
        charges = book.history()[before.charges :]
    except (CurvedpError, KeyboardInterrupt):  # a second Ctrl-C must not be answered by a guess
        return f"{book.path} was not read once more: curvedp ledger show says what was charged"
    if not charges:
        return ""
    return _spent(sum(charge.epsilon for charge in charges), sum(charge.delta for charge in charges))


def _spent(epsilon: float, delta: float) -> str:
    return f"ε = {epsilon:g}, δ = {delta:g} were charged before and are spent"


def _made(order: Order) -> tuple[Any, bool]:
    """The release; False where Ctrl-C came when that of a model was made already, and is not to be lost."""
    try:
        with warnings.catch_warnings(action="ignore", category=PrivacyWarning):  # said below the release
            found = order.release()
    except KeyboardInterrupt:
        if not hasattr(order.model, "privacy_"):
            raise
        return order.model, False
    return found, True


@dataclass
class _Paid:
    """A release that was paid for, and where it is; "" until it is written or printed."""

    where: str = ""


@contextmanager
def _after_the_charge(book: Ledger | None, promise: Guarantee, release: Callable[[], str]) -> Iterator[_Paid]:
    """Once the budget is spent nothing is lost: what goes wrong says so, and where `release()` is kept."""
    charged = "the release was made before" if book is None else _spent(promise.epsilon, promise.delta)
    paid = _Paid()
    try:
        yield paid
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the second is how rich ends when nobody reads
        raise ReaderGone(
            f"nobody reads stdout any more; {charged}; {paid.where or _rescued(release)}"
        ) from None
    except KeyboardInterrupt:
        raise StoppedAfterCharge(f"stopped; {charged}; {paid.where or _rescued(release)}") from None
    except Exception as problem:
        if os.environ.get(TRACEBACK) == "1" and not isinstance(problem, CurvedpError | OSError):
            raise
        raise InvalidInput(f"{in_words(problem)}; {charged}; {paid.where or _rescued(release)}") from None


def _rescued(release: Callable[[], str]) -> str:
    """Where a release is that could not be written where it was asked for."""
    from curvedp.release.outputs import rescue

    try:
        text = release()
    except Exception:
        return "what was released could not be kept"
    try:
        return f"what was released is kept in {rescue(text)}"
    except CurvedpError:
        sys.stdout.write(text)
        return "what was released was printed"


def say_promise(promise: Guarantee, again: str) -> None:
    """The guarantee in one line; `again` is what to do once more without a seed."""
    from curvedp.privacy.guarantee import Promise

    whose = "" if promise.neighbours.unit is None else f", {promise.neighbours.words}"
    say(
        f"Released under (ε, δ) = ({promise.epsilon:g}, {promise.delta:g}), {promise.adjacency}{whose}: "
        f"{promise.mechanism}, {promise.theorem}."
    )
    warn_of_a_seed(promise, again)
    if promise.private and Promise(promise).is_weak:
        say(
            f"ε = {promise.epsilon:g}, δ = {promise.delta:g} promise very little: show this to nobody who "
            "may not see the table. Take an ε near 1, and a δ far below one over the number of rows.",
            style="bold red",
        )


def warn_of_a_seed(promise: Guarantee, again: str) -> None:
    if not promise.private:
        say(f"Seeded: NOT private. {again} again without --seed before sharing.", style="bold red")


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
