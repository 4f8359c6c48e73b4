"""The `curvedp` command. Each command imports what it needs when it runs, so that `--help` is immediate."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated

import typer
from typer import Argument, Option

from curvedp import __version__
from curvedp.cli import explore, files, models, plans, schema
from curvedp.cli.console import STOPPED, Commands, out
from curvedp.errors import InvalidInput

app = typer.Typer(
    cls=Commands,
    name="curvedp",
    help="Train linear models on sensitive tables and release them under (ε, δ)-differential privacy.",
    epilog="New here? Run: curvedp demo",
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)

COMMANDS = "curvedp.commands"  # the entry points by which another distribution adds commands
STUDIES = {
    "compare": "curvedp compare --data DIR --datasets adult,bike --epsilon 0.1,1 --folder results/",
    "others": "curvedp others --folder results/ --page docs/others.md",
    "reproduce": "curvedp reproduce figure1 --folder results/",
}


def _version(asked: bool) -> None:
    if asked:
        out.print(f"curvedp {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def curvedp(
    context: typer.Context,
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        out.print(context.get_help())


for function, example in (
    (models.demo, "--epsilon 0.5"),
    (plans.plan, "--rows 20000 --schema schema.toml --epsilon 1 --delta 1e-6"),
    (schema.schema, "data.csv --dictionary codebook.csv --out schema.toml"),
    (explore.check, "data.csv --schema schema.toml --epsilon 0.05 --ledger budget.db"),
    (explore.bounds, "data.csv --columns wage,age --epsilon 0.1 --ledger budget.db"),
    (explore.describe, "data.csv --schema schema.toml --epsilon 0.5 --ledger budget.db --report page.html"),
    (
        models.fit,
        "data.csv --schema schema.toml --target wage --epsilon 1 --delta 1e-6 --ledger budget.db "
        "--out model.json --report report.html",
    ),
    (files.predict, "model.json new.csv --id person --out predictions.csv"),
    (explore.score, "model.json test.csv --epsilon 0.2 --ledger budget.db --report score.html"),
    (
        models.search,
        "data.csv --schema schema.toml --alphas 0.1,1,10,100 --epsilon 1 --delta 1e-6 --ledger budget.db "
        "--out model.json",
    ),
    (files.report, "model.json --out report.html --ledger budget.db"),
    (files.verify, "model.json --ledger budget.db"),
    (models.refit, "model.json --alpha 10 --out stronger.json"),
    (models.path, "model.json --alphas 0.1,1,10 --report path.html"),
    (schema.dummy, "schema.toml --rows 1000 --out dummy.csv"),
    (schema.split, "data.csv --test 0.2 --train-out train.csv --test-out test.csv"),
    (plans.audit, "--model model.json --report audit.html"),
):
    name = function.__name__
    app.command(name, epilog=f"Example: curvedp {name} {example}")(function)
app.add_typer(files.ledger_app, name="ledger")


def add_commands(group: typer.Typer, found: Iterable[EntryPoint]) -> None:
    """The commands of other distributions, and in the place of missing ones where to get them."""
    missing = dict(STUDIES)
    for entry in sorted(found, key=lambda entry: entry.name):
        example = missing.pop(entry.name, f"curvedp {entry.name} --help")
        try:
            function = entry.load()
        except Exception as problem:  # someone else's code: it must not take the other commands along
            kind = type(problem).__name__
            _refuse_all(group, entry.name, f"the command {entry.name} cannot be loaded ({kind})")
        else:
            group.command(entry.name, epilog=f"Example: {example}")(function)
    for name in missing:
        _refuse_all(group, name, f"curvedp {name} is a command of the studies: pip install curvedp-studies")


def _refuse_all(group: typer.Typer, name: str, message: str) -> None:
    """A command that answers every call with this message."""

    def refuse(arguments: Annotated[list[str] | None, Argument(hidden=True)] = None) -> None:
        raise InvalidInput(message)

    group.command(name, hidden=True, context_settings={"ignore_unknown_options": True})(refuse)


add_commands(app, entry_points(group=COMMANDS))


def main() -> None:
    """Entry point of the `curvedp` script."""
    try:
        app()
    except KeyboardInterrupt:  # before any command began
        sys.exit(STOPPED)
