"""`private_fit`: any convex problem, released through the one door."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from curvedp.arrays import ColumnLike, TableLike
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import make_rows
from curvedp.data.rows.base import Rows
from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import Estimate, Mechanism, make_plan
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.statistics import WEIGHT, GramPlan
from curvedp.postprocess.noise import ReleasedMoments
from curvedp.privacy.budget import Budget
from curvedp.privacy.guarantee import Guarantee
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.release.door import Account, Released, execute


def read_rows(
    X: TableLike, y: ColumnLike, domain: Domain, columns: ColumnMap | None = None, unit: ColumnLike = None
) -> Rows:
    """The records of a table of numbers in `domain`, or X itself where it is `Rows`."""
    if isinstance(X, Rows):
        return X
    if isinstance(X, list | tuple):
        raise InvalidInput("a list of rows does not say how many columns there are: pass an array or a table")
    return make_rows(X, y, domain, columns, unit)


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
    >>> from curvedp.problems.losses import Huber
    >>> from curvedp.mechanisms import QOP
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, (5000, 2))
    >>> released = private_fit(Problem(Huber(0.5)), X, X[:, 0], budget=Budget(1.0, 1e-6), mechanism=QOP())
    >>> released.value.theta.shape
    (2, 1)
    """
    rows = read_rows(X, y, problem.domain, columns, unit)
    plan = make_plan(mechanism or Recentered(), problem, rows.layout.d, budget)
    return execute(plan, rows, ledger=ledger, label=plan.guarantee.mechanism, random_state=random_state)


@dataclass(frozen=True, eq=False)
class PrivateStatistics(ReleasedMoments):
    """A private Gram matrix of the columns and the targets; fits, paths and errors of it cost nothing more.

    Made by `PrivateStatistics.release`. `solve` fits with any regularizer and constraint, `path` a whole
    regularisation path, for every target; `residual_variance` and `standard_errors` account for the noise.
    In a domain with a unit every person counts once: of k rows each adds the k-th part of its squares (U-2),
    so that a fit is least squares with weights 1/k, and standard errors are on the safe side.

    Parameters
    ----------
    xx, xy : arrays of shape (d, d) and (d, T)
        Noisy Σ x xᵀ and Σ x yᵀ in model units.
    xx_scale, xy_scale : float
        The standard deviation of the noise on a diagonal entry of xx, and on an entry of xy.
    yy : array of shape (T, T)
        Noisy Σ y yᵀ.
    count : float or None
        The number of records, or persons, where it is public or was released.
    privacy : Guarantee
        What the release promises.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import Budget
    >>> from curvedp.release.fit import PrivateStatistics
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, (20_000, 2))
    >>> statistics = PrivateStatistics.release(X, X[:, 0], budget=Budget(1.0, 1e-6))
    >>> statistics.solve().shape
    (2,)
    """

    privacy: Guarantee = field(kw_only=True)

    @classmethod
    def release(
        cls,
        X: TableLike,
        y: ColumnLike,
        *,
        unit: ColumnLike = None,
        budget: Budget,
        domain: Domain | None = None,
        columns: ColumnMap | None = None,
        weight: float = WEIGHT,
        ledger: Account | None = None,
        random_state: int | None = None,
    ) -> PrivateStatistics:
        """Release Σ z zᵀ of z = (x, w·y), once, through the one door (S-2).

        Parameters
        ----------
        X : array, data frame, sparse matrix, memory map or Dask collection
            The records, n by p.
        y : array of shape (n,) or (n, T)
            One target or several, every |y| ≤ Y.
        unit : column of length n, optional
            As in `private_fit`, where `domain` declares a unit; each person counts once.
        budget, ledger, random_state : Budget, Ledger and int
            As in `private_fit`.
        domain : Domain, optional
            B, Y and the adjacency; by default the unit ball, or what `columns` implies.
        columns : ColumnMap, optional
            Maps X by public bounds first. With an intercept the number of records is released, too.
        weight : float
            w·Y/B: a larger one favours Xᵀy over XᵀX.

        Returns
        -------
        statistics : PrivateStatistics
            The released moments and their guarantee.
        """
        if domain is None:
            domain = Domain() if columns is None else Domain(x_norm=columns.norm_bound)
        rows = read_rows(X, y, domain, columns, unit)
        intercept = 0.0 if columns is None else columns.intercept
        plan = GramPlan.calibrated(rows.layout, budget, weight, intercept)
        released = execute(plan, rows, ledger=ledger, label=cls.__name__, random_state=random_state)
        moments = {part.name: getattr(released.value, part.name) for part in fields(released.value)}
        return cls(**moments, privacy=released.privacy)
