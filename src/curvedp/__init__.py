"""Private convex learning by random curvature: estimators, a composable core, and the privacy behind them.

Names are imported when first used, so that `import curvedp` and the command line start at once. They are
written once, in `__init__.pyi`.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
