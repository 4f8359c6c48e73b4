"""`curvedp score`: how good a released model is on private rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvedp.cli import options as o
from curvedp.cli.charging import Order, Shown, Terms, charging, purchase, say_promise
from curvedp.cli.console import Steps, plain, say, show_table
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.ledger import Ledger, LedgerState
    from curvedp.scores import PrivateScores, Score


@charging()
def score(
    terms: Terms,
    model: o.ModelArgument,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="The sensitive table: CSV or Parquet, with the columns and the target."
        ),
    ],
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption = 1e-6,
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
) -> None:
    """Score a model on private rows: R², AUC and more, with intervals for noise and chance, in one charge."""
    if levels is not None and group is None:
        raise InvalidInput("--levels says what --group may find: pass --group, too")

    def plan(book: Ledger | None, steps: Steps) -> Order:
        from curvedp import modelfile
        from curvedp.schema import Categorical
        from curvedp.scores import private_scores

        document = modelfile.load(model).with_file(**terms.file)
        if any(terms.by == column.name for column in document.schema.columns):
            raise InvalidInput(
                f"--by says who releases: to compare the levels of {terms.by!r} pass --group {terms.by}"
            )
        fitted = document.to_estimator()
        told: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rows": rows, "random_state": terms.seed}
        by = group if group is None or levels is None else Categorical(group, tuple(o.listed(levels)))
        return Order(lambda: private_scores(fitted, data, ledger=book, by=by, **told))

    def show(found: PrivateScores, state: LedgerState | None) -> Shown:
        from curvedp import modelfile
        from curvedp.scores.page import scores_page

        schema = modelfile.load(model).schema
        target = schema.target or "the target"
        return Shown(
            found.to_dict(),
            lambda: print_scores(found, target),
            {"--report": lambda: scores_page(found, target, schema.record, state)},
            "" if terms.report is None else f"Page written to {terms.report}.",
            page_of=found.receipt,
        )

    inputs = {"the model": model, "the data": data}
    purchase(terms, (epsilon, delta), plan, show, inputs=inputs, doing="scoring")


def print_scores(scores: PrivateScores, target: str) -> None:
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
    say("Intervals cover the noise and the chance of the sample; the ε is for all scores.", style="dim")
    say_promise(scores.privacy, "Score")


def _value(score: Score) -> str:
    return plain(score.value, 3) if score.is_known else "cannot be said"


def _interval(score: Score) -> str:
    return f"{plain(score.low, 3)} to {plain(score.high, 3)}" if score.is_known else "too much noise"
