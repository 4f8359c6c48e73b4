"""From a table and its schema to a private model: every public check first, then one fit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from curvedp import catalogue
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.estimators import load
from curvedp.estimators.summary import outcome
from curvedp.filing.cautions import named, record_warnings
from curvedp.filing.declarations import declared_columns
from curvedp.filing.report import Caution, Coefficient, release_page
from curvedp.forecast import Verdict, assess
from curvedp.forecast.intervals import check_rows
from curvedp.ledger import Ledger, LedgerState
from curvedp.outputs import write_file
from curvedp.schema import ClassTarget, EncodedTable, Schema
from curvedp.schema.source import Engine, Source

CONNECT_SECONDS = 10


def with_rows(schema: Schema, rows: int) -> Schema:
    """The schema of a release that declares so many rows."""
    check_rows(rows)
    return replace(schema, release=replace(schema.release, rows=rows))


def task_of(schema: Schema) -> catalogue.Task:
    """A numeric target is a regression, a categorical one a classification."""
    return "classification" if isinstance(schema.declared_target, ClassTarget) else "regression"


def build(
    schema: Schema,
    budget: Budget,
    model: str = "auto",
    *,
    mechanism: str = "auto",
    accounting: str | None = None,
    radius: float | None = None,
    **options: Any,
) -> Any:
    """The unfitted estimator called `model`; `options` are parameters of it, those that are None left out."""
    task = task_of(schema)
    names = [name for name, entry in catalogue.ESTIMATORS.items() if entry.task == task]
    name = names[0] if model == "auto" else str(model)
    if name not in names:
        kind = "a number" if task == "regression" else "a category"
        raise InvalidInput(f"the target {schema.target!r} is {kind}: pass a model among {', '.join(names)}")
    made = catalogue.ESTIMATORS[name].load()
    known = made._get_param_names()
    given = {key: value for key, value in options.items() if value is not None}
    for key in given.keys() - set(known):
        if given.pop(key) is not False:  # what is switched off may be missing
            able = [n for n in names if key in catalogue.ESTIMATORS[n].load()._get_param_names()]
            others = f", or choose the model {' or '.join(able)}" if able else ""
            raise InvalidInput(f"the model {name} has no `{key}`: leave it out{others}")
    return made(
        epsilon=budget.epsilon,
        delta=budget.delta,
        schema=schema,
        mechanism=catalogue.mechanism(mechanism, accounting=accounting, radius=radius),
        **given,
    )


def read(data: Path, schema: Schema, engine: Engine = "memory") -> EncodedTable | Source:
    """A table on disk as a fit takes it: read into memory, or left to the tasks of Dask."""
    if engine == "memory":
        return schema.encode(data)
    if schema.unit is not None:
        raise InvalidInput(
            "persons are gathered in memory, and this engine leaves rows where they are: choose the engine "
            "memory, or fit a Dask data frame"
        )
    return schema.source(data, engine=engine)


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
    page = release_report(fitted, None if book is None else book.state())
    if path is not None:
        write_file(path, page, ledger=None if book is None else book.path)
    return page


def verdict(
    schema: Schema,
    budget: Budget,
    rows: int,
    model: str = "auto",
    *,
    mechanism: str = "auto",
    accounting: str = "auto",
) -> Verdict:
    """Whether the noise dominates a declared number of rows."""
    if model == "poisson":
        raise InvalidInput("the noise is judged for numbers and classes, not for counts: leave `rows` out")
    found = assess(rows, schema, budget, schema.adjacency, mechanism=mechanism, accounting=accounting)
    caveats = []
    if schema.unit is not None:
        caveats.append(f"Rows are persons here, one row of each {schema.unit!r}: declare their number.")
    if schema.weight is not None:
        caveats.append(
            "Every record has the largest weight there: smaller weights leave less beside the noise."
        )
    return replace(found, caveats=tuple(caveats))
