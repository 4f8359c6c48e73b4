from . import gaussian
from .calibrate import (
    QOPParameters,
    StatisticsParameters,
    calibrate_qop,
    calibrate_statistics,
    solve_curvature,
)
from .curvature import gaussian_sensitivity, gram_sensitivity
from .guarantee import Guarantee
from .profiles import (
    CurvatureProfile,
    Curve,
    GaussianProfile,
    PointProfile,
    PureProfile,
)

__all__ = [
    "CurvatureProfile",
    "Curve",
    "GaussianProfile",
    "Guarantee",
    "PointProfile",
    "PureProfile",
    "QOPParameters",
    "StatisticsParameters",
    "calibrate_qop",
    "calibrate_statistics",
    "gaussian",
    "gaussian_sensitivity",
    "gram_sensitivity",
    "solve_curvature",
]
