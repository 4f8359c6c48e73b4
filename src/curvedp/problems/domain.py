"""What is publicly declared about a record."""

from __future__ import annotations

from dataclasses import dataclass

from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Adjacency, Neighbours

# Within these B, Y, Y/B, (BY)² and their inverses stay far from where doubles end: no release can fail for
# the sake of one record (section 8).
SMALLEST_DECLARED, LARGEST_DECLARED = 1e-60, 1e60


@dataclass(frozen=True)
class Domain:
    """The public set that every record is clipped into: ‖x‖₂ ≤ x_norm, |y| ≤ y_bound.

    Parameters
    ----------
    x_norm : float, default=1.0
        B, a bound on the length of a record. Longer records are shortened to it. From 1e-60 to 1e60.
    y_bound : float, default=1.0
        Y, a bound on the size of a target. Larger targets are clipped to it. From 1e-60 to 1e60.
    adjacency : {"replace", "add_remove"}, default="replace"
        Which tables are neighbours: one record differs, or one is there in one of them only.
    unit : str, optional
        The name of what says whose row it is: then a person with all rows is protected, not a row (U-1).
    weighted : bool, default=False
        Whether records have weights: the last column of the target, clipped to [0, 1] (W-1).
    absorbed : bool, default=False
        Whether a row is its difference from the mean of its person's rows, which are first clipped to half
        of x_norm and of y_bound (U-3).

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
    absorbed: bool = False

    def __post_init__(self) -> None:
        for name in ("x_norm", "y_bound"):
            value = getattr(self, name)
            if not SMALLEST_DECLARED <= value <= LARGEST_DECLARED:
                raise InvalidInput(
                    f"{name} must be a number from 1e-60 to 1e60, a public bound; got {value!r}: "
                    "declare the data in units nearer to 1"
                )
        Neighbours(self.adjacency, self.unit)
        if self.absorbed and self.unit is None:
            raise InvalidInput("absorbed effects are those of persons: pass unit, too")

    @property
    def neighbours(self) -> Neighbours:
        """Which tables differ by one unit; every sensitivity asks it."""
        return Neighbours(self.adjacency, self.unit)
