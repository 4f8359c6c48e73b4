from .base import Estimate, FitPlan, Mechanism, make_plan
from .objective import QOP
from .recentered import Recentered
from .statistics import Statistics

__all__ = [
    "QOP",
    "Estimate",
    "FitPlan",
    "Mechanism",
    "Recentered",
    "Statistics",
    "make_plan",
]
