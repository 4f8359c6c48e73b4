"""Privacy accounting. No data is needed or seen here.

Names are written in `__init__.pyi` and imported when first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
