"""`private_fit`, the only orchestrator: plan (public) → charge → release (touches the data once)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from curvedp.domain import ColumnMap
from curvedp.errors import CurvedpError, DataError
from curvedp.mechanisms.base import Mechanism, Release
from curvedp.privacy.guarantee import Guarantee
from curvedp.problem import Problem
from curvedp.randomness import generator
from curvedp.rows import make_rows
from curvedp.rows.base import Rows

Charge = Callable[[Guarantee], None]


def private_fit(
    problem: Problem,
    X: Any,
    y: Any,
    *,
    mechanism: Mechanism,
    random_state: int | None = None,
    columns: ColumnMap | None = None,
    charge: Charge | None = None,
) -> Release:
    """θ minimising J over C, released under the (ε, δ) of `mechanism`.

    `columns` maps user columns to model columns by public bounds (none: X is taken as it is, rows
    clipped to ‖x‖ ≤ domain.x_norm). `charge` is called with the guarantee after everything public was
    checked and before anything is computed from the data; whatever it raises stops the fit.
    """
    rows = make_rows(X, y, problem.domain, columns)
    return fit_rows(problem, rows, mechanism=mechanism, random_state=random_state, charge=charge)


def fit_rows(
    problem: Problem,
    rows: Rows,
    *,
    mechanism: Mechanism,
    random_state: int | None = None,
    charge: Charge | None = None,
) -> Release:
    """`private_fit` for rows that exist already."""
    noise = generator(random_state)
    plan = mechanism.plan(problem, rows.d)
    guarantee = plan.guarantee
    if random_state is not None:
        guarantee = replace(guarantee, private=False)
    if charge is not None:
        charge(guarantee)
    try:
        release = plan.release(rows, noise)
    except CurvedpError:
        raise
    except Exception as error:  # its text or traceback may hold values of private rows
        raise DataError(
            f"the fit stopped on an unexpected {type(error).__name__}; nothing was released and the charge "
            "stands. Check that every column of X is numeric and that the data can be read to the end"
        ) from None
    return replace(release, privacy=guarantee)
