"""Names of a package that are imported when they are first used, as its stub `__init__.pyi` lists them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attached(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """(__getattr__, __dir__, __all__) of a package: what the stub beside `file` imports, as it names it."""
    homes = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.parse(Path(file).with_suffix(".pyi").read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = homes[name]
        found = import_module(f"{package}.{module or attribute}")
        value = found if module is None else getattr(found, attribute)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: [*vars(sys.modules[package]), *homes], sorted(homes)
