"""The paper's figures and tables from one entry."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from curvedp_studies.figure1 import figure1
from curvedp_studies.figure2 import figure2
from curvedp_studies.resume import Progress
from curvedp_studies.tables import tables

What = Literal["figure1", "figure2", "tables"]

_STUDIES: dict[What, Callable[..., list[Path]]] = {"figure1": figure1, "figure2": figure2, "tables": tables}


def reproduce(
    what: What, out: str | os.PathLike[str], progress: Progress | None = None, workers: int | None = None
) -> list[Path]:
    """Write one study into the folder `out` and return the files; an interrupted run continues.

    `progress(done, total)` counts tasks; `workers` processes share them (default: one per core).
    """
    return _STUDIES[what](out, progress=progress, workers=workers)
