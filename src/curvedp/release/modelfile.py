"""A released model as one frozen value and as one JSON document: no code in it, checked when it is read.

It holds what was released and what is public, nothing else: anyone may read it.
"""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import numpy as np

from curvedp import __version__, forms
from curvedp.arrays import FloatArray
from curvedp.data import ClassTarget, CountTarget, NumericTarget, Schema
from curvedp.data.mapping import ColumnMap
from curvedp.data.targets import SeveralTargets, Target, agrees, entry_target, target_entry
from curvedp.errors import CurvedpError, InvalidInput, ModelFileError, refuse_special
from curvedp.forms import Listed, Within, check_keys, refuse
from curvedp.postprocess.inference import Inference
from curvedp.postprocess.noise import CoefficientNoise, LocalObjective, UserUnits
from curvedp.privacy.budget import Adjacency, Budget, Neighbours
from curvedp.privacy.gaussian import hockey_stick
from curvedp.privacy.guarantee import MU, Guarantee, Parameter, Parameters, PrivacyCurve
from curvedp.privacy.profiles import TabledProfile
from curvedp.problems import constraints
from curvedp.release import catalogue
from curvedp.release.outputs import write_file
from curvedp.release.record import ReleaseRecord

FORMAT = "curvedp-model"
FORMAT_VERSION = 2
_ENVELOPE = ("format", "format_version", "curvedp_version", "features")


@dataclass(frozen=True, eq=False)
class Release:
    """A linear model in the user's units, X·coefficientsᵀ + intercept, and all that is known of its release.

    Attributes
    ----------
    estimator : str
        The class of the model.
    settings : dict
        Its public parameters.
    guarantee : Guarantee
        What the release promises.
    schema : Schema
        The declarations, all public.
    target : Target
        What is predicted.
    named : bool
        Whether the table of the fit had names of columns.
    coefficients : array of shape (outputs, encoded columns)
        In the user's units. One output for a number and for two classes (positive: the target's event),
        otherwise one for each class or target, classes in increasing order.
    intercept : array of shape (outputs,)
        The constants.
    noise : CoefficientNoise
        How far privacy noise alone moves each coefficient, or why that is not known.
    trust : float
        The share of the estimated slopes that the coefficients have; the rest is the constant answer.
    objective : LocalObjective or None
        The released quadratic model of the objective, from which refits are free.
    inference : Inference or None
        What was released for intervals.
    record : ReleaseRecord
        What is to be filed of the release beside its guarantee and its declarations.
    """

    estimator: str
    settings: Mapping[str, Any]
    guarantee: Guarantee
    schema: Schema
    target: Target
    named: bool
    coefficients: Annotated[FloatArray, Listed(2)]
    intercept: Annotated[FloatArray, Listed(1)]
    record: ReleaseRecord
    noise: CoefficientNoise = field(default_factory=CoefficientNoise)
    trust: Annotated[float, Within(0.0)] = 1.0
    objective: LocalObjective | None = None
    inference: Inference | None = None

    @classmethod
    def of(cls, model: Any) -> Release:
        """That of a fitted estimator of curvedp."""
        if not isinstance(found := getattr(model, "release_", None), Release):
            name = type(model).__name__
            raise InvalidInput(f"this {name} has no release: pass a fitted estimator of curvedp")
        return found

    @cached_property
    def columns(self) -> ColumnMap:
        """From encoded columns to model columns."""
        intercept = 1.0 if self.settings.get("fit_intercept", True) else 0.0
        return self.schema.column_map(intercept=intercept, x_norm=self.settings.get("x_norm"))

    @property
    def units(self) -> UserUnits:
        """From θ to coefficients and intercept."""
        return UserUnits.of(self.columns, self.target)

    @property
    def entry(self) -> catalogue.EstimatorEntry:
        return catalogue.estimator_of(self.estimator)

    @property
    def version(self) -> str:
        """The curvedp that made the release."""
        return self.record.versions.get("curvedp", __version__)

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The labels in the order of the outputs, of two the event last; None of a regression."""
        return self.target.outputs if isinstance(self.target, ClassTarget) else None

    @property
    def flat(self) -> bool:
        """Whether coefficients of the estimator are one row: a number or a count is predicted."""
        return isinstance(self.target, NumericTarget | CountTarget)

    def with_file(self, **format: str | None) -> Release:
        """For tables in files that are written otherwise; see `Schema.with_file`."""
        schema = self.schema.with_file(**format)
        return replace(self, schema=schema, target=_target(target_entry(self.target), schema))

    def to_estimator(self) -> Any:
        """A fitted estimator of curvedp that predicts the same and states the same guarantee."""
        promised = {"epsilon": self.guarantee.epsilon, "delta": self.guarantee.delta, "schema": self.schema}
        model = self.entry.load()(**{**promised, **self.settings})
        model.release_ = self
        return model

    def to_dict(self) -> dict[str, Any]:
        """The JSON document as plain values."""
        own = {
            "settings": {name: _written(value) for name, value in self.settings.items()},
            "guarantee": to_dict(self.guarantee),
            "schema": self.schema.to_dict(),
            "target": target_entry(self.target),
        }
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "curvedp_version": self.version,
            "features": list(self.schema.feature_names),
            **{
                name: own[name] if name in own else forms.write(getattr(self, name), forms.mark_of(kind))
                for name, kind in forms.written_fields(Release).items()
            },
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, path: str | os.PathLike[str], *, ledger: str | os.PathLike[str] | None = None) -> None:
        """Write the document; the file is complete or it is not there, an earlier one stays until then.

        Refused where `path` is the `ledger`.
        """
        try:
            write_file(path, self.to_json(), ledger=ledger)
        except InvalidInput as error:
            raise ModelFileError(str(error)) from None

    @classmethod
    def from_dict(cls, content: Any) -> Release:
        """The inverse of `to_dict`, for content that nobody vouches for."""
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            refuse("it does not say that it is one")
        if type(version := content.get("format_version")) is not int:
            refuse("its format version is of the wrong kind")
        if version > FORMAT_VERSION:
            which = f" ({str(content.get('curvedp_version'))[:40]}, format {version})" * (version < 10**6)
            raise ModelFileError(f"the model file was made by a newer curvedp{which}: upgrade curvedp")
        if version != FORMAT_VERSION:
            refuse("its format version is unknown")
        kinds = forms.written_fields(Release)
        check_keys(content, [*_ENVELOPE, *kinds], "it")
        try:
            found = cls._read(content, kinds)
            found._check(content)
        except ModelFileError:
            raise
        except CurvedpError as error:
            raise forms.unsound(" ".join(str(error).split())[:300]) from None
        except Exception as error:  # whatever content nobody thought of
            raise forms.unsound(f"it cannot be read ({type(error).__name__})") from None
        return found

    @classmethod
    def _read(cls, content: dict[str, Any], kinds: Mapping[str, Any]) -> Release:
        schema = Schema.from_dict(content["schema"])
        estimator = catalogue.estimator_of(forms.read(str, content["estimator"], "it has an 'estimator'"))
        own: dict[str, Any] = {
            "settings": _read_settings(estimator.load(), content["settings"]),
            "guarantee": from_dict(content["guarantee"]),
            "schema": schema,
            "target": _target(content["target"], schema),
        }
        parts = {
            name: forms.read(kind, content[name], f"it has a {name!r}")
            for name, kind in kinds.items()
            if name not in own
        }
        return cls(**own, **{**parts, "record": replace(parts["record"], stated=schema.release)})

    def _check(self, content: Mapping[str, Any]) -> None:
        """Refuse a document whose parts contradict each other."""
        version = forms.read(str, content["curvedp_version"], "it has a 'curvedp_version'")
        if (content["features"], version) != (list(self.schema.feature_names), self.version):
            refuse("its features contradict its schema, or its version its record")
        if (self.classes is None) != (self.entry.task != "classification"):
            refuse("classes belong to a classifier, and to nothing else")
        if self.schema.has_target and not agrees(self.schema.declared_target, self.target):
            refuse("its target contradicts its schema")
        if isinstance(self.target, SeveralTargets) != (self.entry.task == "several"):
            refuse("several targets belong to a model of several targets, and to nothing else")
        outputs = 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)
        if isinstance(self.target, SeveralTargets):
            outputs = len(self.target.targets)
        shape = (outputs, len(self.schema.feature_names))
        if self.coefficients.shape != shape or self.intercept.shape != (outputs,):
            refuse("its coefficients do not match its schema and classes")
        if self.objective is not None:
            self.objective.check()
            if self.objective.centre.shape != (self.columns.d, outputs):
                refuse("its model of the objective does not match its schema and classes")
        if self.noise.deviations is not None and self.noise.deviations.shape != shape:
            refuse("its noise of the coefficients does not match its schema")
        if self.inference is not None:
            told = np.column_stack([self.coefficients, self.intercept]).T
            self.inference.check()
            if not self.inference.agrees(self.units, told, self.trust):
                refuse("its inference contradicts its coefficients")
        if not self.trust <= 1.0:
            refuse("its trust is not a share")


def load(path: str | os.PathLike[str]) -> Release:
    """Read a model file, or say why it cannot be trusted."""
    refuse_special(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ModelFileError(f"cannot read {path} ({error.strerror}): check the path") from None
    except UnicodeDecodeError:
        refuse("it is not text")
    return Release.from_dict(forms.plain_json(text))


def _target(entry: Any, schema: Schema) -> Target:
    """The target that a file names, its cells read as the schema declares."""
    if not isinstance(entry, Mapping):
        refuse("it has a 'target' of the wrong kind")
    return entry_target(entry, schema.target_column if schema.has_target else None)


@dataclass(frozen=True)
class Stated:
    """What the release promises: P[M(D) ∈ S] ≤ e^ε P[M(D′) ∈ S] + δ for all neighbouring tables D, D′.

    Attributes
    ----------
    epsilon : float
        ε.
    delta : float
        δ.
    unit : str or None
        The column that says whose row it is; null: every row is a unit of its own.
    theorem : str
        The theorem that proves it.
    private : bool
        False for runs that promise nothing: a fixed seed, a study.
    curve : list of pairs
        Points (ε, δ) that hold at once; by themselves they prove the promise.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    unit: str | None
    mechanism: str
    accounting: str
    theorem: str
    parameters: tuple[Parameter, ...]
    private: bool
    curve: tuple[tuple[Annotated[float, Within(0.0)], Annotated[float, Within(0.0)]], ...]


def to_dict(guarantee: Guarantee) -> dict[str, Any]:
    """Plain values; the curve as points (ε, δ(ε)), that of the promised ε among them.

    So a page that is made later shows the same, and the curve proves the promise by itself.
    """
    if isinstance(guarantee.profile, TabledProfile):  # that of a file
        points = guarantee.profile.points
    else:
        curve, promised = PrivacyCurve.of(guarantee), float(guarantee.epsilon)
        found = dict(zip(curve.epsilons, curve.deltas, strict=True))
        points = tuple(sorted({**found, promised: guarantee.delta_at(promised)}.items()))
    described = {"parameters": guarantee.parameters.described, "curve": points}
    return dict(forms.write(Stated(**{**guarantee.to_dict(), **described})))


def from_dict(entry: Any) -> Guarantee:
    """What the file states, refused where its own curve or noise proves less; see `Guarantee`."""
    said: Stated = forms.read_object(Stated, entry, "its guarantee")
    budget, profile = Budget(said.epsilon, said.delta), TabledProfile(said.curve)
    claim = f"its guarantee claims (epsilon, delta) = ({budget.epsilon:g}, {budget.delta:g})"
    if any(delta > 1.0 for _, delta in said.curve):
        refuse("its guarantee has a curve that no guarantee has")
    if not (said.curve and profile.delta_at(budget.epsilon) <= budget.delta):
        refuse(f"{claim}, and its own curve does not prove that")
    parameters = Parameters(*said.parameters)
    mu = parameters.get(MU.name)
    most = budget.delta * (1 + 1e-9)  # δ ≥ H_Φ(ε; μ) of all Gaussian releases together (P-2)
    if isinstance(mu, int | float) and not (mu >= 0 and hockey_stick(budget.epsilon, mu) <= most):
        refuse(f"{claim}, and Gaussian noise of its shift mu = {mu:g} alone spends more")
    near, words = Neighbours(said.adjacency, said.unit), (said.mechanism, said.accounting, said.theorem)
    return Guarantee(budget, near, *words, parameters, profile, said.private)


# Parameters that no file has: what the guarantee says, the operator's account, what would tell the noise.
NOT_KEPT = frozenset({"epsilon", "delta", "ledger", "random_state"})
_ALSO = ("curvedp.mechanisms.rule:Rule", "curvedp.data.mapping:Coding")  # what mechanisms are made of
_PLAIN = (bool, int, float, str, type(None))


class NotHeld(InvalidInput, AttributeError):
    """A parameter that the model file does not hold is used."""


@dataclass(frozen=True)
class NotKept:
    """Stands for a parameter of a loaded model that no file can hold, such as a mechanism of one's own."""

    type: str

    def __getattr__(self, name: str) -> Any:
        kind = vars(self).get("type", "parameter")  # none yet, while it is copied
        raise NotHeld(f"this model file does not hold its {kind}: set the parameter again")


def known_classes() -> dict[str, str]:
    """The classes whose objects a file may hold: by name, where they are."""
    own = [name for name, kind in vars(constraints).items() if isinstance(kind, type) and is_dataclass(kind)]
    paths = [*(f"curvedp.problems.constraints:{name}" for name in own), *_ALSO]
    paths += [entry.path for entry in catalogue.MECHANISMS.values()]
    return {path.rpartition(":")[2]: path for path in paths}


def kept_parameters(estimator: type) -> dict[str, Any]:
    """The parameters that a file keeps beside its schema and its guarantee, with their annotations."""
    hints, names = get_type_hints(estimator), estimator._get_param_names()  # type: ignore[attr-defined]
    return {name: hints[name] for name in names if name not in NOT_KEPT}


def kept_settings(model: Any, schema: Schema) -> dict[str, Any]:
    """The parameters of an estimator; its schema where that is another than the release's."""
    said = {*NOT_KEPT, *(["schema"] if model.schema == schema else [])}
    return {name: value for name, value in model.get_params(deep=False).items() if name not in said}


def _written(value: Any) -> Any:
    """A parameter as a file holds it, or what it is of."""
    try:
        return _plain(value)
    except Exception:  # no release is lost for a parameter that nobody thought of
        return {"not_kept": value.type if isinstance(value, NotKept) else type(value).__name__}


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [_plain(one) for one in value]}
    if hasattr(value, "tolist"):
        return {"array": _plain(value.tolist())}
    if isinstance(value, Schema):
        return {"schema": value.to_dict()}
    if isinstance(value, Mapping) and all(isinstance(key, str | int | float) for key in value):
        return {"mapping": {str(key): _plain(one) for key, one in value.items()}}  # a label names its text
    name = type(value).__name__
    if catalogue.load(known_classes()[name]) is not type(value):
        raise InvalidInput(f"no file holds a {name}")
    return {"object": name, "fields": {part: _plain(getattr(value, part)) for part in _given(type(value))}}


def _given(cls: Any) -> list[str]:
    """The fields that make an object."""
    known = inspect.signature(cls).parameters
    return [part.name for part in fields(cls) if part.init and part.name in known]


def _read_settings(estimator: type, content: Any) -> dict[str, Any]:
    """The inverse of `_written`, for content that nobody vouches for."""
    if not isinstance(content, dict):
        refuse("it has 'settings' of the wrong kind")
    known = kept_parameters(estimator)
    found = {name: _valued(entry) for name, entry in content.items()}
    if not all(name in known and _fits(known[name], value) for name, value in found.items()):
        refuse("it has settings that no estimator has")
    return found


def _fits(kind: Any, value: Any) -> bool:
    """Whether a parameter can have this value; what is no plain one is checked by the fit that uses it."""
    parts = get_args(kind) or (kind,)
    if isinstance(value, NotKept) or not all(part in _PLAIN for part in parts):
        return not isinstance(value, bool)
    return forms.is_a(value, (*parts, int) if float in parts else parts)


def _valued(entry: Any) -> Any:
    if isinstance(entry, list):
        return [_valued(one) for one in entry]
    if not isinstance(entry, dict):
        forms.check_finite(entry)
        return entry
    match list(entry.items()):
        case [("number", "inf" | "-inf" | "nan" as text)]:
            return float(text)
        case [("tuple", list(parts))]:
            return tuple(_valued(parts))
        case [("array", list(parts))]:
            return np.array(_valued(parts))
        case [("mapping", dict(parts))]:
            return {key: _valued(one) for key, one in parts.items()}
        case [("schema", dict(content))]:
            return Schema.from_dict(content)
        case [("not_kept", str(name))]:
            return NotKept(name[:100])
    check_keys(entry, ("object", "fields"), "a setting")
    name, parts = str(entry["object"]), entry["fields"]
    path = known_classes().get(name) or refuse("it has a setting that no file holds")
    if find_spec(path.partition(".")[0]) is None:
        return NotKept(name)  # a mechanism of curvedp-studies, which is not installed
    cls = catalogue.load(path)
    check_keys(parts, _given(cls), "a setting")
    return cls(**{key: _valued(one) for key, one in parts.items()})
