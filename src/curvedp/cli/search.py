"""`curvedp search`: choose a penalty privately, all of it in one charge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvedp.cli.charging import after_the_charge, made_whole, opened
from curvedp.cli.console import emit_json, progress, say, show_table
from curvedp.cli.models import print_release
from curvedp.cli.options import (
    AlphasOption,
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
    ModelName,
    PurposeOption,
    QuietOption,
    ReportOption,
    SchemaOption,
    SeedOption,
    TableArgument,
    TargetOption,
    numbers,
)
from curvedp.cli.promises import what_is_left

if TYPE_CHECKING:
    from curvedp.selection import PrivateSearch


def search(
    data: TableArgument,
    schema: SchemaOption,
    alphas: AlphasOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    out_path: Annotated[Path, typer.Option("--out", help="File to write: the chosen model.")],
    target: TargetOption = None,
    formula: FormulaOption = None,
    ledger: LedgerOption = None,
    by: ByOption = "",
    purpose: PurposeOption = "",
    model: Annotated[
        ModelName,
        typer.Option("--model", help="Which model; auto: ridge for a number, logistic for a category."),
    ] = "auto",
    report: ReportOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    seed: SeedOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Choose among penalties: fits, comparison and choice together cost (ε, δ), charged once."""
    from curvedp.outputs import claimed, ledger_inputs

    inputs = {"the data": data, "the schema": schema, **ledger_inputs(ledger)}
    grid = {"alpha": numbers(alphas)}
    with (
        opened(ledger, by, purpose) as book,
        claimed({"--out": out_path, "--report": report}, inputs=inputs, force=force) as files,
    ):
        with progress("searching", total=None, show=not (json or quiet)):
            from curvedp import modelfile, workflow
            from curvedp.budget import Budget
            from curvedp.schema import Schema
            from curvedp.selection import PrivateSearch

            declared = Schema.load(schema).with_model(target, formula)
            declared = declared.with_file(encoding=encoding, delimiter=delimiter, decimal=decimal)
            named = "ridge" if model == "auto" and workflow.task_of(declared) == "regression" else model
            estimator = workflow.build(declared, workflow.Settings(Budget(epsilon, delta), model=named))
            found = PrivateSearch(estimator, grid, epsilon, delta, ledger=book, random_state=seed)
            table = workflow.read(data, declared)
            whole = made_whole(found, lambda: found.fit(table))
        best = found.best_estimator_
        with after_the_charge(
            book, found.privacy_, lambda: modelfile.ModelDocument.of(best).to_json()
        ) as paid:
            if not whole:
                raise KeyboardInterrupt
            files["--out"].write(modelfile.ModelDocument.of(best).to_json())
            paid.kept(out_path)
            state = None if book is None else book.state()
            if "--report" in files:
                files["--report"].write(workflow.release_report(best, state))
            if json:
                emit_json({"model": str(out_path), **as_document(found), **what_is_left(state)})
            elif not quiet:
                print_search(found)
                print_release(best, None, state, out_path)
                say(f"Model written to {out_path}" + (f", report to {report}." if report else "."))


def as_document(found: PrivateSearch) -> dict[str, Any]:
    """The search for machines."""
    return {
        "guarantee": found.privacy_.to_dict(),
        "chosen": found.best_params_,
        "candidates": compared(found),
    }


def print_search(found: PrivateSearch) -> None:
    """The candidates for people."""
    show_table(
        "Penalties compared, on the same private rows",
        ("alpha", "loses less per record by", "noise (sd)", ""),
        [
            (
                f"{row['alpha']:g}",
                *(("—" if row[key] is None else f"{row[key]:.2g}") for key in ("improvement", "error")),
                "chosen" if row["chosen"] else "",
            )
            for row in compared(found)
        ],
        right=("alpha", "loses less per record by", "noise (sd)"),
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
