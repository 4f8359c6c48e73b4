"""Pages of the Python reference, written before the build from what the packages export.

A page for every estimator, one for every other group; `reference/api/` is made anew and not committed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from curvedp.release import catalogue

GROUPS: dict[str, tuple[str, str, list[str]]] = {
    "verbs": (
        "The verbs",
        "What the commands do, as functions of ``curvedp``.",
        [
            f"curvedp:{verb}"
            for verb in ("dummy", "plan", "check", "bounds", "describe", "score", "audit", "report")
        ],
    ),
    "schemas": ("Schemas", "What each column may hold.", ["curvedp.data", "curvedp.data.templates:review"]),
    "looks": ("Checks, bounds, descriptions", "Charged looks at a table.", ["curvedp.analyses.explore"]),
    "scores": ("Scores", "How good a model is on private rows.", ["curvedp.analyses.scores"]),
    "selection": ("Choosing a model", "A private search.", ["curvedp.analyses.search"]),
    "ledger": ("Ledger", "A budget that cannot be overspent.", ["curvedp.release.ledger"]),
    "forecast": (
        "Plans without data",
        "How wide will intervals be, what will it cost, and which ε for which score?",
        [
            *(f"curvedp.planning:{name}" for name in ("widths", "Widths", "HalfWidth")),
            *(f"curvedp_studies.forecasts:{name}" for name in ("forecast", "reach")),
        ],
    ),
    "record": (
        "The record of a release",
        "What is filed beside a guarantee.",
        ["curvedp.release.record:ReleaseRecord", "curvedp.data.files:Stated"],
    ),
    "core": (
        "The composable core",
        "Any convex problem, any plan, through the one door.",
        [
            *("curvedp.privacy.budget:Budget", "curvedp.problems.domain:Domain", "curvedp.problems:Problem"),
            *(
                "curvedp.release.fit:private_fit",
                "curvedp.release.door:execute",
                "curvedp.release.door:Released",
            ),
            *(
                "curvedp.plans:compose",
                "curvedp.privacy.guarantee:Guarantee",
                "curvedp.privacy.budget:Neighbours",
            ),
            *("curvedp.release.fit:PrivateStatistics", "curvedp.analyses.inspection:inspect"),
            *("curvedp.analyses.estimators:load", "curvedp.analyses.predictions:Wanted"),
        ],
    ),
    "mechanisms": (
        "Mechanisms",
        "How θ is released.",
        [
            *("curvedp.mechanisms", "curvedp.mechanisms.rule:Rule"),
            *(
                f"curvedp_studies.mechanisms.baselines:{name}"
                for name in ("NoisyGradient", "OutputPerturbation")
            ),
            *(f"curvedp_studies.mechanisms.lop:{name}" for name in ("LOP", "LOPClip", "AMP")),
        ],
    ),
    "losses": ("Losses", "What is minimised, record by record.", ["curvedp.problems.losses"]),
    "regularizers": ("Regularizers", "Convex penalties.", ["curvedp.problems.regularizers"]),
    "constraints": ("Constraints", "Closed convex sets.", ["curvedp.problems.constraints"]),
    "audit": ("Audit", "Attacks on guarantees.", ["curvedp.auditing"]),
    "errors": ("Errors", "What is raised, and when.", ["curvedp.errors"]),
}


def exported(entry: str) -> list[tuple[str, str]]:
    """(module, name) of one name, or of all that a module exports or defines."""
    module_name, _, name = entry.partition(":")
    module = import_module(module_name)
    if name:
        return [(module_name, name)]
    names = getattr(module, "__all__", None) or [
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module_name
    ]
    return [(module_name, key) for key in names]


def members(value: type[Any]) -> list[str]:
    """Public methods and properties that curvedp wrote and documented, in the order of the classes."""
    found: dict[str, None] = {}
    for parent in reversed(value.__mro__):
        if not parent.__module__.startswith("curvedp"):
            continue
        for name, member in vars(parent).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if name.startswith("_") or not (inspect.isfunction(function) or hasattr(member, "func")):
                continue
            if inspect.getdoc(getattr(value, name, None)):
                found[name] = None
    return [*found]


def entry(module: str, name: str) -> Iterator[str]:
    """The reST that documents a name."""
    value = getattr(import_module(module), name)
    if inspect.isclass(value):
        yield from (f".. autoclass:: {module}.{name}", "")
        for member in members(value):
            directive = "automethod" if callable(getattr(value, member)) else "autoproperty"
            yield from (f"   .. {directive}:: {module}.{name}.{member}", "")
    elif callable(value):
        yield from (f".. autofunction:: {module}.{name}", "")
    else:
        yield from (f".. autodata:: {module}.{name}", "")


def titled(title: str, words: str) -> list[str]:
    return [title, "=" * len(title), "", words, ""]


def pages() -> dict[str, str]:
    """File name → reST."""
    written = {}
    for item in catalogue.ESTIMATORS.values():
        lines = [*titled(item.class_name, f"``from curvedp import {item.class_name}``")]
        written[item.class_name] = "\n".join([*lines, *entry("curvedp.analyses.estimators", item.class_name)])
    for key, (title, words, entries) in GROUPS.items():
        lines = titled(title, words)
        seen: set[Any] = set()
        for module, name in (pair for part in entries for pair in exported(part)):
            value = getattr(import_module(module), name)
            if id(value) not in seen:
                seen.add(id(value))
                lines += entry(module, name)
        written[key] = "\n".join(lines)
    return written


def write(app: Sphinx) -> None:
    folder = Path(app.srcdir) / "reference" / "api"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for old in folder.glob("*.rst"):
        if old.stem not in wanted:
            old.unlink()
    for name, text in wanted.items():
        path = folder / f"{name}.rst"
        if not (path.exists() and path.read_text("utf-8") == text):
            path.write_text(text, encoding="utf-8")


def _literal_signs(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """|y| is an absolute value, no substitution; coef_ is a name, no link."""
    for index, line in enumerate(lines):
        if line.lstrip().startswith(">>>"):
            continue
        parts = line.split("`")  # what stands in backticks is left alone
        parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
        if not re.match(r"\s*\w+ :", line):
            parts[::2] = [re.sub(r"(?<=\w)_(?!\w)", r"\\_", part) for part in parts[::2]]
        lines[index] = "`".join(parts)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    app.connect("autodoc-process-docstring", _literal_signs, priority=100)  # before numpydoc
    return {"parallel_read_safe": True}
