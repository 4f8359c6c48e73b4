"""Options that several commands share, so that they read the same everywhere; those of estimators among them.

One word is one thing: wherever an option occurs, its help begins with the same words, up to the first colon
or semicolon; what a command does with it comes after (tests/cli/test_manners.py).
"""

from __future__ import annotations

import inspect
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from curvedp import catalogue

# As in curvedp.neighbours, which is not imported here: `--help` must not load the numerical libraries.
Adjacency = Literal["replace", "add_remove"]
Task = Literal["regression", "classification"]

if TYPE_CHECKING:
    MechanismName = str
    ModelName = str
else:
    MechanismName = StrEnum("MechanismName", {name: name for name in catalogue.offered()})
    ModelName = StrEnum("ModelName", {name: name for name in ("auto", *catalogue.one_target())})

EpsilonOption = Annotated[
    float, typer.Option("--epsilon", help="ε: one record shifts any odds by at most e^ε.")
]
DeltaOption = Annotated[float, typer.Option("--delta", help="δ: the chance of failure; far below 1/rows.")]
AlphasOption = Annotated[str, typer.Option("--alphas", help="Penalty weights, separated by commas.")]
AdjacencyOption = Annotated[
    Adjacency,
    typer.Option("--adjacency", help="Neighbouring tables: one record replaced, or one added or removed."),
]
TableArgument = Annotated[
    Path, typer.Argument(metavar="DATA", help="The sensitive table: a CSV file, or Parquet files.")
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file written by curvedp fit.")]
SchemaOption = Annotated[Path, typer.Option("--schema", help="Declared columns; see: curvedp schema DATA")]
TargetOption = Annotated[
    str | None, typer.Option("--target", help="Column to predict, if the schema names none.")
]
FormulaOption = Annotated[
    str | None,
    typer.Option(
        "--formula", help='The model in R\'s notation: "wage ~ age + I(age**2) + C(region):female".'
    ),
]
SightOption = Annotated[
    int | None,
    typer.Option("--rows", help="Rows you declare: what can be seen in so many is said beforehand."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only say what could be seen: nothing is released or charged.")
]
DelimiterOption = Annotated[
    str | None,
    typer.Option("--delimiter", help="What separates the cells of a line, if not what the schema says."),
]
EncodingOption = Annotated[
    str | None,
    typer.Option("--encoding", help="How the file is saved, such as latin-1, if not what the schema says."),
]
DecimalOption = Annotated[
    str | None, typer.Option("--decimal", help="The decimal sign, . or , if not what the schema says.")
]
HeaderOption = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first line of a CSV file names the columns."),
]
NamesOption = Annotated[
    str | None,
    typer.Option("--names", help="The columns of a CSV file without a header, in order, by commas."),
]
ReportOption = Annotated[Path | None, typer.Option("--report", help="Write an HTML page of it.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def _of_estimators() -> dict[str, Any]:
    """The numbers and switches that estimators take, with their names, kinds and first sentences there.

    Read from the docstrings in their source: importing it would load the numerical libraries.
    """
    sources = (
        path.read_text("utf-8") for path in sorted((Path(__file__).parents[1] / "estimators").glob("*.py"))
    )
    text = "\n".join(source for source in sources if "documented" in source)
    parameter = re.compile(r"^    ([a-z]\w*[a-z]) : (float|bool)\b.*\n((?: {8}.*\n)+)", re.MULTILINE)
    found: dict[str, Any] = {}
    for name, kind, words in parameter.findall(text):
        option = f"--{name.replace('_', '-')}"
        if kind == "bool":
            option = f"{option}/{option.replace('--', '--no-')}"
        said = typer.Option(option, help=f"{re.split('[.;]', ' '.join(words.split()))[0]}.")
        found.setdefault(name, Annotated[{"float": float, "bool": bool}[kind] | None, said])
    for spoken_otherwise in ("epsilon", "delta", "weight_max"):  # the last is for weights passed in Python
        del found[spoken_otherwise]
    return found


ESTIMATOR_OPTIONS = _of_estimators()


def as_parameters(annotations: dict[str, Any], **defaults: Any) -> list[inspect.Parameter]:
    """For the signature of a command."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, kind, default=defaults.get(name), annotation=annotation)
        for name, annotation in annotations.items()
    ]


def numbers(text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers such as 0.1,1") from None


def listed(text: str | None) -> list[str]:
    """Names separated by commas."""
    return [] if text is None else [name.strip() for name in text.split(",")]
