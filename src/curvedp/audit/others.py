"""The accounted object of every plan but the recentered one.

Batched by a law of its own: QOP, LOP (`objective`), descents (`descents`). Recorded once and then batched, or
replayed run by run: all plans below, whose accounting is that of everything they release. Neither: plans that
account for less than they draw, where a test of every draw would beat a sound claim. Those are samples of
records (DP-SGD), choices of which only the best is shown (a search with several fits), and the noise of other
laws that no witness is told of (posterior sampling, pure LOP, noise on every record).
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any, TypeVar

from curvedp.audit import descents, objective
from curvedp.audit.accounted import Accounted
from curvedp.audit.pairs import Pair
from curvedp.audit.recorded import replayed
from curvedp.audit.samplers import rows_for
from curvedp.looks.bounds import BoundsPlan
from curvedp.looks.check import CheckPlan
from curvedp.looks.describe import DescribePlan
from curvedp.looks.quantiles import QuantilePlan
from curvedp.mechanisms.gradient import NoisyGradientPlan
from curvedp.mechanisms.inference import InferencePlan
from curvedp.mechanisms.output import OutputPlan
from curvedp.mechanisms.peers.adassp import AdaSSPPlan
from curvedp.mechanisms.peers.functional import FunctionalPlan
from curvedp.mechanisms.recentered import WalkPlan
from curvedp.mechanisms.statistics import GramPlan, StatisticsPlan
from curvedp.plans import Composed, Plan, Source
from curvedp.scores.plan import ScorePlan
from curvedp.selection.refits import RefitsPlan

S = TypeVar("S", bound=Source)

REGISTERED = descents, objective  # importing them registers their plans


@singledispatch
def accounts_for_all(plan: Plan[Any, Any]) -> bool:
    """Whether the guarantee is of everything that a witness is told of."""
    return False


for _kind in (
    WalkPlan,
    InferencePlan,
    NoisyGradientPlan,
    OutputPlan,
    StatisticsPlan,
    GramPlan,
    AdaSSPPlan,
    FunctionalPlan,
    RefitsPlan,
    CheckPlan,
    DescribePlan,
    BoundsPlan,
    QuantilePlan,
    ScorePlan,
):
    accounts_for_all.register(_kind, lambda plan: True)


@accounts_for_all.register
def _(plan: Composed) -> bool:
    return all(accounts_for_all(part) for part in plan.plans)


def shown(plan: Plan[S, Any], tables: tuple[S, S]) -> Accounted | None:
    """All releases of the shipped code from two tables; None where the guarantee is not of all of them."""
    return replayed(plan, tables) if accounts_for_all(plan) else None


def shown_rows(plan: Plan[Any, Any], pair: Pair) -> Accounted | None:
    """`shown` of a plan that reads rows."""
    return shown(plan, (rows_for(plan, pair.left), rows_for(plan, pair.right)))
