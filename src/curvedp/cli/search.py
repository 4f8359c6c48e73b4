"""`curvedp search`: choose a penalty privately, all of it in one charge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvedp.cli.console import emit_json, progress, say, show_table
from curvedp.cli.models import after_the_charge, print_release
from curvedp.cli.options import (
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
    QuietOption,
    ReportOption,
    SchemaOption,
    SeedOption,
    TableArgument,
    numbers,
)

if TYPE_CHECKING:
    from curvedp.selection import PrivateSearch


def search(
    data: TableArgument,
    schema: SchemaOption,
    alphas: Annotated[str, typer.Option("--alphas", help="Penalty weights to try, separated by commas.")],
    epsilon: EpsilonOption,
    delta: DeltaOption,
    out_path: Annotated[Path, typer.Option("--out", help="Where the chosen model goes.")],
    target: Annotated[
        str | None, typer.Option("--target", help="Column to predict, if the schema names none.")
    ] = None,
    formula: FormulaOption = None,
    ledger: LedgerOption = None,
    model: Annotated[
        ModelName, typer.Option("--model", help="auto: ridge for a number, logistic for a category.")
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
        claimed({"--out": out_path, "--report": report}, inputs=inputs, force=force) as files,
        progress("searching", total=None, show=not (json or quiet)),
    ):
        from curvedp import modelfile, workflow
        from curvedp.budget import Budget
        from curvedp.ledger import Ledger
        from curvedp.schema import Schema
        from curvedp.selection import PrivateSearch

        declared = Schema.load(schema).with_model(target, formula)
        declared = declared.with_file(encoding=encoding, delimiter=delimiter, decimal=decimal)
        named = "ridge" if model == "auto" and workflow.task_of(declared) == "regression" else model
        estimator = workflow.build(declared, workflow.Settings(Budget(epsilon, delta), model=named))
        book = None if ledger is None else Ledger(ledger)
        found = PrivateSearch(estimator, grid, epsilon, delta, ledger=book, random_state=seed)
        found.fit(workflow.read(data, declared))
        with after_the_charge(charged=book is not None):
            best = found.best_estimator_
            files["--out"].write(modelfile.ModelDocument.of(best).to_json())
            state = None if book is None else book.state()
            if "--report" in files:
                files["--report"].write(workflow.release_report(best, state))
    if json:
        emit_json(
            {
                "model": str(out_path),
                "guarantee": found.privacy_.to_dict(),
                "chosen": found.best_params_,
                "candidates": compared(found),
                "remaining_epsilon": None if state is None else state.remaining_epsilon,
                "remaining_delta": None if state is None else state.remaining_delta,
            }
        )
    elif not quiet:
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
        print_release(best, None, state)
        say(f"Model written to {out_path}" + (f", report to {report}." if report else "."))


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
