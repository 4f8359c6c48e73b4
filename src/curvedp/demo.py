"""The main job on real data, end to end: earnings of 15,992 people, one row each.

The table (`cps_mixtape` of the causaldata package) is public; the demo treats it as if it were not. Bounds
come from common knowledge: ages of people at work, years of schooling, earnings up to $30,000 (of 1978).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression

from curvedp import modelfile, report
from curvedp.domain import FloatArray
from curvedp.errors import InvalidInput
from curvedp.ledger import Ledger, LedgerState
from curvedp.planning import CURVE, PlanTable, plan_table
from curvedp.privacy.guarantee import Guarantee
from curvedp.randomness import generator
from curvedp.report import Coefficient
from curvedp.schema import Numeric, Schema
from curvedp.tables import write_csv_safely
from curvedp.workflow import Settings, build, coefficients, release_report

SCHEMA = Schema(
    columns=(
        Numeric("age", 16, 65),
        Numeric("educ", 0, 20),
        Numeric("black", 0, 1),
        Numeric("hispanic", 0, 1),
        Numeric("married", 0, 1),
        Numeric("re74", 0, 30_000),
        Numeric("re75", 0, 30_000),
        Numeric("re78", 0, 30_000),
    ),
    target="re78",
    unit="one row is one person",
)
HELD_OUT = 0.2
SPLIT_SEED = 1978  # which public rows are held out; no privacy hangs on it
BUDGET = (3.0, 1e-5)
FILES = ("train.csv", "test.csv", "schema.toml", "budget.db", "model.json", "plan.html", "report.html")


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What the demo shows. Scores are R² on held-out rows of the public table."""

    folder: Path
    rows: int
    guarantee: Guarantee
    plan: PlanTable
    private_score: float
    nonprivate_score: float
    constant_score: float
    coefficients: list[Coefficient]
    ledger: LedgerState


def run(
    folder: Path, epsilon: float, delta: float, on_step: Callable[[str], None] = lambda name: None
) -> DemoResult:
    """Plan, fit, score, and write the files into `folder`; an earlier demo there is replaced."""
    on_step("reading the table")
    train, test = _tables()
    _clear(folder)
    names = [column.name for column in SCHEMA.columns]
    for name, table in (("train.csv", train), ("test.csv", test)):
        with open(folder / name, "w", encoding="utf-8", newline="") as file:
            write_csv_safely(file, names, zip(*table.values(), strict=True))
    (folder / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")

    on_step("planning, without the data")
    declared = 12_000  # a round number that the operator declares
    epsilons = [epsilon * factor for factor in CURVE]
    plan = plan_table(
        declared, len(SCHEMA.feature_names), epsilon, delta, SCHEMA.adjacency, epsilons=epsilons
    )
    report.write(folder / "plan.html", report.plan_page(plan))

    on_step("opening a ledger")
    ledger = Ledger.create(
        folder / "budget.db",
        epsilon=max(BUDGET[0], epsilon),
        delta=max(BUDGET[1], delta),
        adjacency=SCHEMA.adjacency,
    )

    on_step("fitting privately")
    settings = Settings(epsilon, delta, ledger=str(folder / "budget.db"))
    X, y = SCHEMA.encode(folder / "train.csv")
    model = build(SCHEMA, settings).fit(X, y)

    on_step("writing the model and the report")
    state = ledger.state()
    modelfile.save(modelfile.ModelDocument.of(model, SCHEMA), folder / "model.json")
    report.write(folder / "report.html", release_report(model, SCHEMA, state, plan.verdict))

    on_step("scoring on held-out rows")
    X_test, y_test = SCHEMA.encode(folder / "test.csv")
    return DemoResult(
        folder=folder,
        rows=len(y),
        guarantee=model.privacy_,
        plan=plan,
        private_score=_r2(y_test, model.predict(X_test)),
        nonprivate_score=_r2(y_test, LinearRegression().fit(X, y).predict(X_test)),
        constant_score=_r2(y_test, np.full(len(y_test), y.mean())),
        coefficients=coefficients(model, SCHEMA),
        ledger=state,
    )


STEPS = 6  # calls of on_step


def _tables() -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """The public table as (train, test) columns of a CSV file."""
    try:
        from causaldata import cps_mixtape
    except ImportError:
        raise InvalidInput('the demo needs its table: pip install "curvedp[demo]"') from None
    frame = cps_mixtape.load_pandas().data
    columns: dict[str, list[Any]] = {
        "age": frame["age"].tolist(),
        "educ": frame["educ"].tolist(),
        "black": frame["black"].tolist(),
        "hispanic": frame["hisp"].tolist(),
        "married": frame["marr"].tolist(),
        **{name: [round(value, 2) for value in frame[name].tolist()] for name in ("re74", "re75", "re78")},
    }
    order = generator(SPLIT_SEED).permutation(len(frame))
    held_out = int(HELD_OUT * len(order))

    def rows(index: Any) -> dict[str, list[Any]]:
        return {name: [cells[i] for i in index] for name, cells in columns.items()}

    return rows(order[held_out:]), rows(order[:held_out])


def _clear(folder: Path) -> None:
    """An empty place for the demo's files; whatever else is in the folder stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def _r2(y: FloatArray, predicted: FloatArray) -> float:
    return float(1.0 - np.sum((y - predicted) ** 2) / np.sum((y - y.mean()) ** 2))
