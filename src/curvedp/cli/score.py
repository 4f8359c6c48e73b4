"""`curvedp score`: how good a released model is on private rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curvedp.cli.charging import after_the_charge, opened, require_outlet
from curvedp.cli.console import as_json, emit_json, plain, progress, say, show_table
from curvedp.cli.options import (
    ByOption,
    DecimalOption,
    DelimiterOption,
    DeltaOption,
    EncodingOption,
    EpsilonOption,
    ForceOption,
    JsonOption,
    LedgerOption,
    ModelArgument,
    PurposeOption,
    QuietOption,
    ReportOption,
    SeedOption,
)
from curvedp.cli.promises import say_promise, say_what_is_left, what_is_left
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.ledger import LedgerState
    from curvedp.schema import Categorical
    from curvedp.scores import PrivateScores, Score


def score(
    model: ModelArgument,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="The sensitive table: CSV or Parquet, with the columns and the target."
        ),
    ],
    epsilon: EpsilonOption,
    delta: DeltaOption = 1e-6,
    ledger: LedgerOption = None,
    by: ByOption = "",
    purpose: PurposeOption = "",
    group: Annotated[
        str | None, typer.Option("--group", help="Compare the levels of this column, for fairness.")
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            "--levels", help="With --group: its levels, separated by commas, if the schema declares none."
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", help="Rows you declare: too few for this ε are refused beforehand."),
    ] = None,
    report: ReportOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    seed: SeedOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score a model on private rows: R², AUC and more, with intervals for noise and chance, in one charge."""
    from curvedp.outputs import claimed, ledger_inputs

    if levels is not None and group is None:
        raise InvalidInput("--levels says what --group may find: pass --group, too")
    require_outlet(quiet, "--report", json, report)
    inputs = {"the model": model, "the data": data, **ledger_inputs(ledger)}
    with (
        opened(ledger, by, purpose) as book,
        claimed({"--report": report}, inputs=inputs, force=force) as files,
    ):
        from curvedp import modelfile
        from curvedp.record import keep_page
        from curvedp.scores import private_scores
        from curvedp.scores.page import scores_page

        document = modelfile.load(model).with_file(encoding=encoding, delimiter=delimiter, decimal=decimal)
        if any(by == column.name for column in document.schema.columns):
            raise InvalidInput(f"--by says who releases: to compare the levels of {by!r} pass --group {by}")
        fitted = document.to_estimator()
        with progress("scoring", total=None, show=not (json or quiet)):
            found = private_scores(
                fitted,
                data,
                epsilon=epsilon,
                delta=delta,
                ledger=book,
                by=_column(group, levels),
                rows=rows,
                random_state=seed,
            )
        target = fitted.schema_.target or "the target"
        shown = found.to_dict()
        with after_the_charge(book, found.privacy, lambda: as_json(shown)) as paid:
            state = None if book is None else book.state()
            for page in files.values():
                text = scores_page(found, target, fitted.schema_.record, state)
                page.write(text)
                paid.kept(page.path)
                keep_page(book, found.receipt, text)
            if json:
                emit_json({**shown, **what_is_left(state)})
            elif not quiet:
                print_scores(found, target, state)
                if report is not None:
                    say(f"Page written to {report}.")


def _column(group: str | None, levels: str | None) -> str | Categorical | None:
    if group is None or levels is None:
        return group
    from curvedp.schema import Categorical

    return Categorical(group, tuple(level.strip() for level in levels.split(",")))


def print_scores(scores: PrivateScores, target: str, state: LedgerState | None) -> None:
    """The scores for people."""
    from curvedp.scores.words import NAMES, fairness, heading, headline

    show_table(
        f"Private scores of {target}, on about {scores.overall.count.value:,.0f} rows",
        ("score", "value", "95 % interval"),
        [(NAMES[name], _value(one), _interval(one)) for name, one in headline(scores.overall)],
        right=("value", "95 % interval"),
    )
    if scores.overall.confusion:
        labels = scores.layout.classes
        show_table(
            "True class by predicted class, noisy counts",
            ("true class", *(f"predicted {label}" for label in labels)),
            [
                (label, *(f"{count:,.0f}" for count in row))
                for label, row in zip(labels, scores.overall.confusion, strict=True)
            ],
            right=tuple(f"predicted {label}" for label in labels),
        )
    compared = fairness(scores)
    if compared:
        names = [heading(name) for name, _ in compared[0][1]]
        show_table(
            f"By {scores.layout.by}",
            ("level", *names),
            [(level, *(f"{_value(s)} ({_interval(s)})" for _, s in found)) for level, found in compared],
            right=names,
        )
    promise = scores.privacy
    say(
        "Intervals cover the noise and the chance of the sample; the ε is for all scores.",
        style="dim",
    )
    say_promise(promise, "Score")
    say_what_is_left(state)


def _value(score: Score) -> str:
    return plain(score.value, 3) if score.is_known else "cannot be said"


def _interval(score: Score) -> str:
    return f"{plain(score.low, 3)} to {plain(score.high, 3)}" if score.is_known else "too much noise"
