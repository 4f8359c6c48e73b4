"""What is publicly declared about a record."""

from __future__ import annotations

from dataclasses import dataclass

from curvedp.arrays import LARGEST_ENTRY, SMALLEST_BOUND
from curvedp.errors import InvalidInput
from curvedp.neighbours import Adjacency, Neighbours


@dataclass(frozen=True)
class Domain:
    """The public set that every record is clipped into: ‖x‖₂ ≤ x_norm, |y| ≤ y_bound.

    Parameters
    ----------
    x_norm : float, default=1.0
        B, a bound on the length of a record. Longer records are shortened to it.
    y_bound : float, default=1.0
        Y, a bound on the size of a target. Larger targets are clipped to it.
    adjacency : {"replace", "add_remove"}, default="replace"
        Which tables are neighbours: one record differs, or one is there in one of them only.
    unit : str, optional
        The name of what says whose row it is: then a person with all rows is protected, not a row (U-1).
    weighted : bool, default=False
        Whether records have weights: the last column of the target, clipped to [0, 1] (W-1).

    Examples
    --------
    >>> from curvedp import Domain
    >>> Domain(x_norm=2.0, adjacency="add_remove").neighbours.sum_factor
    1.0
    """

    x_norm: float = 1.0
    y_bound: float = 1.0
    adjacency: Adjacency = "replace"
    unit: str | None = None
    weighted: bool = False

    def __post_init__(self) -> None:
        for name in ("x_norm", "y_bound"):
            value = getattr(self, name)
            if not SMALLEST_BOUND <= value <= LARGEST_ENTRY:
                raise InvalidInput(f"{name} must be a positive number, a public bound; got {value!r}")
        Neighbours(self.adjacency, self.unit)

    @property
    def neighbours(self) -> Neighbours:
        """Which tables differ by one unit; every sensitivity asks it."""
        return Neighbours(self.adjacency, self.unit)
