"""What was declared for a fit, column by column, as its report shows it."""

from __future__ import annotations

from typing import Any

from curvedp.filing.report import DeclaredColumn
from curvedp.schema import (
    Boolean,
    Categorical,
    ClassTarget,
    CountTarget,
    Date,
    Ignored,
    NumericTarget,
    Schema,
)
from curvedp.schema.kinds import Feature
from curvedp.schema.targets import SeveralTargets, Target

SKIPPED = "no record: it adds nothing"
PASSED = "passed beside the table"


def declared_columns(model: Any) -> list[DeclaredColumn]:
    """Every column that a model's schema declares, what follows from them, and what was passed beside."""
    schema: Schema = model.schema_
    found = [_column(column, schema) for column in schema.columns if not isinstance(column, Ignored)]
    for name, low, high in schema.derived_bounds:
        computed = name == schema.target
        missing = SKIPPED if computed else "computed from what those columns then hold"
        use = "target" if computed else "feature"
        found.append(DeclaredColumn(name, use, low, high, missing=missing, follows=True))
    if not schema.has_target:
        found += _targets(model.target_)
    weight = getattr(model, "weight_max", None)
    if weight is not None and "weight" not in schema.roles:
        found.append(DeclaredColumn(PASSED, "weight", 0.0, float(weight), missing=SKIPPED))
    return found


def _column(column: Feature, schema: Schema) -> DeclaredColumn:
    roles = {name: role for role, name in schema.roles.items()}
    is_feature = column.name in schema.encoding.sources
    use = "feature" if is_feature else "not used"
    if column.name == schema.target_source:
        use = "target" if column.name == schema.target else f"target, as {schema.target}"
    use = roles.get(column.name, use)
    told: dict[str, Any] = {
        "source": column.source,
        "is_feature": is_feature,
        "missing": _missing(column, use),
    }
    if isinstance(column, Categorical):
        return DeclaredColumn(column.name, use, levels=column.levels, **told)
    if isinstance(column, Boolean):
        words = column.words or ()
        return DeclaredColumn(column.name, use, 0.0, 1.0, words, needs_source=False, **told)
    if isinstance(column, Date):
        days = f" (days since {column.low.isoformat()})" if "days" in column.parts else ""
        name = f"{column.name}{days}"
        return DeclaredColumn(name, use, column.low.isoformat(), column.high.isoformat(), **told)
    return DeclaredColumn(column.name, use, column.low, column.high, **told)


def _missing(column: Feature, use: str) -> str:
    """What a missing cell of this column becomes."""
    if use not in ("feature", "not used"):
        return SKIPPED
    if isinstance(column, Categorical):
        return "a level of its own" if column.missing == "level" else "no level: all codes are 0"
    return "the middle, and 1 in a column of its own" if column.missing == "indicator" else "the middle"


def _targets(target: Target) -> list[DeclaredColumn]:
    """The target that was passed beside the table."""
    if isinstance(target, SeveralTargets):
        return [
            DeclaredColumn(f"{PASSED}, {place}", "target", one.low, one.high, missing=SKIPPED)
            for place, one in enumerate(target.targets, start=1)
        ]
    if isinstance(target, NumericTarget):
        return [DeclaredColumn(PASSED, "target", target.low, target.high, missing=SKIPPED)]
    if isinstance(target, CountTarget):
        return [DeclaredColumn(PASSED, "target", 0.0, target.high, missing=SKIPPED)]
    assert isinstance(target, ClassTarget)
    labels = tuple(str(label) for label in target.labels.tolist())
    return [DeclaredColumn(PASSED, "target", levels=labels, missing=SKIPPED)]
