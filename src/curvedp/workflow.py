"""From a table and its schema to a private model: every public check first, then one fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from curvedp import estimators
from curvedp.errors import InvalidInput
from curvedp.ledger import LedgerState
from curvedp.planning import Task, Verdict, assess
from curvedp.report import Coefficient, release_page
from curvedp.schema import Numeric, Schema

CONNECT_SECONDS = 10
REGRESSORS: Mapping[str, type[Any]] = {
    "linear": estimators.PrivateLinearRegression,
    "ridge": estimators.PrivateRidge,
    "lasso": estimators.PrivateLasso,
    "elastic_net": estimators.PrivateElasticNet,
    "huber": estimators.PrivateHuberRegressor,
}
CLASSIFIERS: Mapping[str, type[Any]] = {
    "logistic": estimators.PrivateLogisticRegression,
    "svc": estimators.PrivateLinearSVC,
}
SAID: Mapping[str, str] = {
    "PrivateLinearRegression": "Linear regression",
    "PrivateRidge": "Ridge regression",
    "PrivateLasso": "Lasso regression",
    "PrivateElasticNet": "Elastic-net regression",
    "PrivateHuberRegressor": "Huber regression",
    "PrivateLogisticRegression": "Logistic regression",
    "PrivateLinearSVC": "Squared-hinge classification",
}


@dataclass(frozen=True)
class Settings:
    """The public choices of a fit, beside the schema."""

    epsilon: float
    delta: float
    model: str = "auto"
    mechanism: str = "auto"
    accounting: Literal["auto", "paper", "spectral", "directional"] = "auto"
    alpha: float | None = None
    radius: float = 1.0
    x_norm: float | None = None
    ledger: str | None = None
    random_state: int | None = None


def task_of(schema: Schema) -> Task:
    """A numeric target is a regression, a categorical one a classification."""
    return "regression" if isinstance(schema.target_column, Numeric) else "classification"


def build(schema: Schema, settings: Settings) -> Any:
    """The unfitted estimator that the schema and the settings describe."""
    target = schema.target_column
    known = REGRESSORS if isinstance(target, Numeric) else CLASSIFIERS
    name = next(iter(known)) if settings.model == "auto" else settings.model
    if name not in known:
        kind = "a number" if isinstance(target, Numeric) else "a category"
        raise InvalidInput(f"the target {target.name!r} is {kind}: pass a model among {', '.join(known)}")
    options: dict[str, Any] = {
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "bounds": schema.bounds,
        "one_hot": schema.one_hot,
        "adjacency": schema.adjacency,
        "mechanism": settings.mechanism,
        "accounting": settings.accounting,
        "radius": settings.radius,
        "x_norm": settings.x_norm,
        "ledger": settings.ledger,
        "random_state": settings.random_state,
    }
    if isinstance(target, Numeric):
        options["target_bounds"] = (target.low, target.high)
    else:
        options["classes"] = list(target.levels)
    if settings.alpha is not None:
        if name == "linear":
            raise InvalidInput('model "linear" has no penalty: drop alpha, or pass model "ridge" or "lasso"')
        options["alpha"] = settings.alpha
    return known[name](**options)


def read(
    data: Path, schema: Schema, delimiter: str = ",", engine: Literal["memory", "dask"] = "memory"
) -> tuple[Any, Any]:
    """(X, y) of a table on disk, as estimators take them: the one place that knows how tables are stored."""
    if engine == "dask":
        try:
            from curvedp.rows.parquet import read_parquet
        except ModuleNotFoundError:
            raise InvalidInput('this engine needs Dask and pyarrow: pip install "curvedp[dask]"') from None
        return read_parquet(data, schema)
    if data.is_dir() or data.suffix == ".parquet":
        raise InvalidInput(f"{data} is no CSV file: choose the engine dask for Parquet files and folders")
    return schema.encode(data, delimiter=delimiter)


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
            client.run(import_module, "curvedp.rows.partitions")
        except ModuleNotFoundError:
            raise InvalidInput(
                f"the workers of {scheduler} have no curvedp: install it on each of them"
            ) from None
        yield


def coefficients(model: Any, schema: Schema) -> list[Coefficient]:
    """The released numbers by name, the intercept last; classes one after another where there are several."""
    low, high = schema.bounds
    names = schema.feature_names
    table = np.reshape(model.coef_, (-1, len(names)))
    offsets = np.reshape(model.intercept_, -1)
    spread = None if model.coef_std_ is None else np.reshape(model.coef_std_, table.shape)
    outputs = [str(label) for label in model.classes_] if len(table) > 1 else [""]
    found = []
    for k, output in enumerate(outputs):
        for j, name in enumerate(names):
            deviation = None if spread is None else float(spread[k, j])
            found.append(Coefficient(name, float(table[k, j]), deviation, float(high[j] - low[j]), output))
        found.append(Coefficient("(intercept)", float(offsets[k]), output=output))
    return found


def release_report(
    model: Any, schema: Schema, ledger: LedgerState | None = None, judgement: Verdict | None = None
) -> str:
    """The HTML page of a fitted model."""
    names = ", ".join(column.name for column in schema.features)
    subtitle = f"{SAID[type(model).__name__]} on {names}; {schema.unit}."
    title = f"A private model of {schema.target}"
    return release_page(title, subtitle, model.privacy_, coefficients(model, schema), ledger, judgement)


def verdict(schema: Schema, settings: Settings, rows: int) -> Verdict:
    """Whether the noise dominates a declared number of rows under these settings."""
    return assess(
        rows,
        len(schema.feature_names),
        settings.epsilon,
        settings.delta,
        schema.adjacency,
        task_of(schema),
        mechanism=settings.mechanism,
        accounting=settings.accounting,
    )
