"""Private looks at a table, each a charged release: are its cells what was declared (check), how far do its
numbers reach (bounds), what do its columns hold (describe)."""

from curvedp.analyses.explore.bounds import PrivateBounds, private_bounds
from curvedp.analyses.explore.describe import describe
from curvedp.analyses.explore.description import Description, GroupedDescription
from curvedp.analyses.explore.quantiles import private_quantiles

__all__ = [
    "Description",
    "GroupedDescription",
    "PrivateBounds",
    "describe",
    "private_bounds",
    "private_quantiles",
]
