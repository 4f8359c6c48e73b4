"""What every mechanism is: a public plan for a budget, then one release of θ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.budget import Budget
from curvedp.errors import CalibrationFailed
from curvedp.plans import Plan, require_room, room_of
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import Parameter, Parameters
from curvedp.problem import Problem
from curvedp.released.inference import Inference
from curvedp.released.noise import ThetaNoise
from curvedp.released.quadratic_model import LocalObjective
from curvedp.rows.base import Layout, Rows

if TYPE_CHECKING:
    from curvedp.privacy.profiles import Curve
    from curvedp.released.inference import Inference


@dataclass(frozen=True, eq=False)
class Estimate:
    """What leaves: θ of shape (d, K), the released model of the objective where there is one, what is known
    of the noise of θ, and what intervals are made from where they were asked for.
    """

    theta: FloatArray
    local: LocalObjective | None = None
    noise: ThetaNoise = field(default_factory=ThetaNoise)
    trust: float = 1.0  # θ = trust·(what was estimated) + (1 − trust)·(the constant answer)
    inference: Inference | None = None


class Mechanism(Protocol):
    """A way to release θ; it knows no budget."""

    @property
    def name(self) -> str: ...

    def plan(self, problem: Problem, d: int, budget: Budget) -> Plan[Rows, Estimate]:
        """Calibrate for d model columns from public constants alone, or refuse."""
        ...


@dataclass(frozen=True, eq=False)
class FitPlan(ABC):
    """A calibrated mechanism for one problem: subclasses state a guarantee and release an estimate."""

    problem: Problem
    d: int
    budget: Budget
    persons: ClassVar[bool] = False  # whether it bounds what a person with several rows contributes (U-1)
    matrices: ClassVar[float] = 20.0  # of d × d that a release holds at most; 14 to 18 measured for a walk

    def __post_init__(self) -> None:
        if not self.persons:
            neighbours = self.problem.domain.neighbours
            neighbours.refuse_units(type(self).__name__.removesuffix("Plan"), "choose `mechanism=recentered`")

    @property
    def layout(self) -> Layout:
        return Layout.of(self.problem, self.d)

    @property
    def room(self) -> float:
        """Bytes of the matrices of a release."""
        return 8.0 * self.matrices * self.d**2

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee: ...

    @abstractmethod
    def release(self, rows: Rows, random: np.random.Generator) -> Estimate: ...

    def accept(self, rows: Rows) -> None:  # noqa: B027 (most plans take any rows of their layout)
        """Refuse, before the charge and from what is public about them, rows that cannot be released from."""

    def utility_bound(self, rows: int) -> float | None:
        """A proved bound on E[J(θ) − J(θ*)] for ‖θ* − θ_c‖ ≤ 1 and so many rows; None where there is none."""
        return None

    def promise(
        self,
        mechanism: str,
        accounting: str,
        theorem: str,
        profile: Curve,
        *parameters: Parameter,
        private: bool = True,
    ) -> Guarantee:
        """The guarantee of this plan's budget and neighbours."""
        return Guarantee(
            budget=self.budget,
            neighbours=self.problem.domain.neighbours,
            mechanism=mechanism,
            accounting=accounting,
            theorem=theorem,
            parameters=Parameters(*parameters),
            profile=profile,
            private=private,
        )


def make_plan(mechanism: Mechanism, problem: Problem, d: int, budget: Budget) -> Plan[Rows, Estimate]:
    """mechanism.plan, after every public refusal that does not depend on the mechanism."""
    problem.check(d)
    try:
        plan = mechanism.plan(problem, d, budget)
    except ArithmeticError:
        raise CalibrationFailed(
            "no noise can be calibrated for this (ε, δ): it is beyond what doubles hold; ask for less"
        ) from None
    require_room(room_of([plan]))  # as `execute` does, but before a table is read
    return plan
