"""`curvedp fit` and `demo`: from a table to a private model."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from curvedp.cli.charging import after_the_charge, made_whole, opened
from curvedp.cli.console import emit_json, out, plain, progress, say, say_lines, show_table
from curvedp.cli.options import (
    AccountingOption,
    AlphaOption,
    ByOption,
    DecimalOption,
    DelimiterOption,
    DeltaOption,
    EncodingOption,
    EpsilonOption,
    ForceOption,
    FormulaOption,
    JsonOption,
    LedgerOption,
    MechanismOption,
    ModelName,
    PurposeOption,
    QuietOption,
    ReportOption,
    SchemaOption,
    SeedOption,
    TableArgument,
    TargetOption,
)
from curvedp.cli.promises import say_promise, say_what_is_left, what_is_left
from curvedp.cli.words import in_options
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.demo import DemoResult
    from curvedp.filing.report import Coefficient
    from curvedp.forecast import Verdict
    from curvedp.ledger import LedgerState
    from curvedp.modelfile import ModelDocument

Engine = Literal["memory", "dask"]


def fit(
    data: TableArgument,
    schema: SchemaOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    out_path: Annotated[Path, typer.Option("--out", help="File to write: the model.")],
    target: TargetOption = None,
    formula: FormulaOption = None,
    ledger: LedgerOption = None,
    by: ByOption = "",
    purpose: PurposeOption = "",
    model: Annotated[
        ModelName,
        typer.Option("--model", help="Which model; auto: linear for a number, logistic for a category."),
    ] = "auto",
    mechanism: MechanismOption = "auto",
    accounting: AccountingOption = "auto",
    alpha: AlphaOption = None,
    radius: Annotated[
        float | None, typer.Option("--radius", help="Public guess of ‖θ‖; steers calibration only.")
    ] = None,
    x_norm: Annotated[
        float | None,
        typer.Option("--x-norm", help="Clip mapped rows to this norm; default: what bounds imply."),
    ] = None,
    max_rate: Annotated[
        float | None,
        typer.Option("--max-rate", help="Largest count to expect, for poisson; default: what bounds allow."),
    ] = None,
    inference: Annotated[
        bool,
        typer.Option(
            "--inference/--no-inference", help="Standard errors out of the same budget, or none to predict."
        ),
    ] = True,
    rows: Annotated[
        int | None, typer.Option("--rows", help="Rows you declare: the report then says if noise dominates.")
    ] = None,
    report: ReportOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    engine: Annotated[
        Engine, typer.Option("--engine", help="What computes: dask for Parquet files larger than memory.")
    ] = "memory",
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", help="Dask cluster to compute on, tcp://host:8786; default: threads."),
    ] = None,
    seed: SeedOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fit a private model: check everything public, charge the ledger, release once, write the model file."""
    from curvedp.budget import Budget
    from curvedp.outputs import claimed, ledger_inputs

    if scheduler is not None and engine != "dask":
        raise InvalidInput("--scheduler names a Dask cluster: pass --engine dask, too")
    inputs = {"the data": data, "the schema": schema, **ledger_inputs(ledger)}
    with (
        opened(ledger, by, purpose) as book,
        claimed({"--out": out_path, "--report": report}, inputs=inputs, force=force) as files,
    ):
        with progress("loading", total=3, show=not (json or quiet)) as steps:
            from curvedp import modelfile, workflow
            from curvedp.forecast.population import check_rows
            from curvedp.schema import Schema

            if rows is not None:
                check_rows(rows)
            declared = Schema.load(schema).with_model(target, formula)
            declared = declared.with_file(encoding=encoding, delimiter=delimiter, decimal=decimal)
            declared = workflow.with_rows(declared, rows)
            settings = workflow.Settings(
                budget=Budget(epsilon, delta),
                model=model,
                mechanism=mechanism,
                accounting=accounting,
                alpha=alpha,
                radius=radius,
                x_norm=x_norm,
                max_rate=max_rate,
                ledger=book,
                random_state=seed,
                inference=inference,
            )
            estimator = workflow.build(declared, settings)
            steps.begin("judging the noise")
            verdict = None if rows is None else workflow.verdict(declared, settings, rows)
            steps.done()
            steps.begin("reading the table")
            with workflow.cluster(scheduler):
                table = workflow.read(data, declared, engine=engine)
                steps.done()
                steps.begin("fitting privately")
                whole = made_whole(estimator, lambda: estimator.fit(table))
            steps.done()
        with after_the_charge(
            book, estimator.privacy_, lambda: modelfile.ModelDocument.of(estimator).to_json()
        ) as paid:
            if not whole:
                raise KeyboardInterrupt
            document = modelfile.ModelDocument.of(estimator)
            files["--out"].write(document.to_json())
            paid.kept(out_path)
            state = None if book is None else book.state()
            if "--report" in files:
                files["--report"].write(workflow.release_report(estimator, state, verdict))
            if json:
                where = {"model": str(out_path), "report": None if report is None else str(report)}
                emit_json({**where, **as_document(estimator, document, verdict), **what_is_left(state)})
            elif not quiet:
                print_release(estimator, verdict, state, out_path)
                say(f"Model written to {out_path}" + (f", report to {report}." if report else "."))


def as_document(model: Any, document: ModelDocument, verdict: Verdict | None) -> dict[str, Any]:
    """A fitted model for machines."""
    return {
        "guarantee": model.privacy_.to_dict(),
        "features": list(document.schema.feature_names),
        "coefficients": document.coef.tolist(),
        "intercept": document.intercept.tolist(),
        "inference": None if model.inference_ is None else model.summary().table(),
        "verdict": None if verdict is None else " ".join([verdict.sentence, *verdict.caveats]),
    }


def print_release(
    model: Any, verdict: Verdict | None, state: LedgerState | None, file: Path | None = None
) -> None:
    """A fitted model for people; `file` is where all of it is."""
    from curvedp import catalogue
    from curvedp.estimators.summary import why_no_intervals
    from curvedp.workflow import coefficients, learned

    promise = model.privacy_
    if model.inference_ is None:
        print_coefficients(coefficients(model), learned(model), file)
        say(f"No intervals: {in_options(why_no_intervals(model))}.")
    else:
        name = type(model).__name__
        say_lines(str(model.summary()).replace(name, catalogue.estimator_of(name).words, 1), file)
    say_promise(promise, "Fit")
    if verdict is not None:
        say(" ".join([verdict.sentence, *verdict.caveats]))
    say_what_is_left(state)


def print_coefficients(found: list[Coefficient], target: str, file: Path | None = None) -> None:
    """The released numbers as a table; `file` is where all of them are."""
    several = len({c.output for c in found}) > 1
    classes = ("class",) if several else ()
    show_table(
        f"Released coefficients of {target}",
        ("column", *classes, "coefficient", "across its range"),
        [
            (
                c.name,
                *((c.output,) if several else ()),
                plain(c.value),
                "" if c.effect is None else plain(c.effect),
            )
            for c in found
        ],
        right=("coefficient", "across its range"),
        file=file,
    )


def demo(
    folder: Annotated[Path, typer.Option("--folder", help="Where the files go.")] = Path("curvedp-demo"),
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-6,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The main job on real data, end to end: plan, fit privately, compare, report."""
    from curvedp.budget import Budget

    budget = Budget(epsilon, delta)
    with progress("loading", total=None, show=not (json or quiet)) as steps:
        from curvedp import demo as tour

        steps.total(tour.STEPS)

        def on_step(name: str) -> None:
            steps.begin(name)
            steps.done()

        result = tour.run(folder, budget, on_step, force=force, words=in_options)
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

    g = result.guarantee
    out.print(
        Panel.fit(
            f"Earnings in 1978 (re78) of {result.rows:,} people, learned from age, schooling, race,\n"
            f"marriage and earlier earnings, and released under (ε, δ) = ({g.epsilon:g}, {g.delta:g}).",
            title="curvedp demo",
        )
    )
    say(f"Plan, before touching the data: {result.forecast.verdict.sentence}")
    print_coefficients(result.coefficients, "re78")
    show_table(
        "R² on held-out rows",
        ("model", "R²"),
        [
            ("without privacy", f"{result.nonprivate_score:z.3f}"),
            (f"private, {g.mechanism}", f"{result.private_score:z.3f}"),
            ("constant answer", f"{result.constant_score:z.3f}"),
        ],
        right=("R²",),
    )
    say(
        "These scores use held-out rows of a public table; they are not covered by the guarantee.",
        style="dim",
    )
    left = result.ledger
    say(f"Ledger: ε = {left.remaining_epsilon:.4g} of {left.epsilon:g} left, {left.left}.")
    folder = shlex.quote(str(result.folder))
    say(
        f"\nOpen {folder}/report.html (release) and {folder}/plan.html (plan).\n"
        f"Next, the same by hand:\n"
        f"  curvedp fit {folder}/train.csv --schema {folder}/schema.toml --epsilon 0.5 --delta 1e-6 \\\n"
        f"      --ledger {folder}/budget.db --out {folder}/second.json\n"
        f"  curvedp predict {folder}/second.json {folder}/test.csv\n"
        f"  curvedp ledger show {folder}/budget.db --history\n"
        "curvedp demo --force replaces these files and their ledger: that table is public. "
        "Never do so with a real one."
    )
