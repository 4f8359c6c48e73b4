"""What a private fit will cost and give, worked out without data: widths of intervals, synthetic trials.

Everything here is a function of declared things (rows, columns, ε, δ, adjacency). `widths` is a formula. A
trial runs the real mechanisms on a synthetic table of the declared shape; a larger table of the same
distribution is the same table with every record counted several times.
"""

from curvedp.planning.intervals import HalfWidth, Widths, widths
from curvedp.planning.run import (
    CANDIDATES,
    CURVE,
    RUNS,
    Forecast,
    ForecastRow,
    Reached,
    Verdict,
    assess,
    forecast,
    reach,
)
from curvedp.planning.trial import Spread

__all__ = [
    "CANDIDATES",
    "CURVE",
    "RUNS",
    "Forecast",
    "ForecastRow",
    "HalfWidth",
    "Reached",
    "Spread",
    "Verdict",
    "Widths",
    "assess",
    "forecast",
    "reach",
    "widths",
]
