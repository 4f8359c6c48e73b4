"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

# As in curvedp.domain, which is not imported here: `--help` must not load the numerical libraries.
Adjacency = Literal["replace", "add_remove"]
Task = Literal["regression", "classification"]

EpsilonOption = Annotated[
    float, typer.Option("--epsilon", help="ε: one record shifts any odds by at most e^ε.")
]
DeltaOption = Annotated[float, typer.Option("--delta", help="δ: the chance of failure; far below 1/rows.")]
AdjacencyOption = Annotated[
    Adjacency,
    typer.Option("--adjacency", help="Neighbouring tables: one record replaced, or one added or removed."),
]
MechanismOption = Annotated[
    str,
    typer.Option("--mechanism", help="auto, recentered, statistics, qop, lop, lop_clip, output or gradient."),
]
AccountingOption = Annotated[
    Literal["auto", "paper", "spectral", "directional"],
    typer.Option("--accounting", help="Which proof calibrates the noise of qop and lop."),
]


def numbers(text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers such as 0.1,1") from None


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
