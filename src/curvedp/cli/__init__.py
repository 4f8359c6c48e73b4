"""The `curvedp` command. Each command imports what it needs when it runs, so that `--help` is immediate."""

from __future__ import annotations

from typing import Annotated

import typer

from curvedp import __version__
from curvedp.cli import budget, checks, models, plans
from curvedp.cli.console import Commands, out

app = typer.Typer(
    cls=Commands,
    name="curvedp",
    help="Train linear models on sensitive tables and release them under (ε, δ)-differential privacy.",
    epilog="New here? Run: curvedp demo",
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        out.print(f"curvedp {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def curvedp(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        out.print(context.get_help(), markup=False)


app.command("demo", epilog="Example: curvedp demo --epsilon 0.5")(models.demo)
app.command(
    "plan",
    epilog="Example: curvedp plan --rows 20000 --features 12 --epsilon 1 --delta 1e-6 --html plan.html",
)(plans.plan)
app.command("schema", epilog="Example: curvedp schema data.csv > schema.toml")(models.schema)
app.command(
    "fit",
    epilog="Example: curvedp fit data.csv --schema schema.toml --target wage --epsilon 1 --delta 1e-6 "
    "--ledger budget.db --out model.json --report report.html",
)(models.fit)
app.command("predict", epilog="Example: curvedp predict model.json new.csv > predictions.csv")(models.predict)
app.add_typer(budget.app, name="ledger")
app.command("audit", epilog="Example: curvedp audit --mechanism qop --epsilon 1 --delta 1e-3 --features 2")(
    checks.audit
)
app.command(
    "compare",
    epilog="Example: curvedp compare --data DIR --datasets adult,bike --epsilon 0.1,1 --out results/",
)(checks.compare)
app.command("reproduce", epilog="Example: curvedp reproduce figure1 --out results/")(checks.reproduce)


def main() -> None:
    """Entry point of the `curvedp` script."""
    app()


if __name__ == "__main__":
    main()
