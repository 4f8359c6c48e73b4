"""One style for every figure, saved as PNG and as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

STYLE = {
    "svg.hashsalt": "curvedp",  # the same numbers give the same file
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
}


@contextmanager
def canvas(folder: Path, name: str, size: tuple[float, float], dpi: int = 120) -> Iterator[Figure]:
    """A figure of `size` inches that is saved as folder/name.png and folder/name.svg at the end."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        png, svg = pictures(folder, name)
        figure.savefig(png, dpi=dpi)
        figure.set_layout_engine("none")  # the layout stays as it is; once is slow enough
        figure.savefig(svg, metadata={"Date": None})


def pictures(folder: Path, name: str) -> list[Path]:
    """Where `canvas` saves."""
    return [folder / f"{name}.png", folder / f"{name}.svg"]
