"""Private convex learning by random curvature: estimators, a composable core, and the privacy behind them.

Names are imported when first used, so that `import curvedp` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from curvedp.constraints import Affine, Box, L1Ball, L2Ball, NonNegative, Reals, Simplex
    from curvedp.domain import ColumnMap, Domain
    from curvedp.estimators import (
        PrivateElasticNet,
        PrivateHuberRegressor,
        PrivateLasso,
        PrivateLinearRegression,
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivateRidge,
    )
    from curvedp.fit import private_fit
    from curvedp.ledger import Ledger
    from curvedp.losses import Huber, Logistic, Multinomial, OneVsRest, Poisson, Squared, SquaredHinge
    from curvedp.mechanisms import AMP, LOP, QOP, LOPClip, PureLOP, Recentered, Statistics
    from curvedp.mechanisms.statistics import PrivateStatistics
    from curvedp.privacy.guarantee import Guarantee
    from curvedp.problem import Problem
    from curvedp.regularizers import L1, L2, ElasticNet, GroupL2, L2Norm, NoRegularizer, Nuclear

_HOMES = {
    "constraints": ("Affine", "Box", "L1Ball", "L2Ball", "NonNegative", "Reals", "Simplex"),
    "domain": ("ColumnMap", "Domain"),
    "estimators": (
        "PrivateElasticNet",
        "PrivateHuberRegressor",
        "PrivateLasso",
        "PrivateLinearRegression",
        "PrivateLinearSVC",
        "PrivateLogisticRegression",
        "PrivateRidge",
    ),
    "fit": ("private_fit",),
    "ledger": ("Ledger",),
    "losses": ("Huber", "Logistic", "Multinomial", "OneVsRest", "Poisson", "Squared", "SquaredHinge"),
    "mechanisms": ("AMP", "LOP", "QOP", "LOPClip", "PureLOP", "Recentered", "Statistics"),
    "mechanisms.statistics": ("PrivateStatistics",),
    "privacy.guarantee": ("Guarantee",),
    "problem": ("Problem",),
    "regularizers": ("L1", "L2", "ElasticNet", "GroupL2", "L2Norm", "NoRegularizer", "Nuclear"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'curvedp' has no attribute {name!r}")
    return getattr(import_module(f"curvedp.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])


__all__ = [
    "AMP",
    "L1",
    "L2",
    "LOP",
    "QOP",
    "Affine",
    "Box",
    "ColumnMap",
    "Domain",
    "ElasticNet",
    "GroupL2",
    "Guarantee",
    "Huber",
    "L1Ball",
    "L2Ball",
    "L2Norm",
    "LOPClip",
    "Ledger",
    "Logistic",
    "Multinomial",
    "NoRegularizer",
    "NonNegative",
    "Nuclear",
    "OneVsRest",
    "Poisson",
    "PrivateElasticNet",
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateStatistics",
    "Problem",
    "PureLOP",
    "Reals",
    "Recentered",
    "Simplex",
    "Squared",
    "SquaredHinge",
    "Statistics",
    "private_fit",
]
