"""From a table and its schema to a private model: every public check first, then one fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from curvedp import catalogue
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.estimators.summary import outcome
from curvedp.filing.cautions import named, record_warnings
from curvedp.filing.declarations import declared_columns
from curvedp.filing.report import Caution, Coefficient, release_page
from curvedp.forecast import Verdict, assess
from curvedp.ledger import Ledger, LedgerState
from curvedp.schema import ClassTarget, EncodedTable, Ignored, Schema
from curvedp.schema.stored import is_parquet, parquet_tables
from curvedp.schema.units import NO_DASK

CONNECT_SECONDS = 10


@dataclass(frozen=True)
class Settings:
    """The public choices of a fit, beside the schema."""

    budget: Budget
    model: str = "auto"
    mechanism: str = "auto"
    accounting: str | None = None
    alpha: float | None = None
    radius: float | None = None
    x_norm: float | None = None
    max_rate: float | None = None
    ledger: Ledger | Path | None = None
    random_state: int | None = None
    inference: bool = True


def with_rows(schema: Schema, rows: int | None) -> Schema:
    """The schema of a release that declares so many rows; None: as it was."""
    return schema if rows is None else replace(schema, release=replace(schema.release, rows=rows))


def task_of(schema: Schema) -> catalogue.Task:
    """A numeric target is a regression, a categorical one a classification."""
    return "classification" if isinstance(schema.declared_target, ClassTarget) else "regression"


def build(schema: Schema, settings: Settings) -> Any:
    """The unfitted estimator that the schema and the settings describe."""
    task = task_of(schema)
    names = [name for name, entry in catalogue.ESTIMATORS.items() if entry.task == task]
    name = names[0] if settings.model == "auto" else str(settings.model)
    if name not in names:
        kind = "a number" if task == "regression" else "a category"
        raise InvalidInput(f"the target {schema.target!r} is {kind}: pass a model among {', '.join(names)}")
    options: dict[str, Any] = {}
    if settings.alpha is not None:
        if name == "linear":
            raise InvalidInput('model "linear" has no penalty: drop alpha, or pass model "ridge" or "lasso"')
        options["alpha"] = settings.alpha
    if settings.max_rate is not None:
        if name != "poisson":
            raise InvalidInput(f'model {name!r} has no largest rate: drop max_rate, or pass model "poisson"')
        options["max_rate"] = settings.max_rate
    made: Any = catalogue.ESTIMATORS[name].load()
    if "inference" in made._get_param_names():
        options["inference"] = settings.inference
    return made(
        epsilon=settings.budget.epsilon,
        delta=settings.budget.delta,
        schema=schema,
        mechanism=catalogue.mechanism(
            settings.mechanism, accounting=settings.accounting, radius=settings.radius
        ),
        x_norm=settings.x_norm,
        ledger=settings.ledger,
        random_state=settings.random_state,
        **options,
    )


def read(
    data: Path, schema: Schema, delimiter: str | None = None, engine: Literal["memory", "dask"] = "memory"
) -> EncodedTable:
    """A table on disk as a fit takes it: the one place that knows how tables are stored."""
    if engine == "dask":
        if schema.unit is not None:
            raise InvalidInput(NO_DASK)
        try:
            from curvedp.rows.parquet import read_parquet
        except ModuleNotFoundError:
            raise InvalidInput('this engine needs Dask and pyarrow: pip install "curvedp[dask]"') from None
        return read_parquet(data, schema)
    if is_parquet(data):
        read = {column.name for column in schema.columns if not isinstance(column, Ignored)}
        return schema.encode_tables(parquet_tables(data, read | {schema.unit or ""}))
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


def learned(model: Any) -> str:
    """What positive coefficients of a fitted model speak for."""
    return outcome(model.schema_.target, getattr(model, "classes_", ()))


def coefficients(model: Any) -> list[Coefficient]:
    """The released numbers by name, the intercept last; classes one after another where there are several."""
    ends = None if model.inference_ is None else model.conf_int().tolist()
    low, high = model.schema_.bounds
    names = model.schema_.feature_names
    table = np.reshape(model.coef_, (-1, len(names)))
    offsets = np.reshape(model.intercept_, -1)
    labels = getattr(model, "classes_", range(1, len(table) + 1))
    outputs = [str(label) for label in labels] if len(table) > 1 else [""]
    noise = None if model.coef_noise_ is None else np.reshape(model.coef_noise_, table.shape)
    found = []
    for k, output in enumerate(outputs):
        for j, name in enumerate(names):
            interval = None if ends is None else (ends[j][0], ends[j][1])
            own = None if noise is None else float(noise[k, j])
            width = float(high[j] - low[j])
            found.append(Coefficient(name, float(table[k, j]), width, output, interval, own, k))
        found.append(Coefficient("(intercept)", float(offsets[k]), output=output, place=k))
    return found


def release_warnings(model: Any) -> tuple[Caution, ...]:
    """What a reader of a fitted model must know before relying on it; needs no data."""
    record, stated = model.record_, model.schema_.release
    columns = declared_columns(model)
    found = record_warnings(
        model.privacy_, coefficients(model), columns, model.target_, record, rows=stated.rows
    )
    if model.trust_ == 1.0:
        return found
    words = (
        "Released numbers say that noise outweighs what this model explains: it has "
        f"{100 * model.trust_:.0f} % of the estimated slopes, the rest is the constant answer."
    )
    return (Caution("amber", words), *found)


def release_report(
    model: Any,
    ledger: LedgerState | None = None,
    judgement: Verdict | None = None,
    cautions: Sequence[Caution] = (),
) -> str:
    """The HTML page of a fitted model, or of one that a file held; with cautions of one's own, if any."""
    schema = model.schema_
    names = named([block.name for block in schema.encoding.blocks], 12)
    words = catalogue.estimator_of(type(model).__name__).words
    title = f"A private model of {learned(model)}" if schema.has_target else "A private model"
    beside = "".join(f", {role} {name}" for role, name in schema.roles.items())
    return release_page(
        title,
        f"{words} on {names}{beside}; {schema.protects}.",
        model.privacy_,
        coefficients(model),
        ledger=ledger,
        verdict=judgement,
        columns=declared_columns(model),
        record=model.record_,
        cautions=[*cautions, *release_warnings(model)],
        protects=schema.protects,
    )


def verdict(schema: Schema, settings: Settings, rows: int) -> Verdict:
    """Whether the noise dominates a declared number of rows under these settings."""
    if settings.model == "poisson":
        raise InvalidInput("the noise is judged for numbers and classes, not for counts: leave --rows out")
    found = assess(
        rows,
        schema,
        settings.budget,
        schema.adjacency,
        mechanism=settings.mechanism,
        accounting=settings.accounting or "auto",
    )
    caveats = (
        (schema.unit, f"Rows are persons here, one row of each {schema.unit!r}: declare their number."),
        (
            schema.weight,
            "Every record has the largest weight there: smaller weights leave less beside the noise.",
        ),
    )
    return replace(found, caveats=tuple(words for applies, words in caveats if applies))
