"""`curvedp refit` and `curvedp path`: other penalties from a model file, at no cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curvedp.cli import options as o
from curvedp.cli.console import emit_json, plain, say, show_table

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
    from curvedp.cli.models import print_coefficients
    from curvedp.outputs import claimed

    with claimed({"--out": out_path}, inputs={"the model": model}, force=force) as files:
        from curvedp import modelfile
        from curvedp.workflow import coefficients, learned

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
    from curvedp.outputs import claimed

    with claimed({"--report": report}, inputs={"the model": model}, force=force) as files:
        from curvedp import modelfile
        from curvedp.pages import environment

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
