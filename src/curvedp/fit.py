"""`private_fit`: any convex problem, released through the one door."""

from __future__ import annotations

from functools import partial

from curvedp.arrays import ColumnLike, TableLike
from curvedp.budget import Budget
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import InvalidInput, shielded
from curvedp.mechanisms.base import Estimate, Mechanism, make_plan
from curvedp.mechanisms.recentered import Recentered
from curvedp.problem import Problem
from curvedp.release import Account, Released, execute
from curvedp.rows import is_dask, make_rows, rows_of
from curvedp.rows.base import Rows
from curvedp.rows.inputs import plain_records
from curvedp.schema.frames import declared
from curvedp.schema.source import source, unreadable


def read_rows(
    X: TableLike, y: ColumnLike, domain: Domain, columns: ColumnMap | None = None, unit: ColumnLike = None
) -> Rows:
    """The records of a table of numbers in `domain`, or X itself where it is `Rows`."""
    if isinstance(X, Rows):
        return X
    if is_dask(X) or (unit is None) != (domain.unit is None):
        return make_rows(X, y, domain, columns, unit)
    names, width = shielded(lambda: declared(X), unreadable)
    if width is None:
        raise InvalidInput("a list of rows does not say how many columns there are: pass an array or a table")
    named = names or tuple(f"x{j}" for j in range(width))
    found = source(X, named, beside={"y": y, "unit": unit})
    return rows_of(found, partial(plain_records, names=named), domain, columns)


def private_fit(
    problem: Problem,
    X: TableLike,
    y: ColumnLike = None,
    *,
    unit: ColumnLike = None,
    budget: Budget,
    mechanism: Mechanism | None = None,
    columns: ColumnMap | None = None,
    ledger: Account | None = None,
    random_state: int | None = None,
) -> Released[Estimate]:
    """θ minimising Σ ℓ(θ; z_i) + r(θ) over C, released under `budget`.

    Parameters
    ----------
    problem : Problem
        Loss, regularizer, constraint and the public domain of a record.
    X : array, data frame, sparse matrix, memory map, Dask collection, or Rows
        The records, n by p. A cell that is no number counts as 0, or as the middle of its bounds with
        `columns`. Rows of your own backend are taken as they are, and `y` is None.
    y : column of length n
        The targets. A record whose target is no number contributes nothing.
    unit : column of length n, optional
        Identifiers that say whose row it is, where `problem.domain` declares a unit: a person with all rows
        is protected then (U-1). A row without one contributes nothing.
    budget : Budget
        The (ε, δ) to spend.
    mechanism : Mechanism, optional
        How; by default `Recentered()`, the most accurate one.
    columns : ColumnMap, optional
        Maps user columns to model columns by public bounds; without it rows are clipped to ‖x‖ ≤ x_norm.
    ledger : Ledger, optional
        Charged before anything is computed from the data.
    random_state : int, optional
        A seed, for research: the release is then not private.

    Returns
    -------
    released : Released
        `.value.theta` of shape (d, K), and `.privacy`, the guarantee.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import Budget, Domain, Problem, private_fit
    >>> from curvedp.losses import Huber
    >>> from curvedp.mechanisms import QOP
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, (5000, 2))
    >>> released = private_fit(Problem(Huber(0.5)), X, X[:, 0], budget=Budget(1.0, 1e-6), mechanism=QOP())
    >>> released.value.theta.shape
    (2, 1)
    """
    rows = read_rows(X, y, problem.domain, columns, unit)
    plan = make_plan(mechanism or Recentered(), problem, rows.layout.d, budget)
    return execute(plan, rows, ledger=ledger, label=plan.guarantee.mechanism, random_state=random_state)
