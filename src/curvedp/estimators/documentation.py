"""What the docstrings of all estimators share, written once."""

from __future__ import annotations

import inspect
from textwrap import dedent
from typing import TypeVar

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
        One of `curvedp.constraints`, on the coefficients of the mapped columns.
    fit_intercept : bool, default=True
        Whether to fit a constant, which no penalty touches.
    x_norm : float, optional
        Clip mapped records to this length; by default what the bounds imply.
    weight_max : float, optional
        The largest weight that `fit` may get as `sample_weight`, public; larger ones are clipped to it. A
        record of full weight counts as one, so that the scale of weights changes nothing, and alpha is in
        units of such records.
    ledger : Ledger or path, optional
        The budget that is charged before anything is computed.
    random_state : int, optional
        A seed, for research: the fit is then not private, and a ledger refuses it."""

_INFERENCE = """\
    inference : bool, default=True
        Whether to spend part of the budget on standard errors; the fit then has `conf_int`,
        `predict_interval`, `coef_se_`, `coef_cov_`, `coef_df_`, `intercept_se_` and `pvalues_`. A fit with a
        penalty, a constraint, more than two classes, a unit or another mechanism has none all the same, and
        `summary` says why."""

_TARGET_BOUNDS = """\
    target_bounds : (low, high), optional
        The public range of the target, never read off the data; targets are clipped to it."""

_CLASSES = """\
    classes : list, optional
        The labels that may occur, declared, never read off the data. Labels are compared as text after
        dropping idle zeros (1, 1.0 and "1" are one label). BEWARE: nobody can notice without looking at the
        data that `["No", "Yes"]` was declared for "no" and "yes"; such records contribute nothing."""

_ATTRIBUTES = """\
    release_ : Release
        Everything that was released; `save` writes it, and what follows are views of it.
    coef_ : array
        Coefficients in the user's units, one per encoded column of `schema_`; of classifiers a row
        per class.
    intercept_ : float or array
        The constant.
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
        The declared labels, sorted."""

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
    >>> from curvedp.estimators import {name}
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
    >>> from curvedp.estimators import {name}
    >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    >>> Y = np.column_stack([5 + 3 * X[:, 0], X[:, 0] - X[:, 1]])
    >>> model = {name}(bounds=(-1, 1), target_bounds=[(0, 10), (-2, 2)]).fit(X, Y)
    >>> model.coef_.shape, model.predict(X[:3]).shape
    ((2, 2), (3, 2))"""

_OF = {"PrivatePoissonRegressor": _COUNTS, "PrivateMultiTaskRidge": _SEVERAL}

Class = TypeVar("Class", bound=type)


def documented(cls: Class) -> Class:
    """The class with what all estimators share added to its summary, parameters and examples."""
    classifies = hasattr(cls, "classes")
    text, _, own_examples = inspect.cleandoc(cls.__doc__ or "").partition("\n\nExamples\n--------\n")
    if "\nParameters\n" not in text:
        text += "\n\nParameters\n----------"
    target = _CLASSES if classifies else _TARGET_BOUNDS
    shared = _PARAMETERS.replace("{target}", target)
    if hasattr(cls, "inference"):
        shared += f"\n{_INFERENCE}"
    example = _OF.get(cls.__name__, _CLASSIFICATION if classifies else _REGRESSION)
    example = example.replace("{name}", cls.__name__)
    sections = [
        f"{text}\n{dedent(shared)}",
        f"Attributes\n----------\n{dedent(_ATTRIBUTES)}" + (dedent(_LABELS) if classifies else ""),
        f"Examples\n--------\n{dedent(example)}",
        *([own_examples] if own_examples else []),
    ]
    cls.__doc__ = "\n\n".join(sections) + "\n"
    return cls
