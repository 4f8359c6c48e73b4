"""`curvedp fit`, `search` and `demo`: from a table to a private model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from curvedp.cli import charging as o
from curvedp.cli.charging import Order, Shown, Terms, charging, purchase, say_promise
from curvedp.cli.console import Steps, emit_json, in_options, out, plain, progress, say, show_table
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.analyses.search import PrivateSearch
    from curvedp.cli.workflow import DemoResult
    from curvedp.planning import Verdict
    from curvedp.release.ledger.file import Ledger
    from curvedp.release.ledger.storage import LedgerState
    from curvedp.release.modelfile import Release
    from curvedp.reports.report import Caution, Coefficient


@charging(*o.as_parameters(o.ESTIMATOR_OPTIONS))
def fit(
    terms: Terms,
    data: o.TableArgument,
    schema: o.SchemaOption,
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption,
    out_path: Annotated[Path, typer.Option("--out", help="File to write: the model.")],
    target: o.TargetOption = None,
    formula: o.FormulaOption = None,
    model: Annotated[
        o.ModelName,
        typer.Option("--model", help="Which model; auto: linear for a number, logistic for a category."),
    ] = "auto",
    mechanism: Annotated[
        o.MechanismName, typer.Option("--mechanism", help="How the model is released.")
    ] = "auto",
    accounting: Annotated[
        Literal["auto", "paper", "spectral", "directional"],
        typer.Option("--accounting", help="Which proof calibrates the noise of qop and lop."),
    ] = "auto",
    radius: Annotated[
        float | None, typer.Option("--radius", help="Public guess of ‖θ‖; steers calibration only.")
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows",
            help="Rows you declare, for the record; with curvedp-studies the report says if noise dominates.",
        ),
    ] = None,
    ratios: Annotated[
        bool, typer.Option("--ratios", "--odds-ratios", help="Print odds ratios; of counts, rate ratios.")
    ] = False,
    tidy: Annotated[
        Path | None, typer.Option("--tidy", help="CSV file to write: the table, with broom's columns.")
    ] = None,
    engine: Annotated[
        Literal["memory", "dask"],
        typer.Option("--engine", help="What computes: dask for Parquet files larger than memory."),
    ] = "memory",
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", help="Dask cluster to compute on, tcp://host:8786; default: threads."),
    ] = None,
    **options: Any,
) -> None:
    """Fit a private model: check everything public, charge the ledger, release once, write the model file."""
    if scheduler is not None and engine != "dask":
        raise InvalidInput("--scheduler names a Dask cluster: pass --engine dask, too")
    verdict: Verdict | None = None
    known: list[Caution] = []

    def plan(book: Ledger | None, steps: Steps) -> Order:
        nonlocal verdict
        declared = terms.declared(schema, target, formula)
        from curvedp.cli import workflow
        from curvedp.privacy.budget import Budget
        from curvedp.reports.report import unchecked

        known.extend([] if book is None else unchecked(book.history()))
        if rows is not None:
            declared = workflow.with_rows(declared, rows)
        chosen = {"mechanism": mechanism, "accounting": accounting}
        estimator = workflow.build(
            declared, Budget(epsilon, delta), model, radius=radius, **chosen, **options
        ).set_params(ledger=book, random_state=terms.seed)
        if ratios:
            workflow.require_ratios(estimator)
        if rows is not None:
            steps.begin("judging the noise")
            verdict = workflow.verdict(declared, Budget(epsilon, delta), rows, model, **chosen)
        steps.begin("reading the table")

        def release() -> Any:
            with workflow.cluster(scheduler):
                return estimator.fit(declared.source(data, engine=engine))

        return Order(release, estimator)

    def show(fitted: Any, state: LedgerState | None) -> Shown:
        from curvedp.cli import workflow
        from curvedp.release import modelfile

        document = modelfile.Release.of(fitted)
        where = {"model": str(out_path), "report": None if terms.report is None else str(terms.report)}
        cautions = [*known, *workflow.release_warnings(fitted)]
        told = [{"level": caution.level, "text": caution.text} for caution in cautions]
        return Shown(
            {**where, **as_document(fitted, document, verdict, ratios), "warnings": told},
            lambda: print_release(fitted, verdict, out_path, cautions, ratios),
            {
                "--out": document.to_json,
                "--report": lambda: workflow.release_report(fitted, state, verdict, known),
                "--tidy": lambda: workflow.tidy_csv(fitted, ratios),
            },
            _written(out_path, terms.report),
        )

    inputs = {"the data": data, "the schema": schema}
    outputs = {"--out": out_path, "--report": terms.report, "--tidy": tidy}
    purchase(terms, (epsilon, delta), plan, show, inputs=inputs, outputs=outputs, doing="fitting privately")


def _written(model: Path, report: Path | None) -> str:
    return f"Model written to {model}" + (f", report to {report}." if report else ".")


@charging()
def search(
    terms: Terms,
    data: o.TableArgument,
    schema: o.SchemaOption,
    alphas: o.AlphasOption,
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption,
    out_path: Annotated[Path, typer.Option("--out", help="File to write: the chosen model.")],
    target: o.TargetOption = None,
    formula: o.FormulaOption = None,
    model: Annotated[
        o.ModelName,
        typer.Option("--model", help="Which model; auto: ridge for a number, logistic for a category."),
    ] = "auto",
) -> None:
    """Choose among penalties: fits, comparison and choice together cost (ε, δ), charged once."""
    grid = {"alpha": o.numbers(alphas)}

    def plan(book: Ledger | None, steps: Steps) -> Order:
        declared = terms.declared(schema, target, formula)
        from curvedp.analyses.search import PrivateSearch
        from curvedp.cli import workflow
        from curvedp.privacy.budget import Budget

        named = "ridge" if model == "auto" and workflow.task_of(declared) == "regression" else model
        estimator = workflow.build(declared, Budget(epsilon, delta), named)
        found = PrivateSearch(estimator, grid, epsilon, delta, ledger=book, random_state=terms.seed)
        return Order(lambda: found.fit(declared.source(data)), found)

    def show(found: PrivateSearch, state: LedgerState | None) -> Shown:
        from curvedp.cli import workflow
        from curvedp.release import modelfile

        best = found.best_estimator_

        def print_all() -> None:
            print_search(found)
            print_release(best, None, out_path, workflow.release_warnings(best))

        return Shown(
            {
                "model": str(out_path),
                "guarantee": found.privacy_.to_dict(),
                "chosen": found.best_params_,
                "candidates": compared(found),
            },
            print_all,
            {
                "--out": lambda: modelfile.Release.of(best).to_json(),
                "--report": lambda: workflow.release_report(best, state),
            },
            _written(out_path, terms.report),
        )

    inputs = {"the data": data, "the schema": schema}
    outputs = {"--out": out_path, "--report": terms.report}
    purchase(terms, (epsilon, delta), plan, show, inputs=inputs, outputs=outputs, doing="searching")


def print_search(found: PrivateSearch) -> None:
    """The candidates for people."""
    numbers = ("alpha", "loses less per record by", "noise (sd)")
    show_table(
        "Penalties compared, on the same private rows",
        (*numbers, ""),
        [
            (
                f"{row['alpha']:g}",
                *(("—" if row[key] is None else f"{row[key]:.2g}") for key in ("improvement", "error")),
                "chosen" if row["chosen"] else "",
            )
            for row in compared(found)
        ],
        right=numbers,
    )


def compared(found: PrivateSearch) -> list[dict[str, Any]]:
    """Every candidate with its noisy improvement over the reference; all of it was released."""
    return [
        {
            "alpha": candidate.params["alpha"],
            "improvement": candidate.improvement,
            "error": candidate.error,
            "chosen": index == found.best_index_,
        }
        for index, candidate in enumerate(found.candidates_)
    ]


def as_document(
    model: Any, document: Release, verdict: Verdict | None, ratios: bool = False
) -> dict[str, Any]:
    """A fitted model for machines."""
    return {
        "guarantee": model.privacy_.to_dict(),
        "features": list(document.schema.feature_names),
        "event": getattr(model, "event_", None),
        "coefficients": document.coefficients.tolist(),
        "intercept": document.intercept.tolist(),
        "inference": None if model.inference_ is None else model.summary(exp=ratios).table(),
        "verdict": None if verdict is None else " ".join([verdict.sentence, *verdict.caveats]),
    }


def print_release(
    model: Any, verdict: Verdict | None, file: Path, cautions: Sequence[Caution], ratios: bool = False
) -> None:
    """A fitted model for people, with the cautions of its report; `file` is where all of it is."""
    from curvedp.analyses.estimators.summary import WHOLE, why_no_intervals
    from curvedp.cli.workflow import coefficients, learned
    from curvedp.data.targets import linear_odds
    from curvedp.release import catalogue

    if model.inference_ is None and not ratios:
        print_coefficients(coefficients(model), learned(model), file)
        say(f"No intervals: {in_options(why_no_intervals(model.release_))}.")
        for words in linear_odds(model.target_, model.schema_.target):
            say(words)
    else:
        name = type(model).__name__
        table = str(model.summary(exp=ratios)).replace(name, catalogue.estimator_of(name).words, 1)
        say(table.replace(WHOLE, f"{file} has"))
    for caution in cautions:
        if caution.printed:
            say(caution.text, style="bold red" if caution.level == "red" else "yellow")
    say_promise(model.privacy_, "Fit")
    if verdict is not None:
        say(" ".join([verdict.sentence, *verdict.caveats]))


def print_coefficients(found: list[Coefficient], target: str, file: Path | None = None) -> None:
    """The released numbers as a table; `file` is where all of them are."""
    from curvedp.reports.report import clearest

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
            for c in clearest(found)
        ],
        right=("coefficient", "across its range"),
    )
    if len(clearest(found)) < len(found):
        say(f"The {len(clearest(found))} that stand out most; {file} has all {len(found):,}.")


def demo(
    folder: Annotated[Path, typer.Option("--folder", help="Where the files go.")] = Path("curvedp-demo"),
    epsilon: o.EpsilonOption = 1.0,
    delta: o.DeltaOption = 1e-6,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """The main job on real data, end to end: plan, fit privately, compare, report."""
    from curvedp.privacy.budget import Budget

    budget = Budget(epsilon, delta)
    with progress("loading", total=None, show=not (json or quiet)) as steps:
        from curvedp.cli import workflow as tour

        steps.total(tour.STEPS)

        def on_step(name: str) -> None:
            steps.begin(name)
            steps.done()

        result = tour.run(folder, budget, on_step, force=force)
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
    say(f"Plan, before touching the data: {result.plan.sentence}")
    show_table(
        "Coefficients of re78, with 95 % intervals",
        ("column", "released", "interval", "without privacy", "its interval"),
        [
            (c.name, plain(c.value), _interval(c.interval), plain(value), _interval((low, high)))
            for c, (value, low, high) in zip(result.coefficients, result.plain.tolist(), strict=True)
        ],
        right=("released", "interval", "without privacy", "its interval"),
    )
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
        "These numbers use held-out rows of a public table; they are not covered by the guarantee. Where "
        f"rows are private, a score is released, too: R² = {result.score}, for ε = 0.5.",
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


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"[{plain(ends[0])}, {plain(ends[1])}]"


# `curvedp refit` and `curvedp path`: other penalties from a model file, at no cost.


if TYPE_CHECKING:
    AlphaOption = float | None
else:
    AlphaOption = o.ESTIMATOR_OPTIONS["alpha"]


def refit(
    model: o.ModelArgument,
    out_path: Annotated[Path, typer.Option("--out", help="File to write: the new model.")],
    alpha: AlphaOption = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="Columns, separated by commas: those to keep; others get 0."),
    ] = None,
    trust: Annotated[
        float | None,
        typer.Option("--trust", help="How far predictions may move, in deviations of the noise."),
    ] = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Another penalty or fewer columns from the same release. Free: nothing is read but the model file."""
    from curvedp.release.outputs import claimed

    with claimed({"--out": out_path}, inputs={"the model": model}, force=force) as files:
        from curvedp.cli.workflow import coefficients, learned
        from curvedp.release import modelfile

        kept = o.listed(columns) or None
        made = modelfile.load(model).to_estimator().refit(alpha=alpha, columns=kept, trust=trust)
        document = modelfile.Release.of(made)
        files["--out"].write(document.to_json())
    if json:
        emit_json(
            {
                "model": str(out_path),
                "features": list(document.schema.feature_names),
                "coefficients": document.coefficients.tolist(),
                "intercept": document.intercept.tolist(),
            }
        )
    elif not quiet:
        print_coefficients(coefficients(made), learned(made), out_path)
        say(f"Model written to {out_path}. Nothing was charged: it follows from what was released.")


def path(
    model: o.ModelArgument,
    alphas: o.AlphasOption,
    report: o.ReportOption = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """The coefficients for several penalties from the same release. Free."""
    from curvedp.release.outputs import claimed

    with claimed({"--report": report}, inputs={"the model": model}, force=force) as files:
        from curvedp.pages import environment
        from curvedp.release import modelfile

        fitted = modelfile.load(model).to_estimator()
        found = fitted.path(o.numbers(alphas))
        if "--report" in files:
            page = environment().get_template("path.html").render(path=found, g=fitted.privacy_)
            files["--report"].write(page)
    if json:
        emit_json(
            {
                "alphas": list(found.alphas),
                "features": list(found.names),
                "coefficients": found.coefs.tolist(),
                "intercepts": found.intercepts.tolist(),
                "moves": found.moves.tolist(),
                "trusted": found.trusted.tolist(),
            }
        )
    elif not quiet:
        headings = [f"alpha {alpha:g}" for alpha in found.alphas]
        marks = [f"{moved:.2g}" + ("" if trusted else "*") for _, moved, trusted in found.rows()]
        show_table(
            "Coefficients by alpha, all from one release",
            ("column", *headings),
            [
                *(
                    (name, *map(plain, values))
                    for name, values in zip(found.names, found.coefs.T, strict=True)
                ),
                ("(intercept)", *map(plain, found.intercepts)),
                ("moved by", *marks),
            ],
            right=headings,
        )
        if not all(found.trusted):
            say("* moves further than was measured: fit again with this alpha to rely on it.")
        say("Moves of typical predictions are in deviations of the release's noise. Nothing was charged.")
