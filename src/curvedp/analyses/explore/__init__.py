"""Private looks at a table, each a charged release: are its cells what was declared (check), how far do its
numbers reach (bounds), what do its columns hold (describe)."""

from curvedp.looks.bounds import PrivateBounds, private_bounds
from curvedp.looks.describe import describe
from curvedp.looks.description import Description
from curvedp.looks.quantiles import private_quantiles

__all__ = ["Description", "PrivateBounds", "describe", "private_bounds", "private_quantiles"]
