"""Mechanisms: each turns a public `Problem` and a `Budget` into a plan, and a plan releases one private θ.

Names are written in `__init__.pyi` and imported when first used.
"""

from curvedp.lazy import attached

__getattr__, __dir__, __all__ = attached(__name__, __file__)
