"""Privacy accounting. No data is needed or seen here.

Names are written in `__init__.pyi` and imported when first used.
"""

from curvedp.lazy import attached

__getattr__, __dir__, __all__ = attached(__name__, __file__)
