"""Privacy accounting. No data is needed or seen here."""

from curvedp.privacy import gaussian, paper
from curvedp.privacy.calibrate import (
    LOPParameters,
    QOPParameters,
    StatisticsParameters,
    calibrate_lop,
    calibrate_qop,
    calibrate_statistics,
    solve_curvature,
    solve_shift,
)
from curvedp.privacy.guarantee import Guarantee, Profile
from curvedp.privacy.lop import LOPProfile, lop_profile
from curvedp.privacy.profiles import (
    CurvatureProfile,
    GaussianProfile,
    PointProfile,
    PureProfile,
    qop_profile,
    statistics_profile,
)
from curvedp.privacy.statistics import gaussian_sensitivity, gram_sensitivity

__all__ = [
    "CurvatureProfile",
    "GaussianProfile",
    "Guarantee",
    "LOPParameters",
    "LOPProfile",
    "PointProfile",
    "Profile",
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
