"""`curvedp schema`, `fit`, `predict` and `demo`: from a table to a private model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from curvedp.cli.console import emit_json, out, plain, progress
from curvedp.cli.options import (
    AccountingOption,
    DeltaOption,
    EpsilonOption,
    JsonOption,
    MechanismOption,
    QuietOption,
)
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.demo import DemoResult
    from curvedp.report import Coefficient

DelimiterOption = Annotated[str, typer.Option("--delimiter", help="What separates the cells of a line.")]
Engine = Literal["memory", "dask"]
ModelName = Literal["auto", "linear", "ridge", "lasso", "elastic_net", "huber", "logistic", "svc"]


def schema(
    data: Annotated[Path, typer.Argument(metavar="CSV", help="The table; only its first line is read.")],
    delimiter: DelimiterOption = ",",
) -> None:
    """Write a schema to fill in: the column names of a CSV file, and nothing else of it.

    Bounds and levels are public promises, so a person writes them; they are never read off the data.
    """
    from curvedp.schema import schema_template

    sys.stdout.write(schema_template(data, delimiter=delimiter))


def fit(
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", help="The sensitive table: a CSV file; Parquet with --engine dask."),
    ],
    schema: Annotated[Path, typer.Option("--schema", help="Declared columns; see: curvedp schema DATA")],
    epsilon: EpsilonOption,
    delta: DeltaOption,
    out_path: Annotated[Path, typer.Option("--out", help="Where the model file goes.")],
    target: Annotated[
        str | None, typer.Option("--target", help="Column to predict, if the schema names none.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Budget to charge; see: curvedp ledger create")
    ] = None,
    model: Annotated[
        ModelName, typer.Option("--model", help="auto: linear for a number, logistic for a category.")
    ] = "auto",
    mechanism: MechanismOption = "auto",
    accounting: AccountingOption = "auto",
    alpha: Annotated[
        float | None, typer.Option("--alpha", help="Penalty weight in the summed objective.")
    ] = None,
    radius: Annotated[
        float, typer.Option("--radius", help="Public guess of ‖θ‖; steers calibration only.")
    ] = 1.0,
    x_norm: Annotated[
        float | None,
        typer.Option("--x-norm", help="Clip mapped rows to this norm; default: what bounds imply."),
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", help="Rows you declare; the report then says if noise dominates.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write the HTML report of the release.")
    ] = None,
    delimiter: DelimiterOption = ",",
    engine: Annotated[
        Engine, typer.Option("--engine", help="dask: Parquet files or folders, larger than memory.")
    ] = "memory",
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", help="Dask cluster to compute on, tcp://host:8786; default: threads."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="For research: repeatable, NOT private, refused by a ledger.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing model file.")] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fit a private model: check everything public, charge the ledger, release once, write the model file."""
    writable(out_path, force, "model file")
    if report is not None:
        writable(report, True, "report")
    if scheduler is not None and engine != "dask":
        raise InvalidInput("--scheduler names a Dask cluster: pass --engine dask, too")
    with progress("loading", total=4, show=not (json or quiet)) as steps:
        from curvedp import modelfile, workflow
        from curvedp.ledger import Ledger
        from curvedp.report import write
        from curvedp.schema import Schema

        declared = Schema.load(schema)
        if target is not None:
            declared = declared.with_target(target)
        settings = workflow.Settings(
            epsilon=epsilon,
            delta=delta,
            model=model,
            mechanism=mechanism,
            accounting=accounting,
            alpha=alpha,
            radius=radius,
            x_norm=x_norm,
            ledger=None if ledger is None else str(ledger),
            random_state=seed,
        )
        estimator = workflow.build(declared, settings)
        book = None if ledger is None else Ledger(ledger)
        steps.begin("judging the noise")
        verdict = None if rows is None else workflow.verdict(declared, settings, rows)
        steps.done()
        steps.begin("reading the table")
        with workflow.cluster(scheduler):
            X, y = workflow.read(data, declared, delimiter, engine)
            steps.done()
            steps.begin("fitting privately")
            estimator.fit(X, y)
        steps.done()
        steps.begin("writing")
        document = modelfile.ModelDocument.of(estimator, declared)
        modelfile.save(document, out_path)
        state = None if book is None else book.state()
        if report is not None:
            write(report, workflow.release_report(estimator, declared, state, verdict))
        steps.done()
    if json:
        emit_json(
            {
                "model": str(out_path),
                "report": None if report is None else str(report),
                "guarantee": document.to_dict()["guarantee"],
                "features": list(declared.feature_names),
                "coefficients": document.coef.tolist(),
                "intercept": document.intercept.tolist(),
                "verdict": None if verdict is None else verdict.sentence,
                "remaining_epsilon": None if state is None else state.remaining_epsilon,
                "remaining_delta": None if state is None else state.remaining_delta,
            }
        )
    elif not quiet:
        promise = estimator.privacy_
        print_coefficients(workflow.coefficients(estimator, declared), declared.target or "")
        out.print(
            f"Released under (ε, δ) = ({promise.epsilon:g}, {promise.delta:g}), {promise.adjacency}: "
            f"{promise.mechanism}, {promise.theorem}.",
            markup=False,
        )
        if not promise.private:
            out.print("Seeded: NOT private. Fit again without --seed before sharing.", style="bold red")
        if verdict is not None:
            out.print(verdict.sentence, markup=False)
        if state is None:
            out.print(
                "No ledger was charged: nothing keeps count of what this table has given away.", style="dim"
            )
        else:
            out.print(
                f"Ledger: ε = {state.remaining_epsilon:g}, δ = {state.remaining_delta:g} left.", markup=False
            )
        out.print(
            f"Model written to {out_path}" + (f", report to {report}." if report else "."), markup=False
        )


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file written by curvedp fit.")],
    data: Annotated[
        Path, typer.Argument(metavar="CSV", help="New rows with the same columns; no target needed.")
    ],
    out_path: Annotated[
        Path | None, typer.Option("--out", help="Write the CSV here; default: stdout.")
    ] = None,
    delimiter: DelimiterOption = ",",
    json: JsonOption = False,
) -> None:
    """Predict new rows with a released model. This is free: the privacy of the training rows is paid."""
    from curvedp import modelfile
    from curvedp.tables import write_csv_safely

    document = modelfile.load(model)
    values = document.predict(data, delimiter=delimiter).tolist()
    if json:
        emit_json({"target": document.schema.target, "predictions": values})
        return
    names = [document.schema.target or "prediction"]
    lines = [[value] for value in values]
    if out_path is None:
        write_csv_safely(sys.stdout, names, lines)
    else:
        with open(out_path, "w", encoding="utf-8", newline="") as file:
            write_csv_safely(file, names, lines)


def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where the demo's files go.")] = Path("curvedp-demo"),
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-6,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The main job on real data, end to end: plan, fit privately, compare, report."""
    with progress("loading", total=None, show=not (json or quiet)) as steps:
        from curvedp import demo as tour

        steps.total(tour.STEPS)

        def on_step(name: str) -> None:
            steps.begin(name)
            steps.done()

        result = tour.run(folder, epsilon, delta, on_step)
    if json:
        emit_json(
            {
                "folder": str(result.folder),
                "epsilon": result.guarantee.epsilon,
                "delta": result.guarantee.delta,
                "mechanism": result.guarantee.mechanism,
                "private_r2": result.private_score,
                "nonprivate_r2": result.nonprivate_score,
                "constant_r2": result.constant_score,
                "remaining_epsilon": result.ledger.remaining_epsilon,
            }
        )
    elif not quiet:
        print_demo(result)


def print_demo(result: DemoResult) -> None:
    """The demo's story for people."""
    from rich.panel import Panel
    from rich.table import Table

    g = result.guarantee
    out.print(
        Panel.fit(
            f"Earnings in 1978 (re78) of {result.rows:,} people, learned from age, schooling, race,\n"
            f"marriage and earlier earnings, and released under (ε, δ) = ({g.epsilon:g}, {g.delta:g}).",
            title="curvedp demo",
        )
    )
    out.print(f"Plan, before touching the data: {result.plan.verdict.sentence}", markup=False)
    print_coefficients(result.coefficients, "re78")
    scores = Table(title="R² on held-out rows", title_justify="left")
    scores.add_column("model")
    scores.add_column("R²", justify="right")
    scores.add_row("without privacy", f"{result.nonprivate_score:z.3f}")
    scores.add_row(f"private, {g.mechanism}", f"{result.private_score:z.3f}", style="bold")
    scores.add_row("constant answer", f"{result.constant_score:z.3f}")
    out.print(scores)
    out.print(
        "These scores use held-out rows of a public table; they are not covered by the guarantee.",
        style="dim",
    )
    left = result.ledger
    out.print(f"Ledger: ε = {left.remaining_epsilon:g} of {left.epsilon:g} left.", markup=False)
    folder = result.folder
    out.print(
        f"\nOpen [bold]{folder}/report.html[/bold] (release) and [bold]{folder}/plan.html[/bold] (plan).\n"
        f"Next, the same by hand:\n"
        f"  curvedp fit {folder}/train.csv --schema {folder}/schema.toml --epsilon 0.5 --delta 1e-6 \\\n"
        f"      --ledger {folder}/budget.db --out {folder}/second.json\n"
        f"  curvedp predict {folder}/second.json {folder}/test.csv\n"
        f"  curvedp ledger show {folder}/budget.db --history\n"
        f"A new demo replaces these files and its ledger: that table is public. Never do so with a real one.",
        soft_wrap=True,
    )


def print_coefficients(found: list[Coefficient], target: str) -> None:
    """The released numbers as a table."""
    from rich.table import Table

    several = len({c.output for c in found}) > 1
    spread = any(c.deviation is not None for c in found)
    table = Table(title=f"Released coefficients of {target}", title_justify="left")
    table.add_column("column")
    if several:
        table.add_column("class")
    table.add_column("coefficient", justify="right")
    if spread:
        table.add_column("± noise", justify="right")
    table.add_column("across its range", justify="right")
    for c in found:
        cells = [c.name, *([c.output] if several else []), plain(c.value)]
        if spread:
            cells.append("" if c.deviation is None else plain(c.deviation, 2))
        table.add_row(*cells, "" if c.effect is None else plain(c.effect))
    out.print(table)


def writable(path: Path, overwrite: bool, what: str) -> None:
    """Refuse, before anything is charged, a path that cannot be written afterwards."""
    if path.exists() and not overwrite:
        raise InvalidInput(f"{path} exists already: pass another --out, or --force to overwrite it")
    if path.is_dir() or not path.parent.is_dir():
        raise InvalidInput(f"the {what} cannot go to {path}: name a file in a folder that exists")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidInput(f"the {what} cannot be written to {path}: choose a folder that you may write to")
