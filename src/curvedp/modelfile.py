"""A released model as one JSON document: coefficients, schema, guarantee. No code in it, checked when read.

It holds what was released and what is public, nothing else: anyone may read it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC

from curvedp import __version__
from curvedp.domain import FloatArray
from curvedp.errors import InvalidInput, ModelFileError
from curvedp.schema import Schema

FORMAT = "curvedp-model"
FORMAT_VERSION = 1
Task = Literal["regression", "classification"]

PLAIN: Mapping[str, type[Any]] = {
    "PrivateLinearRegression": LinearRegression,
    "PrivateRidge": LinearRegression,
    "PrivateLasso": LinearRegression,
    "PrivateElasticNet": LinearRegression,
    "PrivateHuberRegressor": LinearRegression,
    "PrivateLogisticRegression": LogisticRegression,
    "PrivateLinearSVC": LinearSVC,
}
_KEYS: Mapping[str, type | tuple[type, ...]] = {
    "format": str,
    "format_version": int,
    "curvedp_version": str,
    "estimator": str,
    "task": str,
    "theorem": str,
    "guarantee": dict,
    "schema": dict,
    "features": list,
    "coefficients": list,
    "intercept": list,
    "classes": (list, type(None)),
}
_GUARANTEE_KEYS: Mapping[str, type | tuple[type, ...]] = {
    "epsilon": (int, float),
    "delta": (int, float),
    "adjacency": str,
    "mechanism": str,
    "accounting": str,
    "theorem": str,
    "parameters": dict,
    "private": bool,
}


@dataclass(frozen=True, eq=False)
class ModelDocument:
    """A linear model in the user's units: margins X·coefᵀ + intercept of the schema's encoded columns.

    `coef` has shape (outputs, encoded columns), `intercept` (outputs,); one output for regression and for
    two classes (positive: the second), one per class otherwise. `guarantee` is `Guarantee.to_dict()`.
    """

    estimator: str
    schema: Schema
    coef: FloatArray
    intercept: FloatArray
    classes: tuple[Any, ...] | None
    guarantee: Mapping[str, Any]
    version: str = __version__

    def __post_init__(self) -> None:
        if self.estimator not in PLAIN:
            _refuse(f"it names an unknown estimator {self.estimator!r}")
        if (self.classes is None) != (self.task == "regression"):
            _refuse("classes belong to a classifier, and to nothing else")
        outputs = 1
        if self.classes is not None:
            if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
                _refuse("it must list at least two different classes")
            outputs = 1 if len(self.classes) == 2 else len(self.classes)
        if self.coef.shape != (outputs, len(self.schema.feature_names)) or self.intercept.shape != (outputs,):
            _refuse("its coefficients do not match its schema and classes")
        if not (np.all(np.isfinite(self.coef)) and np.all(np.isfinite(self.intercept))):
            _refuse("a coefficient is not a finite number")
        _check_types(self.guarantee, _GUARANTEE_KEYS, "its guarantee")
        epsilon, delta = self.guarantee["epsilon"], self.guarantee["delta"]
        if not (0 <= epsilon < math.inf and 0 <= delta < 1):
            _refuse("its guarantee is not an (ε, δ) with 0 ≤ ε and 0 ≤ δ < 1")

    @classmethod
    def of(cls, model: Any, schema: Schema) -> ModelDocument:
        """The document of a fitted estimator of curvedp whose columns were encoded by `schema`."""
        name = type(model).__name__
        if name not in PLAIN:
            raise InvalidInput(f"a {name} has no model file: pass a fitted estimator of curvedp")
        width = len(schema.feature_names)
        return cls(
            estimator=name,
            schema=schema,
            coef=np.array(model.coef_, dtype=np.float64).reshape(-1, width),
            intercept=np.array(model.intercept_, dtype=np.float64).reshape(-1),
            classes=None if _task(name) == "regression" else tuple(np.asarray(model.classes_).tolist()),
            guarantee=model.privacy_.to_dict(),
        )

    @property
    def task(self) -> Task:
        return _task(self.estimator)

    @property
    def theorem(self) -> str:
        """The theorem that the guarantee rests on."""
        return str(self.guarantee["theorem"])

    def predict(self, table: Any, *, delimiter: str = ",") -> NDArray[Any]:
        """Predictions for a CSV file, a data frame, a mapping {column: cells} or a matrix of encoded columns.

        Bad values follow the rule of the schema, as they did in the fit.
        """
        if isinstance(table, np.ndarray):
            X = self.schema.column_map().clip(table)
        else:
            X = self.schema.encode_features(table, delimiter=delimiter)
        return np.asarray(self.to_sklearn().predict(X))

    def to_sklearn(self) -> Any:
        """A plain scikit-learn model with these coefficients, for the columns of `schema.encode_features`."""
        model = PLAIN[self.estimator]()
        model.n_features_in_ = self.coef.shape[1]
        if self.classes is None:
            model.coef_, model.intercept_ = self.coef[0].copy(), float(self.intercept[0])
        else:
            model.coef_, model.intercept_ = self.coef.copy(), self.intercept.copy()
            model.classes_ = np.array(self.classes)
        return model

    def to_dict(self) -> dict[str, Any]:
        """The JSON document as plain values."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "curvedp_version": self.version,
            "estimator": self.estimator,
            "task": self.task,
            "theorem": self.theorem,
            "guarantee": dict(self.guarantee),
            "schema": self.schema.to_dict(),
            "features": list(self.schema.feature_names),
            "coefficients": self.coef.tolist(),
            "intercept": self.intercept.tolist(),
            "classes": None if self.classes is None else list(self.classes),
        }

    @classmethod
    def from_dict(cls, content: Any) -> ModelDocument:
        """The inverse of `to_dict`, for content that nobody vouches for."""
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            _refuse("it does not say that it is one")
        version = content.get("format_version")
        if isinstance(version, int) and version > FORMAT_VERSION:
            made_by = str(content.get("curvedp_version"))
            raise ModelFileError(
                f"the model file was made by a newer curvedp ({made_by}, format {version}): upgrade curvedp"
            )
        _check_types(content, _KEYS, "it")
        if version != FORMAT_VERSION:
            _refuse(f"its format version {version!r} is unknown")
        try:
            schema = Schema.from_dict(content["schema"])
        except InvalidInput as error:
            _refuse(f"its schema is wrong: {error}")
        document = cls(
            estimator=content["estimator"],
            schema=schema,
            coef=_numbers(content["coefficients"], ndim=2),
            intercept=_numbers(content["intercept"], ndim=1),
            classes=None if content["classes"] is None else _labels(content["classes"]),
            guarantee=content["guarantee"],
            version=content["curvedp_version"],
        )
        repeated = document.to_dict()
        for key in ("task", "theorem", "features"):
            if content[key] != repeated[key]:
                _refuse(f"its {key} contradicts the rest of it")
        return document


def save(document: ModelDocument, path: str | os.PathLike[str]) -> None:
    """Write the document; the file is complete or it is not there, an earlier one stays until then."""
    target = Path(path)
    text = json.dumps(document.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ModelFileError(
            f"cannot write {target} ({error.strerror}): choose a folder that exists and can be written"
        ) from None


def load(path: str | os.PathLike[str]) -> ModelDocument:
    """Read a model file, or say why it cannot be trusted."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ModelFileError(f"cannot read {path} ({error.strerror}): check the path") from None
    except UnicodeDecodeError:
        _refuse("it is not text")
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError):
        _refuse("it is not JSON")
    return ModelDocument.from_dict(content)


def _task(estimator: str) -> Task:
    return "regression" if PLAIN[estimator] is LinearRegression else "classification"


def _refuse(why: str) -> NoReturn:
    raise ModelFileError(
        f"this is not a sound curvedp model file: {why}; check the path, or release it again"
    )


def _refuse_constant(name: str) -> NoReturn:
    _refuse(f"it holds {name}, which is not a finite number")


def _check_types(content: Mapping[str, Any], keys: Mapping[str, type | tuple[type, ...]], what: str) -> None:
    for key, kinds in keys.items():
        if key not in content:
            _refuse(f"{what} has no {key!r}")
        value = content[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            _refuse(f"{what} has a {key!r} of the wrong kind")


def _numbers(values: Any, ndim: int) -> FloatArray:
    """A nested list of plain numbers as an array."""
    rows = values if ndim == 2 else [values]
    if not all(isinstance(row, list) for row in rows) or len({len(row) for row in rows}) > 1:
        _refuse("its coefficients are not a table")
    if not all(type(value) in (int, float) for row in rows for value in row):
        _refuse("a coefficient is not a number")
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:
        _refuse("a coefficient is not a finite number")


def _labels(values: list[Any]) -> tuple[Any, ...]:
    if not all(isinstance(value, str | int | float) for value in values):
        _refuse("a class is neither text nor a number")
    if len({type(value) for value in values}) > 1:
        _refuse("its classes are of different kinds")
    return tuple(values)
