"""Every mechanism and estimator by its name: the one list for commands, model files and the audit.

Entries are light: a class is imported when it is asked for. A new one is a line here.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.mechanisms.base import Mechanism

Task = Literal["regression", "classification"]


def load(path: str) -> Any:
    """What "module:name" names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True)
class Entry:
    name: str
    path: str
    words: str

    @property
    def class_name(self) -> str:
        return self.path.rpartition(":")[2]

    @property
    def installed(self) -> bool:
        return find_spec(self.path.partition(".")[0]) is not None

    def load(self) -> Any:
        if not self.installed:
            raise InvalidInput(f"the mechanism {self.name} is elsewhere: pip install curvedp-studies")
        return load(self.path)


@dataclass(frozen=True)
class MechanismEntry(Entry):
    """A way to release θ. "offered" to users, a "peer" to compare with, or for a "study" (never private).

    Those that are not needed to use the library are classes of the package curvedp-studies.
    """

    accountings: tuple[str, ...] = ()
    role: Literal["offered", "peer", "study"] = "offered"


@dataclass(frozen=True)
class EstimatorEntry(Entry):
    task: Task | Literal["several"] = "regression"  # several targets are passed in Python only


_E, _M, _P = "curvedp.analyses.estimators", "curvedp.mechanisms", "curvedp_studies.mechanisms"

MECHANISMS: Mapping[str, MechanismEntry] = {
    entry.name: entry
    for entry in (
        MechanismEntry("recentered", f"{_M}.recentered:Recentered", "one noisy curvature, many centres"),
        MechanismEntry("statistics", f"{_M}.statistics:Statistics", "noisy second moments"),
        MechanismEntry("gradient", f"{_P}.baselines:NoisyGradient", "noisy gradient descent"),
        MechanismEntry(
            "qop",
            f"{_M}.objective:QOP",
            "quadratic objective perturbation",
            ("directional", "spectral", "paper"),
        ),
        MechanismEntry("lop", f"{_P}.lop:LOP", "linear objective perturbation", ("directional", "paper")),
        MechanismEntry("lop_clip", f"{_P}.lop:LOPClip", "the same with clipped gradients", ("directional",)),
        MechanismEntry("output", f"{_P}.baselines:OutputPerturbation", "noise on the solution"),
        MechanismEntry("amp", f"{_P}.lop:AMP", "approximate minima", ("directional",), "peer"),
        MechanismEntry("adassp", f"{_P}.adassp:AdaSSP", "adaptive sufficient statistics", (), "peer"),
        MechanismEntry("wishart", f"{_P}.wishart:WishartStatistics", "Wishart second moments", (), "peer"),
        MechanismEntry("functional", f"{_P}.functional:Functional", "functional mechanism", (), "peer"),
        MechanismEntry("dp_sgd", f"{_P}.dpsgd:DPSGD", "stochastic gradient descent", (), "peer"),
        MechanismEntry("exponential", f"{_P}.exponential:Exponential", "posterior sampling", (), "study"),
        MechanismEntry("pure_lop", f"{_P}.pure_lop:PureLOP", "linear perturbation, δ = 0", (), "study"),
        MechanismEntry("input", f"{_P}.input:InputPerturbation", "noise on every record", (), "study"),
    )
}
DEFAULT_MECHANISM = "recentered"

ESTIMATORS: Mapping[str, EstimatorEntry] = {
    entry.name: entry
    for entry in (
        EstimatorEntry("linear", f"{_E}:PrivateLinearRegression", "Linear regression"),
        EstimatorEntry("ridge", f"{_E}:PrivateRidge", "Ridge regression"),
        EstimatorEntry("lasso", f"{_E}:PrivateLasso", "Lasso regression"),
        EstimatorEntry("elastic_net", f"{_E}:PrivateElasticNet", "Elastic-net regression"),
        EstimatorEntry("huber", f"{_E}:PrivateHuberRegressor", "Huber regression"),
        EstimatorEntry("quantile", f"{_E}:PrivateQuantileRegressor", "Quantile regression"),
        EstimatorEntry("multitask", f"{_E}:PrivateMultiTaskRidge", "Ridge regression", "several"),
        EstimatorEntry("poisson", f"{_E}:PrivatePoissonRegressor", "Poisson regression"),
        EstimatorEntry(
            "logistic", f"{_E}:PrivateLogisticRegression", "Logistic regression", "classification"
        ),
        EstimatorEntry("svc", f"{_E}:PrivateLinearSVC", "Squared-hinge classification", "classification"),
    )
}


def offered() -> tuple[str, ...]:
    """The mechanisms that users choose among, "auto" first."""
    return ("auto", *(name for name, entry in MECHANISMS.items() if entry.role == "offered"))


def mechanism(name: str, **options: Any) -> Mechanism:
    """The mechanism called `name` with the given options; "auto" is the most accurate on real tables.

    An option that is None or "auto" is left out; one that the mechanism does not have is refused.
    """
    if (entry := MECHANISMS.get(DEFAULT_MECHANISM if name == "auto" else name)) is None:
        raise InvalidInput(f"unknown mechanism {name!r}; pass one of {', '.join(offered())}")
    made = entry.load()
    known = inspect.signature(made).parameters
    given = {key: value for key, value in options.items() if value is not None and value != "auto"}
    for key in given:
        if key not in known:
            able = [n for n in offered() if key == "accounting" and n != "auto" and MECHANISMS[n].accountings]
            hint = f"it is a choice of {', '.join(able)}" if able else "leave it out"
            raise InvalidInput(f"the mechanism {entry.name} has no {key}: {hint}")
    chosen: Mechanism = made(**given)
    return chosen


def said(model: object) -> str:
    """An estimator as a message names it: "the model ridge"; of a class that is not listed its name."""
    name = type(model).__name__
    return next((f"the model {e.name}" for e in ESTIMATORS.values() if e.class_name == name), name)


def estimator_of(class_name: str) -> EstimatorEntry:
    """The entry of an estimator's class."""
    for entry in ESTIMATORS.values():
        if entry.class_name == class_name:
            return entry
    raise InvalidInput(f"{class_name} is no estimator of curvedp: pass a fitted one")
