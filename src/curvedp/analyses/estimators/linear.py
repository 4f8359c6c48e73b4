"""Private regressors and classifiers: declared targets, one private fit, coefficients in the user's units."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin, RegressorMixin

from curvedp.analyses.estimators.base import View
from curvedp.analyses.estimators.refitting import Inferring, Refitting
from curvedp.arrays import FloatArray, TableLike
from curvedp.data.roles import ClassWeight
from curvedp.data.rows.blocked import Beside, Passed
from curvedp.data.schema import Schema
from curvedp.data.targets import ClassTarget, NumericTarget, SeveralTargets, Target
from curvedp.errors import InvalidInput
from curvedp.problems.losses.margin import Huber, Logistic, Loss, Quantile, Squared, SquaredHinge
from curvedp.problems.losses.several import Multinomial, OneVsRest
from curvedp.problems.regularizers import L1, ElasticNet, Regularizer

# What the docstrings of all estimators share, written once.

_PARAMETERS = """\
    epsilon : float, default=1.0
        ε of the promise: one record shifts the odds of any outcome by at most e^ε.
    delta : float, default=1e-6
        δ of the promise: the chance with which it may fail; far below 1/rows.
    schema : Schema, optional
        Declares every column of a raw table, and perhaps the target: text, levels and missing cells are then
        read cell by cell. In its place, `bounds` and what declares the target serve tables of numbers.
    bounds : pair, list of pairs, or dict of pairs, optional
        Public ranges, never read off the data: one `(low, high)` for all columns, one pair per column, or
        `{column: (low, high)}`. Cells outside are clipped.
    formula : str, optional
        Which columns the model learns from, in R's notation: "wage ~ age + I(age**2) + C(region):female", or
        "~ age + log1p(capital)" where the target is declared otherwise. See docs/formulas.md.
{target}
    adjacency : {"replace", "add_remove"}, optional
        Which tables are neighbours. By default what the schema says, else "replace".
    mechanism : str or Mechanism, default="auto"
        How the coefficients are released: a name such as "qop", or an object such as
        `curvedp.mechanisms.QOP(radius=2.0)`. "auto" is the most accurate, recentered QOP.
    constraint : Constraint, optional
        One of `curvedp.problems.constraints`, on the coefficients of the mapped columns.
    fit_intercept : bool, default=True
        Whether to fit a constant, which no penalty touches; absorbed effects leave none. A fit without one
        passes through the middle of the declared bounds: for one through zero, declare them around zero.
    x_norm : float, optional
        Clip mapped records to this length; by default what the bounds imply.
    weight_max : float, optional
        The largest weight that `fit` may get as `sample_weight`, public; larger ones are clipped to it. A
        record of full weight counts as one, so that the scale of weights changes nothing, and alpha is in
        units of such records.
    absorb : str, optional
        The column that says whose row it is, for fixed effects: every row counts as its difference from the
        mean of its person's. For squared losses; also the schema may say it.
    ledger : Ledger, path or Account, optional
        The budget that is charged before anything is computed; see docs/howto/server.md for one of your own.
    random_state : int, optional
        A seed, for research: the fit is then not private, and a ledger refuses it."""

_ALPHA = """\
    alpha : float, default={alpha}
        Weight of the penalty in the SUMMED objective; it acts on the coefficients of the mapped columns."""

_CLASS_WEIGHT = """\
    class_weight : mapping, optional
        Public weights, {class: weight} for every class, none above `weight_max`, which is to be passed, too:
        the fit is that of a population in which classes have these weights."""

_INFERENCE = """\
    inference : bool, default=True
        Whether to spend part of the budget on standard errors; the fit then has `conf_int`,
        `predict_interval`, `coef_se_`, `coef_cov_`, `coef_df_`, `intercept_se_` and `pvalues_`. A fit with a
        penalty, a constraint or another mechanism has none all the same, and `summary` says why."""

_TARGET_BOUNDS = """\
    target_bounds : (low, high), optional
        The public range of the target, never read off the data; targets are clipped to it."""

_CLASSES = """\
    classes : list, optional
        The labels that may occur, declared, never read off the data; of two, the last text or the larger
        number is the event, which coefficients speak for. Labels are compared as text after
        dropping idle zeros (1, 1.0 and "1" are one label). BEWARE: nobody can notice without looking at the
        data that `["No", "Yes"]` was declared for "no" and "yes"; such records contribute nothing."""

_ATTRIBUTES = """\
    release_ : Release
        Everything that was released; `save` writes it, and what follows are views of it.
    coef_ : array
        Coefficients in the user's units, one per encoded column of `schema_`; of classifiers a row
        per class.
    intercept_ : float or array
        The constant; 0 where effects of persons are absorbed.
    privacy_ : Guarantee
        What the release promises: (ε, δ), adjacency, theorem, public parameters, the curve δ(ε).
    record_ : ReleaseRecord
        What is to be filed of the release: date, software, what was tuned.
    receipt_ : Receipt or None
        Where it was charged: ledger, charge number, the hash of the ledger's history; None without a ledger.
    objective_ : LocalObjective or None
        What a recentered release leaves: a private quadratic model of the objective, from which `refit` and
        `path` take other penalties at no cost.
    trust_ : float
        How much of the estimated slopes `coef_` has; below 1 where released numbers say that noise outweighs
        what the fit explains, and the rest is the constant answer. Intervals are of the estimate itself.
    coef_noise_ : array or None
        The standard deviation that privacy noise alone gives each coefficient; NaN where what was released
        does not resolve it, None where it cannot be known.
    coef_noise_reason_ : str
        Why `coef_noise_` is None or has NaN; empty where every coefficient has its noise.
    schema_ : Schema
        The declarations that the fit used; predictions read new tables by them.
    target_ : NumericTarget or ClassTarget
        What was declared of the target.
    columns_ : ColumnMap
        The public map from encoded columns to model columns.
    n_features_in_ : int
        The number of raw columns.
    feature_names_in_ : array of str
        Their names, where X had names."""

_LABELS = """
    classes_ : array
        The declared labels, sorted; `predict_proba` and `decision_function` follow them.
    event_ : label or None
        Of two classes, the one that `coef_`, `conf_int`, `summary` and the model file speak for: what the
        schema calls the event, or the last declared text. `coef_` has the sign of scikit-learn, that of
        `decision_function`, where it is the second of `classes_`, and the other one where it is the first."""

_REGRESSION = """\
    >>> import numpy as np
    >>> from curvedp import {name}
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform([18, 0], [80, 60], (5000, 2))            # age, hours per week
    >>> y = 50 * X[:, 0] + 300 * X[:, 1] + random.normal(0, 3000, 5000)
    >>> model = {name}(bounds=[(16, 90), (0, 80)], target_bounds=(0, 40_000)).fit(X, y)
    >>> model.coef_.shape, model.privacy_.epsilon
    ((2,), 1.0)"""

_CLASSIFICATION = """\
    >>> import numpy as np
    >>> from curvedp import {name}
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(-1, 1, (5000, 3))
    >>> y = np.where(X @ [2.0, -1.0, 0.5] + random.logistic(size=5000) > 0, "yes", "no")
    >>> model = {name}(bounds=(-1, 1), classes=["no", "yes"]).fit(X, y)
    >>> model.predict([[1.0, -1.0, 1.0]]).tolist(), model.coef_.shape
    (['yes'], (1, 3))"""

_COUNTS = """\
    >>> import numpy as np
    >>> from curvedp.analyses.estimators import {name}
    >>> random = np.random.default_rng(0)
    >>> X, days = random.uniform(-1, 1, (5000, 2)), random.uniform(1, 30, 5000)
    >>> y = random.poisson(days * np.exp(X @ [0.5, -0.3] - 1.0))
    >>> model = {name}(bounds=(-1, 1), target_bounds=(0, 50), exposure_bounds=(1, 30))
    >>> model.fit(X, y, exposure=days).coef_.shape
    (2,)
    >>> model.predict(X[:3], exposure=[1, 10, 30]).shape
    (3,)"""

_SEVERAL = """\
    >>> import numpy as np
    >>> from curvedp.analyses.estimators import {name}
    >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    >>> Y = np.column_stack([5 + 3 * X[:, 0], X[:, 0] - X[:, 1]])
    >>> model = {name}(bounds=(-1, 1), target_bounds=[(0, 10), (-2, 2)]).fit(X, Y)
    >>> model.coef_.shape, model.predict(X[:3]).shape
    ((2, 2), (3, 2))"""

_OF = {"PrivatePoissonRegressor": _COUNTS, "PrivateMultiTaskRidge": _SEVERAL}

Class = TypeVar("Class", bound=type)


@dataclass_transform(kw_only_default=True, eq_default=False)
def estimator(cls: Class) -> Class:
    """The class as a keyword-only dataclass, its docstring with what those of all estimators share."""
    classifies = hasattr(cls, "classes")
    text, _, own_examples = inspect.cleandoc(cls.__doc__ or "").partition("\n\nExamples\n--------\n")
    if "\nParameters\n" not in text:
        text += "\n\nParameters\n----------"
    shared = [_PARAMETERS.replace("{target}", _CLASSES if classifies else _TARGET_BOUNDS)]
    if hasattr(cls, "alpha") and "\nalpha : " not in text:
        shared.insert(0, _ALPHA.replace("{alpha}", str(cls.alpha)))
    shared += [_CLASS_WEIGHT] if classifies else []
    shared += [_INFERENCE] if hasattr(cls, "inference") else []
    example = _OF.get(cls.__name__, _CLASSIFICATION if classifies else _REGRESSION)
    example = example.replace("{name}", cls.__name__)
    sections = [
        "\n".join([text, *map(dedent, shared)]),
        f"Attributes\n----------\n{dedent(_ATTRIBUTES)}" + (dedent(_LABELS) if classifies else ""),
        f"Examples\n--------\n{dedent(example)}",
        *([own_examples] if own_examples else []),
    ]
    cls.__doc__ = "\n\n".join(sections) + "\n"
    return dataclass(kw_only=True, eq=False, repr=False)(cls)  # type: ignore[return-value]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(RegressorMixin, Refitting):  # type: ignore[misc]
    """Regression on a declared target range, mapped to [−1, 1] for the fit."""

    target_bounds: tuple[float, float] | None = None

    def _declared_target(self) -> Target:
        declared = self._schema_target(NumericTarget, "target_bounds", "a category: use a classifier")
        if declared is not None:
            return declared
        if self.target_bounds is None:
            raise InvalidInput(
                "pass target_bounds=(low, high): the public range of the target, never read off the data"
            )
        try:
            low, high = self.target_bounds
        except (TypeError, ValueError):
            raise InvalidInput("target_bounds must be a pair (low, high)") from None
        return NumericTarget(low, high)

    def _loss(self, target: Target) -> Loss:
        return Squared()

    def predict(self, X: TableLike) -> FloatArray:
        """clip(X, bounds)·coef_ + intercept_, clipped to the declared range of the target.

        Where effects of persons are absorbed, clip(X, bounds)·coef_ as it is: the difference of two
        predictions is what is predicted for a change within a person.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        y : array of shape (n,), of several targets (n, targets)
            Predictions in the user's units, within the bounds of the target: noise can carry the linear part
            beyond them, and no target lies there.
        """
        margins, target = self._margins(X), self.target_
        if not self.columns_.absorbed:
            if isinstance(target, SeveralTargets):
                ends: Any = target.offsets - target.scales, target.offsets + target.scales
            else:
                ends = target.low, target.high  # type: ignore[union-attr]
            margins = np.clip(margins, *ends)
        return margins if self._several else margins[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a private fit of a few dozen rows is mostly noise
        return tags


@estimator
class PrivateLinearRegression(Inferring, PrivateRegressor):
    """Linear regression: min Σ ½(xᵀθ − y)², released under (ε, δ)-differential privacy."""


@estimator
class PrivateRidge(PrivateRegressor):
    """Ridge regression: min Σ ½(xᵀθ − y)² + (alpha/2)‖θ‖², released under (ε, δ)-differential privacy."""

    alpha: float = 1.0


@estimator
class PrivateLasso(PrivateRegressor):
    """Lasso: min Σ ½(xᵀθ − y)² + alpha‖θ‖₁, released under (ε, δ)-differential privacy.

    Examples
    --------
    The same from a raw table with text in it:

    >>> from curvedp import Categorical, Numeric, Schema
    >>> columns = Numeric("age", 16, 90), Categorical("sex", ("f", "m")), Numeric("wage", 0, 40_000)
    >>> table = {"age": [34, "n/a", 51], "sex": ["f", "m", "?"], "wage": [2800, 3100, None]}
    >>> model = PrivateLasso(schema=Schema(columns, target="wage")).fit(table)
    >>> model.schema_.feature_names
    ('age', 'sex=f', 'sex=m')
    """

    alpha: float = 1.0

    def _regularizer(self) -> Regularizer:
        return L1(self.alpha)


@estimator
class PrivateElasticNet(PrivateRegressor):
    """Elastic net: Σ ½(xᵀθ − y)² + alpha(l1_ratio‖θ‖₁ + ½(1−l1_ratio)‖θ‖²), (ε, δ)-differentially private.

    Parameters
    ----------
    l1_ratio : float, default=0.5
        The part of the l1 norm in the penalty, between 0 and 1.
    """

    alpha: float = 1.0
    l1_ratio: float = 0.5

    def _regularizer(self) -> Regularizer:
        return ElasticNet(self.alpha, self.l1_ratio)


@estimator
class PrivateHuberRegressor(Inferring, PrivateRidge):
    """Huber regression: min Σ Huber(xᵀθ − y) + (alpha/2)‖θ‖², released under (ε, δ)-differential privacy.

    Parameters
    ----------
    width : float, default=0.25
        Residuals beyond it count linearly; in units of half the target range.
    """

    width: float = 0.25

    def _loss(self, target: Target) -> Loss:
        return Huber(self.width)


@estimator
class PrivateQuantileRegressor(Inferring, PrivateLasso):
    """Quantile regression: min Σ ρ(y − xᵀθ) + alpha‖θ‖₁, ρ(r) = r(quantile − 1{r < 0}), (ε, δ)-DP.

    A record pulls by max(quantile, 1 − quantile) at most, however far its target is: bounds of the target
    only say within what the fit looks and predicts. Fits of two quantiles may cross where records are few.

    Parameters
    ----------
    quantile : float, default=0.5
        The share of targets that is to lie below the prediction; between 0 and 1.
    width : float, default=0.1
        What ρ is smoothed over before anything is known, in units of half the target range. The default
        mechanism finds a width of its own from released numbers and ends with next to none; others keep it.
    """

    quantile: float = 0.5
    alpha: float = 0.0
    width: float = 0.1

    def _loss(self, target: Target) -> Loss:
        return Quantile(self.width, quantile=self.quantile)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, Refitting):  # type: ignore[misc]
    """Classification among declared classes."""

    classes: Sequence[Any] | None = None
    alpha: float = 0.0
    class_weight: Mapping[Any, float] | None = None

    def _declared_target(self) -> Target:
        if (declared := self._schema_target(ClassTarget, "classes", "a number: use a regressor")) is not None:
            return declared
        if self.classes is None:
            raise InvalidInput("pass classes=[...]: the labels that may occur, declared, never read off data")
        return ClassTarget(tuple(self.classes))

    def _beside(self, schema: Schema, passed: Passed) -> Beside:
        found, target = super()._beside(schema, passed), self._declared_target()
        if self.class_weight is None:
            return found
        if found.weight is not None:
            raise InvalidInput(
                "records have weights: leave `class_weight` out, and multiply them by those of their classes"
            )
        assert isinstance(target, ClassTarget)
        return replace(found, weight=ClassWeight(target, self.class_weight, self.weight_max))

    classes_: ClassVar[Any] = View(lambda release: release.target.labels)  # type: ignore[union-attr]
    event_: ClassVar[Any] = View(lambda release: release.target.event)  # type: ignore[union-attr]

    def _class_margins(self, X: TableLike) -> FloatArray:
        """Margins in the order of `classes_`, of two those of the second: `coef_` is about the event."""
        margins = self._margins(X)
        return -margins if self.target_.turned else margins  # type: ignore[union-attr]

    def decision_function(self, X: TableLike) -> FloatArray:
        """Margins of new records.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        margins : array of shape (n,) or (n, classes)
            For two classes one number per record, positive: the second of `classes_`.
        """
        margins = self._class_margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: TableLike) -> NDArray[Any]:
        """The class with the largest margin.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        labels : array of shape (n,)
            Declared labels.
        """
        margins = self.decision_function(X)
        index = margins > 0 if margins.ndim == 1 else margins.argmax(axis=1)
        return self.target_.decode(index)  # type: ignore[union-attr]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a private fit of a few dozen rows is mostly noise
        tags.classifier_tags.multi_class = self.classes is None or len(self.classes) > 2
        return tags


@estimator
class PrivateLogisticRegression(Inferring, PrivateClassifier):
    """Logistic (two classes) or multinomial regression + (alpha/2)‖θ‖², under (ε, δ)-differential privacy."""

    def _loss(self, target: Target) -> Loss:
        assert isinstance(target, ClassTarget)
        K = len(target.classes)
        return Logistic() if K == 2 else Multinomial(K)

    def predict_proba(self, X: TableLike) -> FloatArray:
        """Class probabilities.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        probabilities : array of shape (n, classes)
            In the order of `classes_`.
        """
        margins = self._class_margins(X)
        predicted = self._loss(self.target_).inverse_link(margins)
        return predicted if predicted.shape[1] > 1 else np.column_stack([1.0 - predicted, predicted])

    def predict_log_proba(self, X: TableLike) -> FloatArray:
        """Logarithms of `predict_proba`, from the margins: they do not underflow.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        logarithms : array of shape (n, classes)
            In the order of `classes_`.
        """
        margins = self._class_margins(X)
        if margins.shape[1] == 1:
            margins = np.column_stack([np.zeros(len(margins)), margins[:, 0]])
        return np.asarray(log_softmax(margins, axis=1))


@estimator
class PrivateLinearSVC(PrivateClassifier):
    """Squared hinge + (alpha/2)‖θ‖², one class against the rest, under (ε, δ)-differential privacy."""

    def _loss(self, target: Target) -> Loss:
        assert isinstance(target, ClassTarget)
        K = len(target.classes)
        return SquaredHinge() if K == 2 else OneVsRest(SquaredHinge(), K)
