"""`purchase`: what every command that charges does. It opens the ledger, proves that outputs can be written,
plans, charges and releases, says what a signal cost, and loses no release.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import typer

import curvedp
from curvedp.cli.console import TRACEBACK, ReaderGone, Steps, as_json, emit_json, in_words, progress, say
from curvedp.errors import CurvedpError, InvalidInput, PrivacyWarning, StoppedAfterCharge
from curvedp.privacy.budget import Budget
from curvedp.release import catalogue
from curvedp.release.outputs import claimed, ledger_inputs, rescue

if TYPE_CHECKING:
    from curvedp.release.ledger.storage import LedgerState, Receipt
    from curvedp.reports.report import Caution

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
    one_target = (name for name, entry in catalogue.ESTIMATORS.items() if entry.task != "several")
    ModelName = StrEnum("ModelName", {name: name for name in ("auto", *one_target)})


def says(words: str, *names: str, **more: Any) -> Any:
    """What a command says of an option; `names` where it is not called as its parameter."""
    return typer.Option(*names, help=words, **more)


def spoken(name: str, annotation: Any) -> Any:
    """A text beside a type is said of an option, after a name of an argument; a switch has no opposite."""
    kind, *said = get_args(annotation)
    if not all(isinstance(text, str) for text in said):
        return annotation
    switch = (f"--{name.replace('_', '-')}",) if kind is bool else ()
    if len(said) > 1:
        return Annotated[kind, typer.Argument(metavar=said[0], help=said[1])]
    return Annotated[kind, says(*said, *switch)]


EpsilonOption = Annotated[float, "ε: one record shifts any odds by at most e^ε."]
DeltaOption = Annotated[float, "δ: the chance of failure; far below 1/rows."]
AlphasOption = Annotated[str, "Penalty weights, separated by commas."]
TableArgument = Annotated[Path, "DATA", "The sensitive table: a CSV file, or Parquet files."]
ModelArgument = Annotated[Path, "MODEL", "A model file written by curvedp fit."]
SchemaOption = Annotated[Path, "Declared columns; see: curvedp schema DATA"]
TargetOption = Annotated[str | None, "Column to predict, if the schema names none."]
FormulaOption = Annotated[
    str | None, 'The model in R\'s notation: "wage ~ age + I(age**2) + C(region):female".'
]
SightOption = Annotated[int | None, "Rows you declare: what can be seen in so many is said beforehand."]
DryRunOption = Annotated[bool, "Only say what could be seen: nothing is released or charged."]
HeaderOption = Annotated[bool | None, "Whether the first line of a CSV file names the columns."]
NamesOption = Annotated[str | None, "The columns of a CSV file without a header, in order, by commas."]
JsonOption = Annotated[bool, says("Print one JSON document and nothing else.", "--json")]
QuietOption = Annotated[bool, says("Print nothing but errors.", "--quiet", "-q")]


def _of_estimators() -> dict[str, Any]:
    """The numbers and switches that estimators take, with their names, kinds and first sentences there.

    Read from the docstrings in their source: importing it would load the numerical libraries.
    """
    folder = Path(__file__).parents[1] / "analyses" / "estimators"
    sources = (path.read_text("utf-8") for path in sorted(folder.glob("*.py")))
    text = "\n".join(source for source in sources if "@estimator" in source)
    parameter = re.compile(r"^    ([a-z]\w*[a-z]) : (float|bool)\b.*\n((?: {8}.*\n)+)", re.MULTILINE)
    found: dict[str, Any] = {}
    for name, kind, words in parameter.findall(text):
        said = re.split("[.;]", " ".join(words.split()))[0] + "."
        known = get_args(found[name])[1] if name in found else None
        if known is None or len(said) < len(known):  # the most general says least
            found[name] = Annotated[{"float": float, "bool": bool}[kind] | None, said]
    of_python = ("epsilon", "delta", "weight_max")
    return {name: found[name] for name in sorted(found) if name not in of_python}


ESTIMATOR_OPTIONS = _of_estimators()
AlphaOption = Annotated[float | None, get_args(ESTIMATOR_OPTIONS["alpha"])[1]]


def numbers(text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers such as 0.1,1") from None


def listed(text: str | None) -> list[str]:
    """Names separated by commas."""
    return [] if text is None else [name.strip() for name in text.split(",")]


Decorator = Callable[[Callable[..., None]], Callable[..., None]]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What several commands are told: what pays, how the table is written, how to answer."""

    ledger: Annotated[Path | None, "Budget; charged beforehand. See: curvedp ledger create"] = None
    by: Annotated[str, "Who releases: a name or an office; the ledger and the record keep it."] = ""
    purpose: Annotated[str, "What it is for, in one line; the ledger and the record keep it."] = ""
    report: Annotated[Path | None, "Write an HTML page of it."] = None
    delimiter: Annotated[str | None, "What separates the cells of a line, if not what the schema says."] = (
        None
    )
    encoding: Annotated[
        str | None, "How the file is saved, such as latin-1, if not what the schema says."
    ] = None
    decimal: Annotated[str | None, "The decimal sign, . or , if not what the schema says."] = None
    seed: Annotated[
        int | None, says("For research: repeatable, NOT private, refused by a ledger.", min=0)
    ] = None
    force: Annotated[bool, "Overwrite files that exist."] = False
    json: JsonOption = False
    quiet: QuietOption = False

    @property
    def talks(self) -> bool:
        return not (self.json or self.quiet)

    def answers(self, document: Any) -> bool:
        """Whether people are to be told; machines are by now."""
        if self.json:
            emit_json(document)
        return self.talks

    @property
    def file(self) -> dict[str, str | None]:
        """How the table is written, where the schema says otherwise."""
        return {"encoding": self.encoding, "delimiter": self.delimiter, "decimal": self.decimal}

    def declared(self, path: Path, target: str | None = None, formula: str | None = None) -> curvedp.Schema:
        """The schema of a file."""
        return curvedp.Schema.load(path).with_model(target, formula).with_file(**self.file)


def sharing(*names: str, without: Sequence[str] = (), **more: Any) -> Decorator:
    """The command with `more` options and those of `Terms` that are named here, or all but some.

    The latter come to it as its first argument.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        wanted = names or {part.name for part in fields(Terms)}.difference(without)
        shared = {part.name: part.default for part in fields(Terms) if part.name in wanted}
        _, *parameters = inspect.signature(command).parameters.values()
        own = {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}
        told, known = (get_type_hints(one, include_extras=True) for one in (command, Terms))
        hints, kind = {**known, **more, **told}, inspect.Parameter.KEYWORD_ONLY
        options = [
            inspect.Parameter(name, kind, default=default, annotation=spoken(name, hints[name]))
            for name, default in {**own, **dict.fromkeys(more), **shared}.items()
        ]

        @wraps(command)
        def run(**given: Any) -> None:
            terms = Terms(**{name: given.pop(name) for name in shared})
            command(terms, **given)

        del run.__wrapped__  # type: ignore[attr-defined]  # it has another signature
        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in options}
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
    promise: curvedp.Guarantee | None = None


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
    plan: Callable[[curvedp.Ledger | None, Steps], Order],
    show: Callable[[Any, LedgerState | None], Shown],
    data: Path,
    schema: Path | None = None,
    *,
    model: Path | None = None,
    outputs: Mapping[str, Path | None] | None = None,
    doing: str,
    overwrite: bool = False,
    dry_run: bool = False,
) -> None:
    """Plan a release of `price` = (ε, δ), pay for it, make it, write its files and show it.

    What can be refused is refused before the charge, and at once where that needs no large library.
    """
    outputs = {"--report": terms.report} if outputs is None else outputs
    if terms.quiet and not (terms.json or dry_run or any(outputs.values())):
        raise InvalidInput(
            "--quiet prints nothing and no file is asked for, so that what is paid for would be lost: pass "
            f"{next(iter(outputs))} or --json, or leave --quiet out"
        )
    Budget(*price)
    inputs = {"the model": model, "the data": data, "the schema": schema}
    for what, path in inputs.items():
        if path is not None and not os.path.exists(path):
            named = f"the schema {path}" if what == "the schema" else str(path)
            raise InvalidInput(f"cannot read {named} (No such file or directory): check the path")
    inputs |= ledger_inputs(terms.ledger)
    with (
        _opened(terms, None if dry_run else price) as book,
        claimed(outputs, inputs=inputs, force=terms.force or overwrite) as files,
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
        whole = True
        try:
            with (
                progress(doing, total=None, show=terms.talks),
                warnings.catch_warnings(action="ignore", category=PrivacyWarning),
            ):
                made = order.release()
        except KeyboardInterrupt:  # a model that was released already is not to be lost
            if not hasattr(order.model, "privacy_"):
                raise
            made, whole = order.model, False
        promise = made.privacy if order.model is None else order.model.privacy_
        with _after_the_charge(book, promise, lambda: show(made, None)) as written:
            if not whole:
                raise KeyboardInterrupt
            from curvedp.release.record import keep

            state = None if book is None else book.state()
            shown = show(made, state)
            for option, file in files.items():
                if option not in shown.files:
                    continue
                page = shown.files[option]()
                file.write(page)
                written.append(file.path)
                keep(book, shown.page_of, partial(str, page))
            if terms.answers({**shown.document, **outlook, **what_is_left(state)}):
                shown.say()
                if state is None:
                    say(
                        "No ledger was charged: nothing keeps count of what this table has given away.", "dim"
                    )
                else:
                    left = f"ε = {state.remaining_epsilon:.4g}, δ = {state.remaining_delta:.4g}"
                    say(f"Ledger: {left} left{'' if state.filter == 'basic' else f', {state.left}'}.")
                if shown.written:
                    say(shown.written)


@contextmanager
def _opened(terms: Terms, price: tuple[float, float] | None) -> Iterator[curvedp.Ledger | None]:
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
    book = curvedp.Ledger(terms.ledger, by=terms.by, purpose=terms.purpose)
    before = book.state().charges
    if terms.seed is None and price is not None:
        book.refuse_beyond(*price)
    try:
        yield book
    except StoppedAfterCharge:
        raise
    except KeyboardInterrupt:
        charged = f"{book.path} was not read once more: curvedp ledger show says what was charged"
        with suppress(CurvedpError, KeyboardInterrupt):  # a second Ctrl-C must not be answered by a guess
            charges = book.history()[before:]
            sums = sum(charge.epsilon for charge in charges), sum(charge.delta for charge in charges)
            charged = _spent(*sums) if charges else ""
        if not charged:
            raise
        raise StoppedAfterCharge(f"stopped; {charged}") from None


def _spent(epsilon: float, delta: float) -> str:
    return f"ε = {epsilon:g}, δ = {delta:g} were charged before and are spent"


@contextmanager
def _after_the_charge(
    book: curvedp.Ledger | None, promise: curvedp.Guarantee, shown: Callable[[], Shown]
) -> Iterator[list[Path]]:
    """Once the budget is spent nothing is lost: what goes wrong says so, and where `shown()` is kept.

    The list is for the files that hold it.
    """
    charged = "the release was made before" if book is None else _spent(promise.epsilon, promise.delta)
    written: list[Path] = []

    def where() -> str:
        if written:
            return f"what was released is in {written[0]}"
        try:
            found = shown()
            text = found.files["--out"]() if "--out" in found.files else as_json(found.document)
        except Exception:
            return "what was released could not be kept"
        try:
            return f"what was released is kept in {rescue(text)}"
        except CurvedpError:
            sys.stdout.write(text)
            return "what was released was printed"

    try:
        yield written
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the second is how rich ends when nobody reads
        raise ReaderGone(f"nobody reads stdout any more; {charged}; {where()}") from None
    except KeyboardInterrupt:
        raise StoppedAfterCharge(f"stopped; {charged}; {where()}") from None
    except Exception as problem:
        if os.environ.get(TRACEBACK) == "1" and not isinstance(problem, CurvedpError | OSError):
            raise
        raise InvalidInput(f"{in_words(problem)}; {charged}; {where()}") from None


def say_promise(promise: curvedp.Guarantee, again: str) -> None:
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


def say_cautions(cautions: Iterable[Caution]) -> None:
    for caution in cautions:
        say(caution.text, style="bold red" if caution.level == "red" else "yellow")


def warn_of_a_seed(promise: curvedp.Guarantee, again: str) -> None:
    if not promise.private:
        say(f"Seeded: NOT private. {again} again without --seed before sharing.", style="bold red")


def what_is_left(state: LedgerState | None) -> dict[str, float | None]:
    """Of the budget, for machines."""
    return {key: getattr(state, key, None) for key in ("remaining_epsilon", "remaining_delta")}
