"""The main job on real data, end to end: earnings of 15,992 people, one row each.

The table (`cps_mixtape` of the causaldata package) is public; the demo treats it as if it were not. Bounds
come from common knowledge: ages of people at work, years of schooling, earnings up to $30,000 (of 1978).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.filing.report import Coefficient
from curvedp.forecast import CURVE, Forecast, forecast, widths
from curvedp.forecast.page import plan_page
from curvedp.ledger import Ledger, LedgerState
from curvedp.modelfile import Release
from curvedp.outputs import claimed, ledger_inputs
from curvedp.privacy.guarantee import Guarantee
from curvedp.randomness import generator
from curvedp.schema import Numeric, Schema
from curvedp.schema.delimited import write_csv_safely
from curvedp.schema.statements import Stated
from curvedp.workflow import build, coefficients, release_report

DECLARED_ROWS = 12_000  # a round number that the operator declares
SCHEMA = Schema(
    columns=(
        Numeric("age", 16, 65, source="ages of people at work"),
        Numeric("educ", 0, 20, source="years of schooling that there are"),
        *(Numeric(name, 0, 1, source="no or yes") for name in ("black", "hispanic", "married")),
        *(
            Numeric(name, 0, 30_000, source="common knowledge, dollars of 1978")
            for name in ("re74", "re75", "re78")
        ),
    ),
    target="re78",
    record="one row is one person",
    release=Stated(
        table="cps_mixtape of the package causaldata: a public table, treated as if it were not",
        purpose="the demo of curvedp",
        audience="everybody",
        rows=DECLARED_ROWS,
    ),
)
HELD_OUT = 0.2
SPLIT_SEED = 1978  # which public rows are held out; no privacy hangs on it
TOTAL = Budget(3.0, 1e-5)
LEDGER = "budget.db"
FILES = ("schema.toml", "train.csv", "test.csv", "plan.html", "model.json", "report.html")
STEPS = 6  # calls of on_step


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What the demo shows. Scores are R² on held-out rows of the public table."""

    folder: Path
    rows: int
    guarantee: Guarantee
    forecast: Forecast
    private_score: float
    nonprivate_score: float
    constant_score: float
    coefficients: list[Coefficient]
    ledger: LedgerState


def run(
    folder: Path,
    budget: Budget,
    on_step: Callable[[str], None] = lambda name: None,
    *,
    force: bool = False,
    words: Callable[[str], str] = str,
) -> DemoResult:
    """Forecast, fit, score, and write the files into `folder`; an earlier demo there needs `force`.

    `words` says what a page says of refusals.
    """
    on_step("reading the table")
    train, test = _tables()
    _make_room(folder, force)
    places = {name: folder / name for name in FILES}
    with claimed(places, inputs=ledger_inputs(folder / LEDGER), force=force) as files:
        files["schema.toml"].write(SCHEMA.to_toml())
        files["train.csv"].write(_csv(train))
        files["test.csv"].write(_csv(test))

        on_step("planning, without the data")
        epsilons = [budget.epsilon * factor for factor in CURVE]
        expected = forecast(DECLARED_ROWS, SCHEMA, budget, SCHEMA.adjacency, epsilons=epsilons)
        wide = widths(DECLARED_ROWS, SCHEMA, budget, SCHEMA.adjacency)
        files["plan.html"].write(plan_page([wide], [expected.told(words)]))

        on_step("opening a ledger")
        for path in ledger_inputs(folder / LEDGER).values():
            path.unlink(missing_ok=True)  # of an earlier demo, on the same public table
        ledger = Ledger.create(
            folder / LEDGER,
            epsilon=max(TOTAL.epsilon, budget.epsilon),
            delta=max(TOTAL.delta, budget.delta),
            adjacency=SCHEMA.adjacency,
        )

        on_step("fitting privately")
        model = build(SCHEMA, budget).set_params(ledger=folder / LEDGER).fit(train)

        on_step("writing the model and the report")
        state = ledger.state()
        files["model.json"].write(Release.of(model).to_json())
        files["report.html"].write(release_report(model, state, expected.verdict))

        on_step("scoring on held-out rows")
        X, y = _numbers(train)
        X_test, y_test = _numbers(test)
        return DemoResult(
            folder=folder,
            rows=len(y),
            guarantee=model.privacy_,
            forecast=expected,
            private_score=r2_score(y_test, model.predict(test)),
            nonprivate_score=r2_score(y_test, LinearRegression().fit(X, y).predict(X_test)),
            constant_score=r2_score(y_test, np.full(len(y_test), y.mean())),
            coefficients=coefficients(model),
            ledger=state,
        )


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


def _make_room(folder: Path, force: bool) -> None:
    """Create the folder; refuse one whose ledger is not a demo's, or is one and may not be replaced."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"--folder {folder} cannot be made ({error.strerror}): choose another") from None
    if not (folder / LEDGER).exists():
        return
    declared = folder / "schema.toml"
    if not (declared.is_file() and declared.read_text(encoding="utf-8") == SCHEMA.to_toml()):
        raise InvalidInput(f"{folder / LEDGER} is not a demo's budget: choose another --folder")
    if not force:
        raise InvalidInput(f"{folder} holds a demo already: pass another --folder, or --force to replace it")


def _csv(columns: dict[str, list[Any]]) -> str:
    text = io.StringIO()
    names = [column.name for column in SCHEMA.columns]
    write_csv_safely(text, names, zip(*(columns[name] for name in names), strict=True))
    return text.getvalue()


def _numbers(columns: dict[str, list[Any]]) -> tuple[FloatArray, FloatArray]:
    """(X, y) of the public table, the target within its declared range as in the fit."""
    X = np.column_stack([columns[column.name] for column in SCHEMA.features]).astype(np.float64)
    low, high = SCHEMA.bounds
    return np.clip(X, low, high), np.clip(np.array(columns["re78"], dtype=np.float64), 0, 30_000)
