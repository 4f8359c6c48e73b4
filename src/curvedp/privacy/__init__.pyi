from . import gaussian, paper
from .calibrate import (
    QOPParameters,
    StatisticsParameters,
    calibrate_qop,
    calibrate_statistics,
    solve_curvature,
    solve_shift,
)
from .directional import gaussian_sensitivity, gram_sensitivity
from .guarantee import Guarantee
from .linear import LOPParameters, LOPProfile, calibrate_lop, lop_profile
from .profiles import (
    CurvatureProfile,
    Curve,
    GaussianProfile,
    PointProfile,
    PureProfile,
    qop_profile,
    statistics_profile,
)

__all__ = [
    "CurvatureProfile",
    "Curve",
    "GaussianProfile",
    "Guarantee",
    "LOPParameters",
    "LOPProfile",
    "PointProfile",
    "PureProfile",
    "QOPParameters",
    "StatisticsParameters",
    "calibrate_lop",
    "calibrate_qop",
    "calibrate_statistics",
    "gaussian",
    "gaussian_sensitivity",
    "gram_sensitivity",
    "lop_profile",
    "paper",
    "qop_profile",
    "solve_curvature",
    "solve_shift",
    "statistics_profile",
]
