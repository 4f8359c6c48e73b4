"""Draws docs/figures/coefficients.png, the picture of the README, by running the gallery's first example."""

import runpy
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
HERE = Path(__file__).parent
drawn = runpy.run_path(str(HERE.parent / "gallery" / "plot_01_wages.py"))
drawn["figure"].savefig(HERE / "coefficients.png", dpi=150)
