"""From a table and its schema to a private model and its report; the demo does it on real data."""

from __future__ import annotations

import io
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.panel import Panel
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from curvedp import Budget, Ledger, Numeric, Schema, load, score
from curvedp.analyses.estimators import summary
from curvedp.arrays import FloatArray
from curvedp.cli.console import out, plain, say, show_table
from curvedp.cli.plans import LARGEST_WEIGHT
from curvedp.data import ClassTarget, Ignored
from curvedp.data.delimited import write_csv_safely
from curvedp.data.files import Stated
from curvedp.data.targets import linear_odds
from curvedp.errors import InvalidInput
from curvedp.lazy import studies
from curvedp.planning import Verdict, plan_page, widths
from curvedp.randomness import generator
from curvedp.release import catalogue
from curvedp.release.ledger.storage import LedgerState
from curvedp.release.outputs import claimed, ledger_inputs, write_file
from curvedp.release.record import listed
from curvedp.reports import report as reporting
from curvedp.reports.report import Caution, Coefficient

CONNECT_SECONDS = 10


def task_of(schema: Schema) -> catalogue.Task:
    """A numeric target is a regression, a categorical one a classification."""
    return "classification" if isinstance(schema.declared_target, ClassTarget) else "regression"


def build(schema: Schema, budget: Budget, model: str = "auto", **options: Any) -> Any:
    """The unfitted estimator called `model`, with `options` of it and of its mechanism that are not None."""
    task = task_of(schema)
    names = [name for name, entry in catalogue.ESTIMATORS.items() if entry.task == task]
    name = names[0] if model == "auto" else str(model)
    if name not in names:
        kind = "a number" if task == "regression" else "a category"
        raise InvalidInput(f"the target {schema.target!r} is {kind}: pass a model among {', '.join(names)}")
    made = catalogue.ESTIMATORS[name].load()
    known = made._get_param_names()
    given = {key: value for key, value in options.items() if value is not None}
    chosen = {key: given.pop(key, None) for key in ("accounting", "radius")}
    for key in given.keys() - set(known):
        if given.pop(key) is not False:  # what is switched off may be missing
            able = [n for n in names if key in catalogue.ESTIMATORS[n].load()._get_param_names()]
            others = f", or choose the model {' or '.join(able)}" if able else ""
            raise InvalidInput(f"the model {name} has no `{key}`: leave it out{others}")
    given["mechanism"] = catalogue.mechanism(given.get("mechanism", "auto"), **chosen)
    return made(epsilon=budget.epsilon, delta=budget.delta, schema=schema, **given)


@contextmanager
def cluster(scheduler: str | None) -> Iterator[None]:
    """A context in which Dask computes on the cluster of that scheduler; None: on threads of this process."""
    if scheduler is None:
        yield
        return
    try:
        from distributed import Client

        client = Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except ModuleNotFoundError:
        raise InvalidInput('a cluster needs Dask: pip install "curvedp[dask]"') from None
    except (OSError, ValueError):
        raise InvalidInput(f"no Dask scheduler answers at {scheduler}: pass one as tcp://host:8786") from None
    with client, client.as_current():
        try:
            client.run(import_module, "curvedp.data.rows.dask")
        except ModuleNotFoundError:
            raise InvalidInput(
                f"the workers of {scheduler} have no curvedp: install it on each of them"
            ) from None
        yield


def learned(model: Any) -> str:
    """What positive coefficients of a fitted model speak for."""
    found = summary.outcome(model.release_)
    return f"{found}, {summary.WITHIN}" if model.columns_.absorbed else found


def coefficients(model: Any) -> list[Coefficient]:
    """The released numbers by name, the intercept last; classes one after another where there are several."""
    release, told = model.release_, model.summary()
    rows, crowded = told.rows, told.crowded
    low, high = model.schema_.bounds
    widths = dict(zip(model.schema_.feature_names, (high - low).tolist(), strict=True))
    T, names = summary.stated_against(release)
    E, outputs, _ = summary.outputs_of(release)
    table = E @ np.column_stack([release.coefficients, release.intercept]) @ T.T
    found = []
    for k, output in enumerate(outputs):
        own = rows[k * (len(rows) // len(outputs)) :]
        for row, name, value in zip(own, names, table[k].tolist(), strict=False):
            if name == summary.INTERCEPT:
                break
            interval = None if model.inference_ is None else (row.low, row.high)
            noise = None if model.coef_noise_ is None else row.noise
            if interval is not None and noise is not None:
                noise = model.trust_ * noise if row.resolved else math.nan
            width = widths.get(name, 1.0)  # of a level against its reference
            unseen = not (crowded or math.isfinite(row.enough))
            found.append(Coefficient(name, value, width, output, interval, noise, k, unseen))
        if model.columns_.absorbed:
            continue
        constant = table[k, -1] if names[-1] == summary.INTERCEPT else (E @ release.intercept)[k]
        found.append(Coefficient(summary.INTERCEPT, float(constant), output=output, place=k))
    return found


def csv_text(columns: Mapping[str, Sequence[Any]]) -> str:
    """The columns as a CSV file; empty where a number is NaN."""
    text = io.StringIO()
    rows = ([cell if cell == cell else "" for cell in row] for row in zip(*columns.values(), strict=True))
    write_csv_safely(text, list(columns), rows)
    return text.getvalue()


def release_warnings(model: Any) -> tuple[Caution, ...]:
    """What a reader of a fitted model must know before relying on it; needs no data."""
    schema, columns = model.schema_, reporting.declared_columns(model)
    found = reporting.record_warnings(
        model.privacy_, coefficients(model), columns, model.target_, model.record_, schema.unit_advice
    )
    beside = partial(reporting.amber, printed=model.inference_ is None)  # else the table says it
    odds = [reporting.amber(words, printed=False) for words in linear_odds(model.target_, schema.target)]
    doubts = [beside(words) for words in model.summary().doubts]
    shrunk = (
        "Released numbers say that noise outweighs what this model explains: it has "
        f"{100 * model.trust_:.0f} % of the estimated slopes, the rest is the constant answer."
    )
    return (*([beside(shrunk)] if model.trust_ != 1.0 else ()), *found, *odds, *doubts)


def release_report(
    model: Any,
    ledger: LedgerState | None = None,
    judgement: Verdict | None = None,
    cautions: Sequence[Caution] = (),
) -> str:
    """The HTML page of a fitted model, or of one that a file held; with cautions of one's own, if any."""
    schema, found = model.schema_, coefficients(model)
    stated = len(model.release_.intercept) == 1 or bool(summary.outputs_of(model.release_)[2])
    names = listed([block.name for block in schema.encoding.blocks], 12)
    title = f"A private model of {learned(model)}" if schema.has_target else "A private model"
    beside = "".join(f", {role} {name}" for role, name in schema.roles.items())
    return reporting.release_page(
        title,
        f"{model.release_.entry.words} on {names}{beside}; {schema.protects}.",
        model.privacy_,
        found,
        ratio=summary.ratio_of(type(model), model.target_) if stated else "",
        ledger=ledger,
        verdict=judgement,
        columns=reporting.declared_columns(model),
        record=model.record_,
        cautions=[*cautions, *release_warnings(model)],
        protects=schema.protects,
        ignored=[column.name for column in schema.columns if isinstance(column, Ignored)],
        file=csv_text(model.summary().broom) if len(found) > reporting.LISTED else "",
    )


def report(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> str:
    """The record of a release as one self-contained HTML page: promise, warnings, budget, limits, numbers.

    Free: nothing is read but the model, and the state of a ledger.

    Parameters
    ----------
    model : fitted estimator, or path of a model file
        What was released.
    path : path, optional
        A file to write the page to; one that exists is replaced.
    ledger : Ledger or path, optional
        The budget that was charged: what is left of it is shown.

    Returns
    -------
    html : str
        The page.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateRidge, report
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])
    >>> "No ledger was charged" in report(model)
    True
    """
    fitted = load(model) if isinstance(model, str | os.PathLike) else model
    book = Ledger(ledger) if isinstance(ledger, str | os.PathLike) else ledger
    known = [] if book is None else reporting.unchecked(book.history())
    page = release_report(fitted, None if book is None else book.state(), cautions=known)
    if path is not None:
        write_file(path, page, ledger=None if book is None else book.path)
    return page


def verdict(schema: Schema, budget: Budget, rows: int, model: str = "auto", **chosen: str) -> Verdict | None:
    """Whether the noise of the `chosen` mechanism dominates so many rows; None without curvedp-studies."""
    if model == "poisson":
        raise InvalidInput("the noise is judged for numbers and classes, not for counts: leave `rows` out")
    if find_spec("curvedp_studies") is None:
        return None
    found: Verdict = studies("forecasts", "").assess(rows, schema, budget, schema.adjacency, **chosen)
    persons = f"Rows are persons here, one row of each {schema.unit!r}: declare their number."
    caveats = {persons: schema.unit, LARGEST_WEIGHT: schema.weight}
    return replace(found, caveats=tuple(words for words, column in caveats.items() if column is not None))


# The main job on real data, end to end: earnings of 15,992 people, one row each.
#
# The table (`cps_mixtape` of the causaldata package) is public; the demo treats it as if it were not. Bounds
# come from common knowledge: ages of people at work, years of schooling, earnings up to $30,000 (of 1978).

DECLARED_ROWS = 12_000  # a round number that the operator declares
EARNINGS = ("re74", "re75", "re78")
SCHEMA = Schema(
    columns=(
        Numeric("age", 16, 65, source="ages of people at work"),
        Numeric("educ", 0, 20, source="years of schooling that there are"),
        *(Numeric(name, 0, 1, source="no or yes") for name in ("black", "hispanic", "married")),
        *(Numeric(name, 0, 30_000, source="common knowledge, dollars of 1978") for name in EARNINGS),
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
SCORE = Budget(0.5, 1e-6)  # what the private score costs


def run(
    folder: Path, budget: Budget, on_step: Callable[..., None], force: bool
) -> tuple[dict[str, Any], Callable[[], None]]:
    """Plan, fit, score, and write the files into `folder`; an earlier demo there needs `force`.

    What came of it, for machines, and what tells it to people.
    """
    on_step(description="reading the table")
    train, test = _tables()
    _make_room(folder, force)
    places = {name: folder / name for name in FILES}
    with claimed(places, inputs=ledger_inputs(folder / LEDGER), force=force) as files:
        files["schema.toml"].write(SCHEMA.to_toml())
        files["train.csv"].write(csv_text(train))
        files["test.csv"].write(csv_text(test))

        on_step(description="planning, without the data")
        wide = widths(DECLARED_ROWS, SCHEMA, budget, SCHEMA.adjacency)
        files["plan.html"].write(plan_page([wide]))

        on_step(description="opening a ledger")
        for path in ledger_inputs(folder / LEDGER).values():
            path.unlink(missing_ok=True)  # of an earlier demo, on the same public table
        ledger = Ledger.create(
            folder / LEDGER,
            epsilon=max(TOTAL.epsilon, budget.epsilon + 2.0 * SCORE.epsilon),
            delta=max(TOTAL.delta, budget.delta + SCORE.delta),
            adjacency=SCHEMA.adjacency,
        )

        on_step(description="fitting privately")
        model = build(SCHEMA, budget).set_params(ledger=folder / LEDGER).fit(train)

        on_step(description="writing the model and the report")
        state = ledger.state()
        files["model.json"].write(model.release_.to_json())
        files["report.html"].write(release_report(model, state))

        on_step(description="scoring on held-out rows")
        X, y = _numbers(train)
        X_test, y_test = _numbers(test)
        scores = score(model, test, epsilon=SCORE.epsilon, delta=SCORE.delta, ledger=ledger)
        left, plain_fit = ledger.state(), _least_squares(X, y)
        g = model.privacy_
        document = {
            "folder": folder,
            "epsilon": g.epsilon,
            "delta": g.delta,
            "mechanism": g.mechanism,
            "private_r2": r2_score(y_test, model.predict(test)),
            "nonprivate_r2": r2_score(y_test, LinearRegression().fit(X, y).predict(X_test)),
            "constant_r2": r2_score(y_test, np.full(len(y_test), y.mean())),
            "remaining_epsilon": left.remaining_epsilon,
        }

    def tell() -> None:
        out.print(
            Panel.fit(
                f"Earnings in 1978 (re78) of {len(y):,} people, learned from age, schooling, race,\n"
                f"marriage and earlier earnings, and released under (ε, δ) = ({g.epsilon:g}, {g.delta:g}).",
                title="curvedp demo",
            )
        )
        say(f"Plan, before touching the data: {wide.sentence}")
        headings = ("column", "released", "interval", "without privacy", "its interval")
        rows = [
            (c.name, plain(c.value), _interval(c.interval), plain(value), _interval((low, high)))
            for c, (value, low, high) in zip(coefficients(model), plain_fit.tolist(), strict=True)
        ]
        show_table("Coefficients of re78, with 95 % intervals", headings, rows, right=headings[1:])
        fits = [
            ("without privacy", f"{document['nonprivate_r2']:z.3f}"),
            (f"private, {g.mechanism}", f"{document['private_r2']:z.3f}"),
            ("constant answer", f"{document['constant_r2']:z.3f}"),
        ]
        show_table("R² on held-out rows", ("model", "R²"), fits, right=("R²",))
        say(
            "These numbers use held-out rows of a public table; they are not covered by the guarantee. Where "
            f"rows are private, a score is released, too: R² = {scores['r2']}, for ε = 0.5.",
            style="dim",
        )
        say(f"Ledger: ε = {left.remaining_epsilon:.4g} of {left.epsilon:g} left, {left.left}.")
        here = shlex.quote(str(folder))
        say(
            f"\nOpen {here}/report.html (release) and {here}/plan.html (plan).\n"
            f"Next, the same by hand:\n"
            f"  curvedp fit {here}/train.csv --schema {here}/schema.toml --epsilon 0.5 --delta 1e-6 \\\n"
            f"      --ledger {here}/budget.db --out {here}/second.json\n"
            f"  curvedp predict {here}/second.json {here}/test.csv\n"
            f"  curvedp ledger show {here}/budget.db --history\n"
            "curvedp demo --force replaces these files and their ledger: that table is public. "
            "Never do so with a real one."
        )

    return document, tell


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"[{plain(ends[0])}, {plain(ends[1])}]"


def _least_squares(X: FloatArray, y: FloatArray) -> FloatArray:
    """Coefficients, the constant last, with the ends of 95 % intervals by robust errors: (k + 1, 3)."""
    Z = np.column_stack([X, np.ones(len(X))])
    inverse = np.linalg.inv(Z.T @ Z)
    found = inverse @ Z.T @ y
    scores = Z * (y - Z @ found)[:, None]
    reach = 1.96 * np.sqrt(np.diag(inverse @ scores.T @ scores @ inverse))
    return np.column_stack([found, found - reach, found + reach])


def _tables() -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """The public table as (train, test) columns of a CSV file."""
    try:
        from causaldata import cps_mixtape
    except ImportError:
        raise InvalidInput('the demo needs its table: pip install "curvedp[demo]"') from None
    frame = cps_mixtape.load_pandas().data.rename(columns={"hisp": "hispanic", "marr": "married"})
    columns = [column.name for column in SCHEMA.columns]
    frame = frame[columns].astype(dict.fromkeys(EARNINGS, float)).round(2)
    order = generator(SPLIT_SEED).permutation(len(frame))
    test, train = np.split(order, [int(HELD_OUT * len(order))])
    return frame.iloc[train].to_dict("list"), frame.iloc[test].to_dict("list")


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


def _numbers(columns: dict[str, list[Any]]) -> tuple[FloatArray, FloatArray]:
    """(X, y) of the public table, the target within its declared range as in the fit."""
    X = np.column_stack([columns[column.name] for column in SCHEMA.features]).astype(np.float64)
    low, high = SCHEMA.bounds
    return np.clip(X, low, high), np.clip(np.array(columns["re78"], dtype=np.float64), 0, 30_000)
