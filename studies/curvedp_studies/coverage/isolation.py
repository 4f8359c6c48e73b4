"""The parts of curvedp that need numpy and scipy alone, on a machine that has nothing else."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType


def open_library() -> None:
    """Make `curvedp.released` importable where curvedp's own dependencies are missing.

    `curvedp/__init__.py` needs lazy_loader: without it, an empty package with the same folder replaces it.
    """
    if "curvedp" in sys.modules:
        return
    try:
        import lazy_loader  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        spec = find_spec("curvedp")
        if spec is None or spec.submodule_search_locations is None:
            raise ImportError("curvedp is not on the path: set PYTHONPATH to its folder src") from None
        package = ModuleType("curvedp")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["curvedp"] = package
