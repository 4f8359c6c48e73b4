"""`private_fit`: any convex problem, released through the one door."""

from __future__ import annotations

from curvedp.arrays import ColumnLike, TableLike
from curvedp.budget import Budget
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import shielded
from curvedp.mechanisms.base import Estimate, Mechanism, make_plan
from curvedp.mechanisms.recentered import Recentered
from curvedp.problem import Problem
from curvedp.release import Account, Released, execute
from curvedp.rows import make_rows
from curvedp.rows.base import Rows
from curvedp.schema.plain import plain_matrix, plain_targets


def read_rows(
    X: TableLike, y: ColumnLike, domain: Domain, columns: ColumnMap | None = None, unit: ColumnLike = None
) -> Rows:
    """The records of a table of numbers in `domain`, or X itself where it is `Rows`."""
    if isinstance(X, Rows):
        return X
    return shielded(lambda: make_rows(plain_matrix(X), plain_targets(y), domain, columns, unit), unreadable)


def unreadable(kind: str) -> str:
    return f"X and y cannot be read ({kind}): pass a table of numbers, and a target for each of its rows"


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
