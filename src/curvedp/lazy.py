"""What is imported when it is first used: names of a package, modules of the package of studies."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
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


def studies(module: str, what: str) -> Any:
    """A module of the package curvedp-studies, or a refusal that says `what` needs it."""
    if find_spec("curvedp_studies") is None:
        from curvedp.errors import InvalidInput

        raise InvalidInput(f"{what} needs the package of studies: pip install curvedp-studies")
    return import_module(f"curvedp_studies.{module}")
