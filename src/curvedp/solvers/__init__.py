"""Certified solvers: an objective and a tolerance in, a point with a proved distance to the optimum out.

Names are written in `__init__.pyi` and imported when first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
