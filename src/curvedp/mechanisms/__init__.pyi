from .base import Estimate, FitPlan, Mechanism, make_plan
from .baselines import NoisyGradient, OutputPerturbation
from .objective import AMP, LOP, QOP, LOPClip
from .recentered import Recentered
from .statistics import Statistics

__all__ = [
    "AMP",
    "LOP",
    "QOP",
    "Estimate",
    "FitPlan",
    "LOPClip",
    "Mechanism",
    "NoisyGradient",
    "OutputPerturbation",
    "Recentered",
    "Statistics",
    "make_plan",
]
