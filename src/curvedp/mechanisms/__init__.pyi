from .base import Estimate, FitPlan, Mechanism, make_plan
from .gradient import NoisyGradient
from .lop import AMP, LOP, LOPClip
from .output import OutputPerturbation
from .qop import QOP
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
