"""`curvedp.mechanisms.rule`, on a machine that has numpy, scipy and torch alone."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from curvedp_studies.coverage.isolation import open_library

_PACKAGE = "curvedp.mechanisms"


def open_rule() -> None:
    """Make single modules of `curvedp.mechanisms` importable where lazy_loader is missing."""
    open_library()
    if _PACKAGE in sys.modules:
        return
    try:
        import lazy_loader  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        import curvedp

        package = ModuleType(_PACKAGE)
        package.__path__ = [str(Path(folder) / "mechanisms") for folder in curvedp.__path__]
        sys.modules[_PACKAGE] = package
