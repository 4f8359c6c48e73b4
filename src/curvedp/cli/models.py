"""`curvedp fit`, `search` and `demo`: from a table to a private model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import curvedp
from curvedp.cli import charging as o
from curvedp.cli.charging import Order, Shown, Terms, purchase, sharing
from curvedp.cli.console import Steps, in_options, plain, progress, say, show_table
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Budget
from curvedp.release.outputs import claimed

if TYPE_CHECKING:
    from curvedp.planning import Verdict
    from curvedp.release.ledger.storage import LedgerState
    from curvedp.release.modelfile import Release
    from curvedp.reports.report import Caution


@sharing(**o.ESTIMATOR_OPTIONS)
def fit(
    terms: Terms,
    data: o.TableArgument,
    schema: o.SchemaOption,
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption,
    out: Annotated[Path, "File to write: the model."],
    target: o.TargetOption = None,
    formula: o.FormulaOption = None,
    model: Annotated[
        o.ModelName, "Which model; auto: linear for a number, logistic for a category."
    ] = "auto",
    mechanism: Annotated[o.MechanismName, "How the model is released."] = "auto",
    accounting: Annotated[
        Literal["auto", "paper", "spectral", "directional"],
        "Which proof calibrates the noise of qop and lop.",
    ] = "auto",
    radius: Annotated[float | None, "Public guess of ‖θ‖; steers calibration only."] = None,
    rows: Annotated[
        int | None,
        "Rows you declare, for the record; with curvedp-studies the report says if noise dominates.",
    ] = None,
    ratios: Annotated[
        bool, o.says("Print odds ratios; of counts, rate ratios.", "--ratios", "--odds-ratios")
    ] = False,
    tidy: Annotated[Path | None, "CSV file to write: the table, with broom's columns."] = None,
    engine: Annotated[
        Literal["memory", "dask"], "What computes: dask for Parquet files larger than memory."
    ] = "memory",
    scheduler: Annotated[str | None, "Dask cluster to compute on, tcp://host:8786; default: threads."] = None,
    **options: Any,
) -> None:
    """Fit a private model: check everything public, charge the ledger, release once, write the model file."""
    if scheduler is not None and engine != "dask":
        raise InvalidInput("--scheduler names a Dask cluster: pass --engine dask, too")
    verdict: Verdict | None = None
    known: list[Caution] = []

    def plan(book: curvedp.Ledger | None, steps: Steps) -> Order:
        nonlocal verdict
        declared = terms.declared(schema, target, formula)
        from curvedp.analyses.estimators import summary
        from curvedp.cli import workflow
        from curvedp.planning import check_rows
        from curvedp.reports.report import unchecked

        known.extend([] if book is None else unchecked(book.history()))
        if rows is not None:
            check_rows(rows)
            declared = replace(declared, release=replace(declared.release, rows=rows))
        budget, chosen = Budget(epsilon, delta), {"mechanism": mechanism, "accounting": accounting}
        estimator = workflow.build(declared, budget, model, radius=radius, **chosen, **options)
        estimator.set_params(ledger=book, random_state=terms.seed)
        if ratios and not summary.ratio_of(type(estimator), estimator._declared_target()):
            raise InvalidInput(summary.NO_RATIOS)
        if rows is not None:
            steps(description="judging the noise")
            verdict = workflow.verdict(declared, budget, rows, model, **chosen)
        steps(description="reading the table")

        def release() -> Any:
            with workflow.cluster(scheduler):
                return estimator.fit(declared.source(data, engine=engine))

        return Order(release, estimator)

    def show(fitted: Any, state: LedgerState | None) -> Shown:
        from curvedp.cli import workflow

        cautions = [*known, *workflow.release_warnings(fitted)]
        judged = "" if verdict is None else " ".join([verdict.sentence, *verdict.caveats])
        return Shown(
            {
                "model": out,
                "report": terms.report,
                "guarantee": fitted.privacy_.to_dict(),
                **numbers_of(fitted.release_, event=getattr(fitted, "event_", None)),
                "inference": None if fitted.inference_ is None else fitted.summary(exp=ratios).table(),
                "verdict": judged or None,
                "warnings": [{"level": caution.level, "text": caution.text} for caution in cautions],
            },
            lambda: print_release(fitted, out, cautions, judged, ratios),
            {
                "--out": fitted.release_.to_json,
                "--report": lambda: workflow.release_report(fitted, state, verdict, known),
                "--tidy": lambda: workflow.csv_text(fitted.summary(exp=ratios).broom),
            },
            _written(out, terms.report),
        )

    outputs = {"--out": out, "--report": terms.report, "--tidy": tidy}
    purchase(terms, (epsilon, delta), plan, show, data, schema, outputs=outputs, doing="fitting privately")


def _written(model: Path, report: Path | None) -> str:
    return f"Model written to {model}" + (f", report to {report}." if report else ".")


@sharing()
def search(
    terms: Terms,
    data: o.TableArgument,
    schema: o.SchemaOption,
    alphas: o.AlphasOption,
    epsilon: o.EpsilonOption,
    delta: o.DeltaOption,
    out: Annotated[Path, "File to write: the chosen model."],
    target: o.TargetOption = None,
    formula: o.FormulaOption = None,
    model: Annotated[o.ModelName, "Which model; auto: ridge for a number, logistic for a category."] = "auto",
) -> None:
    """Choose among penalties: fits, comparison and choice together cost (ε, δ), charged once."""
    grid = {"alpha": o.numbers(alphas)}

    def plan(book: curvedp.Ledger | None, steps: Steps) -> Order:
        declared = terms.declared(schema, target, formula)
        from curvedp.cli import workflow

        named = "ridge" if model == "auto" and workflow.task_of(declared) == "regression" else model
        estimator = workflow.build(declared, Budget(epsilon, delta), named)
        found = curvedp.PrivateSearch(estimator, grid, epsilon, delta, ledger=book, random_state=terms.seed)
        return Order(lambda: found.fit(declared.source(data)), found)

    def show(found: curvedp.PrivateSearch, state: LedgerState | None) -> Shown:
        from curvedp.cli import workflow

        best = found.best_estimator_
        candidates = [  # all of it was released
            {"alpha": one.params["alpha"], "improvement": one.improvement, "error": one.error}
            | {"chosen": index == found.best_index_}
            for index, one in enumerate(found.candidates_)
        ]

        def print_search() -> None:
            numbers = ("alpha", "loses less per record by", "noise (sd)")
            rows = []
            for one in candidates:
                compared = (
                    "—" if one[key] is None else f"{one[key]:.2g}" for key in ("improvement", "error")
                )
                rows.append((f"{one['alpha']:g}", *compared, "chosen" if one["chosen"] else ""))
            show_table("Penalties compared, on the same private rows", (*numbers, ""), rows, right=numbers)
            print_release(best, out, workflow.release_warnings(best))

        document = {"model": out, "guarantee": found.privacy_.to_dict(), "chosen": found.best_params_}
        return Shown(
            {**document, "candidates": candidates},
            print_search,
            {"--out": best.release_.to_json, "--report": lambda: workflow.release_report(best, state)},
            _written(out, terms.report),
        )

    outputs = {"--out": out, "--report": terms.report}
    purchase(terms, (epsilon, delta), plan, show, data, schema, outputs=outputs, doing="searching")


def numbers_of(release: Release, **more: Any) -> dict[str, Any]:
    """The released numbers for machines; `more` of them after the names of their columns."""
    return {
        "features": list(release.schema.feature_names),
        **more,
        "coefficients": release.coefficients.tolist(),
        "intercept": release.intercept.tolist(),
    }


def print_release(
    model: Any, file: Path, cautions: Sequence[Caution], judged: str = "", ratios: bool = False
) -> None:
    """A fitted model for people; `file` has all of it, `judged` says whether noise dominates so many rows."""
    from curvedp.analyses.estimators.summary import WHOLE, why_no_intervals
    from curvedp.data.targets import linear_odds

    if model.inference_ is None and not ratios:
        print_coefficients(model, file)
        say(f"No intervals: {in_options(why_no_intervals(model.release_))}.")
        for words in linear_odds(model.target_, model.schema_.target):
            say(words)
    else:
        release = model.release_
        table = str(model.summary(exp=ratios)).replace(release.estimator, release.entry.words, 1)
        say(table.replace(WHOLE, f"{file} has"))
    o.say_cautions(caution for caution in cautions if caution.printed)
    o.say_promise(model.privacy_, "Fit")
    if judged:
        say(judged)


def print_coefficients(model: Any, file: Path) -> None:
    """The released numbers of a fitted model as a table; `file` is where all of them are."""
    from curvedp.cli.workflow import coefficients, learned
    from curvedp.reports.report import clearest

    found = coefficients(model)
    classes = ("class",) if len({c.output for c in found}) > 1 else ()
    rows = []
    for c in (shown := clearest(found)):
        effect = "" if c.effect is None else plain(c.effect)
        rows.append((c.name, *(c.output for _ in classes), plain(c.value), effect))
    numbers = ("coefficient", "across its range")
    title = f"Released coefficients of {learned(model)}"
    show_table(title, ("column", *classes, *numbers), rows, right=numbers)
    if len(shown) < len(found):
        say(f"The {len(shown)} that stand out most; {file} has all {len(found):,}.")


@sharing("force", "json", "quiet")
def demo(
    terms: Terms,
    folder: Annotated[Path, "Where the files go."] = Path("curvedp-demo"),
    epsilon: o.EpsilonOption = 1.0,
    delta: o.DeltaOption = 1e-6,
) -> None:
    """The main job on real data, end to end: plan, fit privately, compare, report."""
    with progress("loading", total=None, show=terms.talks) as steps:
        from curvedp.cli import workflow as tour

        steps(total=tour.STEPS)
        document, tell = tour.run(folder, Budget(epsilon, delta), partial(steps, advance=1), terms.force)
    if terms.answers(document):
        tell()


@sharing("force", "json", "quiet")
def refit(
    terms: Terms,
    model: o.ModelArgument,
    out: Annotated[Path, "File to write: the new model."],
    alpha: o.AlphaOption = None,
    columns: Annotated[str | None, "Columns, separated by commas: those to keep; others get 0."] = None,
    trust: Annotated[float | None, "How far predictions may move, in deviations of the noise."] = None,
) -> None:
    """Another penalty or fewer columns from the same release. Free: nothing is read but the model file."""
    with claimed({"--out": out}, inputs={"the model": model}, force=terms.force) as files:
        kept = o.listed(columns) or None
        made = curvedp.load(model).refit(alpha=alpha, columns=kept, trust=trust)
        files["--out"].write(made.release_.to_json())
    if terms.answers({"model": out, **numbers_of(made.release_)}):
        print_coefficients(made, out)
        say(f"Model written to {out}. Nothing was charged: it follows from what was released.")


@sharing("report", "force", "json", "quiet")
def path(terms: Terms, model: o.ModelArgument, alphas: o.AlphasOption) -> None:
    """The coefficients for several penalties from the same release. Free."""
    with claimed({"--report": terms.report}, inputs={"the model": model}, force=terms.force) as files:
        from curvedp.pages import rendered

        fitted = curvedp.load(model)
        found = fitted.path(o.numbers(alphas))
        for file in files.values():
            file.write(rendered("path.html", path=found, g=fitted.privacy_))
    told = {"alphas": list(found.alphas), "features": list(found.names), "coefficients": found.coefs.tolist()}
    told |= {"intercepts": found.intercepts.tolist(), "moves": found.moves.tolist()}
    told |= {"trusted": found.trusted.tolist()}
    if terms.answers(told):
        headings = [f"alpha {alpha:g}" for alpha in found.alphas]
        rows = [(name, *map(plain, values)) for name, values in zip(found.names, found.coefs.T, strict=True)]
        rows.append(("(intercept)", *map(plain, found.intercepts)))
        marks = [f"{moved:.2g}" + ("" if trusted else "*") for _, moved, trusted in found.rows()]
        rows.append(("moved by", *marks))
        show_table("Coefficients by alpha, all from one release", ("column", *headings), rows, right=headings)
        if not all(found.trusted):
            say("* moves further than was measured: fit again with this alpha to rely on it.")
        say("Moves of typical predictions are in deviations of the release's noise. Nothing was charged.")
