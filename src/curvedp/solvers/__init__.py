"""Certified solvers: an objective and a tolerance in, a point with a proved distance to the optimum out.

Names are written in `__init__.pyi` and imported when first used.
"""

from curvedp.lazy import attached

__getattr__, __dir__, __all__ = attached(__name__, __file__)
