"""`PrivateStatistics`: second moments released once, and everything that follows from them for free."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from curvedp.arrays import ColumnLike, TableLike
from curvedp.budget import Budget
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.fit import read_rows
from curvedp.mechanisms.statistics import WEIGHT, GramPlan, Noise
from curvedp.privacy.guarantee import Guarantee
from curvedp.release import Account, execute
from curvedp.released.moments import ReleasedMoments


@dataclass(frozen=True, eq=False)
class PrivateStatistics(ReleasedMoments):
    """A private Gram matrix of the columns and the targets; fits, paths and errors of it cost nothing more.

    Made by `PrivateStatistics.release`. `solve` fits with any regularizer and constraint, `path` a whole
    regularisation path, for every target; `residual_variance` and `standard_errors` account for the noise.

    Parameters
    ----------
    xx, xy : arrays of shape (d, d) and (d, T)
        Noisy Σ x xᵀ and Σ x yᵀ in model units.
    xx_scale, xy_scale : float
        The standard deviation of the noise on a diagonal entry of xx, and on an entry of xy.
    yy : array of shape (T, T)
        Noisy Σ y yᵀ.
    count : float or None
        The number of records where it is public or was released.
    privacy : Guarantee
        What the release promises.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import Budget
    >>> from curvedp.private_statistics import PrivateStatistics
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
        budget: Budget,
        domain: Domain | None = None,
        columns: ColumnMap | None = None,
        noise: Noise = "gaussian",
        weight: float = WEIGHT,
        ledger: Account | None = None,
        random_state: int | None = None,
    ) -> PrivateStatistics:
        """Release Σ z zᵀ of z = (x, w·y), once, through the one door (S-1), (S-2).

        Parameters
        ----------
        X : array, data frame, sparse matrix, memory map or Dask collection
            The records, n by p.
        y : array of shape (n,) or (n, T)
            One target or several, every |y| ≤ Y.
        budget : Budget
            The (ε, δ) to spend.
        domain : Domain, optional
            B, Y and the adjacency; by default the unit ball, or what `columns` implies.
        columns : ColumnMap, optional
            Maps X by public bounds first. With an intercept the number of records is released, too.
        noise : {"gaussian", "wishart"}, default="gaussian"
            The law of the noise.
        weight : float
            w·Y/B: a larger one favours Xᵀy over XᵀX.
        ledger : Ledger, optional
            Charged before anything is computed from the data.
        random_state : int, optional
            A seed, for research: the release is then not private.

        Returns
        -------
        statistics : PrivateStatistics
            The released moments and their guarantee.
        """
        if domain is None:
            domain = Domain() if columns is None else Domain(x_norm=columns.norm_bound)
        rows = read_rows(X, y, domain, columns)
        intercept = 0.0 if columns is None else columns.intercept
        plan = GramPlan.calibrated(rows.layout, budget, noise, weight, intercept)
        released = execute(plan, rows, ledger=ledger, label=cls.__name__, random_state=random_state)
        moments = {part.name: getattr(released.value, part.name) for part in fields(released.value)}
        return cls(**moments, privacy=released.privacy)
