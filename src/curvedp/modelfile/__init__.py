"""A released model as one JSON document: coefficients, schema, guarantee. No code in it, checked when read.

It holds what was released and what is public, nothing else: anyone may read it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curvedp import __version__, catalogue
from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.errors import CurvedpError, InvalidInput, ModelFileError, refuse_special
from curvedp.modelfile import guarantees
from curvedp.modelfile.checks import check, check_finite, is_a, numbers, plain_json, refuse, unsound
from curvedp.outputs import write_file
from curvedp.privacy.guarantee import Guarantee
from curvedp.record import ReleaseRecord
from curvedp.released import inference_file
from curvedp.released.inference import Inference
from curvedp.released.noise import UNTOLD, CoefficientNoise
from curvedp.released.quadratic_model import LocalObjective
from curvedp.released.units import UserUnits
from curvedp.schema import ClassTarget, CountTarget, NumericTarget, Schema
from curvedp.schema.delimited import csv_tables
from curvedp.schema.targets import (
    SeveralTargets,
    Target,
    agrees,
    entry_target,
    target_entry,
    target_parameters,
)

FORMAT = "curvedp-model"
FORMAT_VERSION = 2
SETTINGS: Mapping[str, tuple[type, ...]] = {  # what of an estimator's parameters is kept
    "alpha": (int, float),
    "l1_ratio": (int, float),
    "width": (int, float),
    "x_norm": (int, float, type(None)),
    "weight_max": (int, float, type(None)),
    "max_rate": (int, float, type(None)),
    "fit_intercept": (bool,),
    "mechanism": (str,),
    "inference": (bool,),
}
_KEYS: dict[str, tuple[type, ...]] = {
    "format": (str,),
    "format_version": (int,),
    "curvedp_version": (str,),
    "estimator": (str,),
    "settings": (dict,),
    "guarantee": (dict,),
    "schema": (dict,),
    "target": (dict,),
    "features": (list,),
    "named": (bool,),
    "coefficients": (list,),
    "intercept": (list,),
}
_OPTIONAL: dict[str, tuple[type, ...]] = {
    "objective": (dict,),
    "noise": (dict,),
    "inference": (dict,),
    "trust": (int, float),
    "record": (dict,),
}


@dataclass(frozen=True, eq=False)
class ModelDocument:
    """A linear model in the user's units: margins X·coefᵀ + intercept of the schema's encoded columns.

    `coef` has shape (outputs, encoded columns), `intercept` (outputs,); one output for regression and for
    two classes (positive: the second), one per class otherwise. `named` says that the fit's table had names.
    """

    estimator: str
    schema: Schema
    target: Target
    coef: FloatArray
    intercept: FloatArray
    privacy: Guarantee
    named: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__
    objective: LocalObjective | None = None
    noise: CoefficientNoise = field(default_factory=CoefficientNoise)
    inference: Inference | None = None
    trust: float = 1.0
    record: ReleaseRecord | None = None

    def __post_init__(self) -> None:
        classes = self.classes
        if (classes is None) != (self.entry.task != "classification"):
            refuse("classes belong to a classifier, and to nothing else")
        if self.schema.has_target and not agrees(self.schema.declared_target, self.target):
            refuse("its target contradicts its schema")
        several = isinstance(self.target, SeveralTargets)
        if several != (self.entry.task == "several"):
            refuse("several targets belong to a model of several targets, and to nothing else")
        outputs = 1 if classes is None or len(classes) == 2 else len(classes)
        if isinstance(self.target, SeveralTargets):
            outputs = len(self.target.targets)
        if self.coef.shape != (outputs, len(self.schema.feature_names)) or self.intercept.shape != (outputs,):
            refuse("its coefficients do not match its schema and classes")
        d = self.columns.d
        if self.objective is not None and self.objective.centre.shape != (d, outputs):
            refuse("its model of the objective does not match its schema and classes")
        if not (np.all(np.isfinite(self.coef)) and np.all(np.isfinite(self.intercept))):
            refuse("a coefficient is not a finite number")
        if self.inference is not None:
            units, told = UserUnits.of(self.columns, self.target), np.append(self.coef, self.intercept)
            if outputs > 1 or not inference_file.agrees(self.inference, units, told, self.trust):
                refuse("its inference contradicts its coefficients")
        if not 0.0 <= self.trust <= 1.0:
            refuse("its trust is not a share")

    @property
    def columns(self) -> ColumnMap:
        """From encoded columns to model columns."""
        intercept = 1.0 if self.settings.get("fit_intercept", True) else 0.0
        return self.schema.column_map(intercept=intercept, x_norm=self.settings.get("x_norm"))

    @classmethod
    def of(cls, model: Any) -> ModelDocument:
        """The document of a fitted estimator of curvedp."""
        name = type(model).__name__
        entry = catalogue.estimator_of(name)
        if not isinstance(model, entry.load()) or not hasattr(model, "privacy_"):
            raise InvalidInput(f"this {name} has no model file: pass a fitted estimator of curvedp")
        width = len(model.schema_.feature_names)
        return cls(
            estimator=name,
            schema=model.schema_,
            target=model.target_,
            coef=np.array(model.coef_, dtype=np.float64).reshape(-1, width),
            intercept=np.array(model.intercept_, dtype=np.float64).reshape(-1),
            privacy=model.privacy_,
            named=hasattr(model, "feature_names_in_"),
            settings=_settings(model),
            objective=model.objective_ if model.constraint is None else None,  # a file knows no constraint
            noise=CoefficientNoise.of(model.coef_noise_, model.coef_noise_reason_, width),
            inference=model.inference_,
            trust=model.trust_,
            record=model.record_,
            version=__version__
            if model.record_ is None
            else model.record_.versions.get("curvedp", __version__),
        )

    def with_file(self, **format: str | None) -> ModelDocument:
        """For tables in files that are written otherwise; see `Schema.with_file`."""
        schema = self.schema.with_file(**format)
        return replace(self, schema=schema, target=_target(target_entry(self.target), schema))

    @property
    def entry(self) -> catalogue.EstimatorEntry:
        return catalogue.estimator_of(self.estimator)

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The labels in the order of the outputs; None of a regression."""
        return tuple(self.target.labels.tolist()) if isinstance(self.target, ClassTarget) else None

    @property
    def _flat(self) -> bool:
        """Whether coefficients of the estimator are one row: a number or a count is predicted."""
        return isinstance(self.target, NumericTarget | CountTarget)

    def predict(self, table: Any, *, delimiter: str | None = None) -> NDArray[Any]:
        """Predictions for a CSV file, a data frame, a mapping {column: cells} or a matrix of columns.

        Bad values follow the rule of the schema, as they did in the fit.
        """
        model = self.to_estimator()
        if isinstance(table, str | os.PathLike):
            chunks = csv_tables(table, delimiter=delimiter, file=self.schema.file)
            return np.concatenate([model.predict(chunk.columns) for chunk in chunks])
        return np.asarray(model.predict(table))

    def to_estimator(self) -> Any:
        """A fitted estimator of curvedp that predicts the same and states the same guarantee."""
        made: Any = self.entry.load()
        known = made._get_param_names()
        given = {name: value for name, value in self.settings.items() if name in known}
        given |= {"epsilon": self.privacy.epsilon, "delta": self.privacy.delta, "schema": self.schema}
        if not self.schema.has_target:
            given |= target_parameters(self.target)
        model = made(**given)
        fitted: dict[str, Any] = {
            "schema_": self.schema,
            "columns_": self.columns,
            "target_": self.target,
            "privacy_": self.privacy,
            "objective_": self.objective,
            "inference_": self.inference,
            "trust_": self.trust,
            "record_": self.record,
            "receipt_": None if self.record is None else self.record.receipt,
            "coef_noise_": self.noise.shaped(self.coef[0] if self._flat else self.coef),
            "coef_noise_reason_": self.noise.reason,
            "n_features_in_": len(self.schema.features),
            "coef_": self.coef[0].copy() if self._flat else self.coef.copy(),
            "intercept_": float(self.intercept[0]) if self._flat else self.intercept.copy(),
        }
        if isinstance(self.target, ClassTarget):
            fitted["classes_"] = self.target.labels
        if self.named:
            fitted["feature_names_in_"] = np.array([c.name for c in self.schema.features], dtype=object)
        vars(model).update(fitted)
        return model

    def to_sklearn(self) -> Any:
        """A plain scikit-learn model with these coefficients, for the columns that `schema.read` encodes."""
        model = self.entry.plain()()
        if isinstance(self.target, CountTarget):
            model._base_loss = model._get_loss()  # its link, which a fit would have set
        model.n_features_in_ = self.coef.shape[1]
        model.coef_, model.intercept_ = self.coef.copy(), self.intercept.copy()
        if isinstance(self.target, ClassTarget):
            model.classes_ = self.target.labels.copy()
        if self._flat:
            model.coef_, model.intercept_ = self.coef[0].copy(), float(self.intercept[0])
        return model

    def to_dict(self) -> dict[str, Any]:
        """The JSON document as plain values."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "curvedp_version": self.version,
            "estimator": self.estimator,
            "settings": dict(self.settings),
            "guarantee": guarantees.to_dict(self.privacy),
            "schema": self.schema.to_dict(),
            "target": target_entry(self.target),
            "features": list(self.schema.feature_names),
            "named": self.named,
            "coefficients": self.coef.tolist(),
            "intercept": self.intercept.tolist(),
            **({} if self.objective is None else {"objective": self.objective.to_dict()}),
            **({} if self.noise.reason == UNTOLD else {"noise": self.noise.to_dict()}),
            **({} if self.inference is None else {"inference": inference_file.to_dict(self.inference)}),
            **({} if self.trust == 1.0 else {"trust": self.trust}),
            **({} if self.record is None else {"record": self.record.to_dict()}),
        }

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, content: Any) -> ModelDocument:
        """The inverse of `to_dict`, for content that nobody vouches for."""
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            refuse("it does not say that it is one")
        _check_version(content)
        check(content, _KEYS | {key: kind for key, kind in _OPTIONAL.items() if key in content}, "it")
        try:
            return cls._read(content)
        except ModelFileError:
            raise
        except CurvedpError as error:
            problem = " ".join(str(error).split())[:300]
        except Exception as error:  # whatever content nobody thought of
            problem = f"it cannot be read ({type(error).__name__})"
        raise unsound(problem)

    @classmethod
    def _read(cls, content: dict[str, Any]) -> ModelDocument:
        settings = content["settings"]
        for name, value in settings.items():
            if name not in SETTINGS or not is_a(value, SETTINGS[name]):
                refuse("it has settings that no estimator has")
            check_finite(value)
        coef, schema = numbers(content["coefficients"], ndim=2), Schema.from_dict(content["schema"])
        noise, inference = content.get("noise", {"reason": UNTOLD}), content.get("inference")
        document = cls(
            estimator=content["estimator"],
            schema=schema,
            target=_target(content["target"], schema),
            coef=coef,
            intercept=numbers(content["intercept"], ndim=1),
            privacy=guarantees.from_dict(content["guarantee"]),
            named=content["named"],
            settings=settings,
            version=content["curvedp_version"],
            objective=LocalObjective.from_dict(content["objective"]) if "objective" in content else None,
            noise=CoefficientNoise.from_dict(noise, coef.shape),
            inference=None if inference is None else inference_file.from_dict(inference),
            trust=float(content.get("trust", 1.0)),
            record=ReleaseRecord.from_dict(content["record"], schema) if "record" in content else None,
        )
        if content["features"] != list(document.schema.feature_names):
            refuse("its features contradict its schema")
        return document


def save(
    document: ModelDocument,
    path: str | os.PathLike[str],
    *,
    ledger: str | os.PathLike[str] | None = None,
) -> None:
    """Write the document; the file is complete or it is not there, an earlier one stays until then.

    Refused where `path` is the `ledger`.
    """
    try:
        write_file(path, document.to_json(), ledger=ledger)
    except InvalidInput as error:
        problem = str(error)
    else:
        return
    raise ModelFileError(problem)


def load(path: str | os.PathLike[str]) -> ModelDocument:
    """Read a model file, or say why it cannot be trusted."""
    refuse_special(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ModelFileError(f"cannot read {path} ({error.strerror}): check the path") from None
    except UnicodeDecodeError:
        refuse("it is not text")
    return ModelDocument.from_dict(plain_json(text))


def _settings(model: Any) -> dict[str, Any]:
    """The plain parameters of an estimator; a mechanism by its name."""
    values = {name: getattr(model, name) for name in SETTINGS if hasattr(model, name)}
    chosen = values.pop("mechanism")
    name = chosen if isinstance(chosen, str) else getattr(chosen, "name", None)
    if name == "auto" or name in catalogue.MECHANISMS:
        values["mechanism"] = name
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}
    return {k: v for k, v in plain.items() if is_a(v, SETTINGS[k])}


def _target(entry: Mapping[str, Any], schema: Schema) -> Target:
    """The target that a file names, its cells read as the schema declares."""
    return entry_target(entry, schema.target_column if schema.has_target else None)


def _check_version(content: dict[str, Any]) -> None:
    version = content.get("format_version")
    if type(version) is not int:
        refuse("its format version is of the wrong kind")
    if version > FORMAT_VERSION:
        made_by = str(content.get("curvedp_version"))[:40]
        raise ModelFileError(
            f"the model file was made by a newer curvedp ({made_by}, format {version:.6g}): upgrade curvedp"
            if abs(version) < 10**6
            else "the model file was made by a newer curvedp: upgrade curvedp"
        )
    if version == 1:
        raise ModelFileError(
            "the model file was made by curvedp 0.1, which this version does not read: fit again"
        )
    if version != FORMAT_VERSION:
        refuse("its format version is unknown")
