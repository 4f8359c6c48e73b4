"""What a private fit will cost, worked out without data: noise scales, a synthetic trial, the rows it takes.

Everything here is a function of declared things (rows, columns, ε, δ, adjacency). The trial runs the real
mechanisms on a synthetic table of the declared shape; a larger table of the same distribution is the same
table with every record counted several times.
"""

from curvedp.forecast.results import Forecast, ForecastRow, Reached, Spread, Verdict
from curvedp.forecast.run import CANDIDATES, CURVE, assess, forecast, reach

__all__ = [
    "CANDIDATES",
    "CURVE",
    "Forecast",
    "ForecastRow",
    "Reached",
    "Spread",
    "Verdict",
    "assess",
    "forecast",
    "reach",
]
