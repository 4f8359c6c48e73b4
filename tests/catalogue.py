"""Everything that is tested by being listed: losses, regularizers, constraints, mechanisms, estimators.

A new one is a line here; property tests, grids, neighbours and the checks of scikit-learn take it up.
"""

from __future__ import annotations

from curvedp.mechanisms import Mechanism, Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.privacy.budget import Adjacency
from curvedp.problems import Problem
from curvedp.problems.constraints import (
    Affine,
    Box,
    ConstrainCoordinates,
    Constraint,
    L1Ball,
    L2Ball,
    NonNegative,
    Reals,
    Simplex,
)
from curvedp.problems.domain import Domain
from curvedp.problems.losses import (
    Huber,
    Logistic,
    Loss,
    Multinomial,
    Offset,
    OneVsRest,
    Poisson,
    Quantile,
    Squared,
    SquaredHinge,
    SquaredSeveral,
    Weighted,
)
from curvedp.problems.regularizers import (
    L1,
    L2,
    ElasticNet,
    GroupL2,
    L2Norm,
    NoRegularizer,
    Nuclear,
    OnCoordinates,
    Regularizer,
)
from curvedp.release import catalogue
from curvedp_studies.mechanisms.dpsgd import DPSGD
from curvedp_studies.mechanisms.lop import LOPClip

ADJACENCIES: tuple[Adjacency, ...] = ("replace", "add_remove")

LOSSES: list[Loss] = [
    Squared(),
    Logistic(),
    Huber(0.7),
    Quantile(0.3, quantile=0.8),
    SquaredHinge(),
    Poisson(),
    Poisson(max_margin=0.5),
    Multinomial(2),
    Multinomial(4),
    OneVsRest(Logistic(), 3),
    OneVsRest(SquaredHinge(), 3),
]

# Losses that read more of a record than one target.
LOSSES_OF_COLUMNS: list[Loss] = [
    Weighted(Squared()),
    Weighted(Logistic()),
    Weighted(Multinomial(3)),
    Weighted(Quantile(0.3, quantile=0.2)),
    Offset(Poisson(max_margin=0.5), 0.4),
    Weighted(Offset(Huber(0.7), 0.4)),
    SquaredSeveral(2),
]

# For θ of shape (6, 2).
REGULARIZERS: list[Regularizer] = [
    NoRegularizer(),
    L1(0.7),
    L2(1.3),
    ElasticNet(0.9, 0.3),
    L2Norm(0.7),
    GroupL2(0.7, ((0, 2), (1, 3, 4))),
    Nuclear(0.7),
    OnCoordinates(L1(0.7), (0, 1, 4)),
]
CONSTRAINTS: list[Constraint] = [
    Reals(),
    Box(1.5),
    NonNegative(),
    L2Ball(2.0),
    L1Ball(2.0),
    Simplex(1.5),
    Affine([[1.0] * 12], [0.5]),
    ConstrainCoordinates(L1Ball(1.0), (0, 2, 3)),
]

# Mechanisms whose defaults are slow get cheaper settings with the same proof.
_CHEAP: dict[str, Mechanism] = {
    "recentered": Recentered(Rule(rounds=8, first_rounds=2)),
    "dp_sgd": DPSGD(rounds=10, rate=0.2),
    "lop_clip": LOPClip(clip=0.5),
}
MECHANISMS: dict[str, Mechanism] = {
    name: _CHEAP.get(name) or catalogue.mechanism(name) for name in catalogue.MECHANISMS
}
# What a mechanism is tried on where the squared loss on the whole space is not covered.
_NEEDS_BOUNDED_GRADIENTS = ("lop", "amp", "output", "pure_lop")
_ONE_ADJACENCY: dict[str, Adjacency] = {"adassp": "add_remove", "dp_sgd": "add_remove", "input": "replace"}


def adjacencies_of(name: str) -> tuple[Adjacency, ...]:
    """Those for which the mechanism has a proof."""
    return (_ONE_ADJACENCY[name],) if name in _ONE_ADJACENCY else ADJACENCIES


def problem_for(name: str, adjacency: Adjacency) -> Problem:
    """A problem that the mechanism covers."""
    loss: Loss = Logistic() if name in _NEEDS_BOUNDED_GRADIENTS else Squared()
    return Problem(loss, domain=Domain(adjacency=adjacency))


ESTIMATORS = [entry.load() for entry in catalogue.ESTIMATORS.values()]

_RULE = "a cell that is no number or out of range follows a public rule; an error would tell about the data"
_DECLARED = "classes are declared, never read off the data: labels that occur do not change them"
_NOISE = "a weighted record moves what is released less than a repeated one, and noise is drawn for both"
_WIDTH = "a list of rows does not declare how many columns there are; arrays do, and so do schemas"
EXPECTED_OF_ALL = {
    "check_supervised_y_no_nan": _RULE,
    "check_dtype_object": _RULE,
    "check_estimators_empty_data_messages": "a table of no rows must look like any other under add_remove",
    "check_regressors_train": _WIDTH,
    "check_all_zero_sample_weights_error": _RULE,
    "check_sample_weight_equivalence_on_dense_data": _NOISE,
    "check_sample_weight_equivalence_on_sparse_data": _NOISE,
}
SEVERAL = ("PrivateMultiTaskRidge",)  # the number of targets is declared, like classes
EXPECTED_OF_CLASSIFIERS = {
    "check_classifiers_train": _WIDTH,
    "check_classifiers_regression_target": _RULE,
    "check_classifiers_classes": _DECLARED,
    "check_class_weight_classifiers": "weights above the declared `weight_max` are refused",
    "check_classifiers_one_label": _DECLARED + "; noise alone may answer the other one",
    "check_classifier_not_supporting_multiclass": _DECLARED + ", three labels in place of two included",
}


def expected_failed_checks(estimator: object) -> dict[str, str]:
    """scikit-learn's checks that a private estimator must fail, each with its reason."""
    declared = {"check_regressor_multioutput": _DECLARED} if type(estimator).__name__ in SEVERAL else {}
    own = EXPECTED_OF_CLASSIFIERS if hasattr(estimator, "classes") else declared
    return {**EXPECTED_OF_ALL, **own}


QUICK = Recentered(Rule(rounds=6, first_rounds=3))  # the checks ask for no accuracy


def declared(cls: type) -> object:
    """The estimator with the declarations that scikit-learn's checks need."""
    target = {"classes": (0, 1)} if hasattr(cls, "classes") else {"target_bounds": (-100.0, 100.0)}
    if hasattr(cls, "max_rate"):
        target = {"target_bounds": (0.0, 100.0)}
    if cls.__name__ == "PrivateMultiTaskRidge":  # as many targets as most checks have
        target = {"target_bounds": [(-100.0, 100.0)]}
    return cls(bounds=(-10.0, 10.0), weight_max=10.0, mechanism=QUICK, **target)
