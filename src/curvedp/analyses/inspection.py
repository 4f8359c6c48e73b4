"""`inspect`: what in a scikit-learn pipeline the guarantee of a private estimator does not cover."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid, PredefinedSplit
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import get_tags

from curvedp.analyses.estimators.base import PrivateLinearModel
from curvedp.analyses.scores.door import PrivateScorer
from curvedp.analyses.search import PrivateSearch

_INNER = ("estimator", "base_estimator", "regressor", "classifier", "final_estimator", "transformer")
_LISTS = ("steps", "transformers", "transformer_list", "estimators")
_DECLARED_BY = {"OneHotEncoder": "categories", "OrdinalEncoder": "categories", "LabelBinarizer": None}
# Learn the number of columns and nothing else.
_ONLY_WIDTH = frozenset({"PolynomialFeatures", "FeatureHasher", "HashingVectorizer"})


@dataclass(frozen=True)
class Finding:
    """One thing that is not covered: where it stands, and why."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found: what is not covered, and how many private fits and scores one `fit` makes.

    What they cost together is by basic composition, as a ledger counts; None where not known beforehand.
    """

    findings: tuple[Finding, ...]
    fits: int | None
    epsilon: float | None
    delta: float | None
    scores: int = 0

    @property
    def covered(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.findings] or ["Everything in it is covered."]
        if self.fits is None:
            lines.append("How many private fits it makes is not known beforehand: a ledger counts them.")
        elif self.fits:
            lines.append(
                f"One fit of it makes {self.fits} private fit{'s' if self.fits > 1 else ''}"
                f"{f' and {self.scores} private scores' if self.scores else ''}: "
                f"ε = {self.epsilon:g}, δ = {self.delta:g} in all."
            )
        return "\n".join(lines)


def inspect(pipeline: Any) -> Inspection:
    """Name what in a scikit-learn pipeline, search or ensemble is not covered by a private estimator in it.

    Looks at the objects alone: no data, nothing is fitted or charged.

    Parameters
    ----------
    pipeline : estimator or function
        A pipeline, a search, an ensemble or any estimator, fitted or not; or a function of scikit-learn's
        `model_selection`.

    Returns
    -------
    inspection : Inspection
        Findings, the number of private fits, and what they cost together; print it.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> import curvedp
    >>> model = curvedp.PrivateRidge(bounds=(-3, 3), target_bounds=(0, 1), ledger="budget.db")
    >>> print(curvedp.inspect(make_pipeline(StandardScaler(), model)))
    standardscaler: a StandardScaler is fitted on the private rows without noise: declare bounds instead
    One fit of it makes 1 private fit: ε = 1, δ = 1e-06 in all.
    """
    if getattr(pipeline, "__module__", "").startswith("sklearn.model_selection") and callable(pipeline):
        name = pipeline.__name__
        why = _SHUFFLES if name == "train_test_split" else _SCORES
        return Inspection((Finding(name, why),), 0, 0.0, 0.0)
    found = list(_walk(pipeline, type(pipeline).__name__))
    findings = tuple(dict.fromkeys(entry for entry in found if isinstance(entry, Finding)))
    private = [entry for entry in found if not isinstance(entry, Finding)]
    if math.isnan(sum(times for _, times in private)):
        return Inspection(findings, None, None, None)
    scores = int(sum(times for model, times in private if isinstance(model, PrivateScorer)))
    epsilon, delta = (sum(times * getattr(m, name) for m, times in private) for name in ("epsilon", "delta"))
    return Inspection(findings, int(sum(times for _, times in private)) - scores, epsilon, delta, scores)


def _walk(part: Any, where: str, fits: float = 1) -> Iterator[Finding | tuple[Any, float]]:
    """Everything inside `part`: what is not covered, what is private and how often it runs (NaN: unknown)."""
    if isinstance(part, (PrivateLinearModel, PrivateSearch)):
        yield part, fits
        if part.ledger is None:
            yield Finding(where, "no ledger: nothing keeps count of what its fits cost")
        if part.random_state is not None:
            yield Finding(where, "a fixed seed: its noise can be repeated, so it is not private")
        return
    inner = list(_parts(part))
    if isinstance(part, BaseSearchCV):
        made, scorer = _search_fits(part), part.scoring
        if isinstance(scorer, PrivateScorer):  # called once for each candidate and fold
            yield scorer, fits * (made - bool(part.refit)) * (1 + bool(part.return_train_score))
            if not isinstance(part.cv, PredefinedSplit):
                yield Finding(where, _FOLDS)
            if scorer.ledger is None:
                yield Finding(where, "its scorer has no ledger: nothing keeps count of what its scores cost")
        else:
            yield Finding(where, _EXACT)
        fits *= made
    elif inner and hasattr(part, "n_estimators"):
        fits *= int(part.n_estimators)
    elif inner and not hasattr(part, "steps") and type(part).__name__.startswith(_MANY):
        fits = math.nan
    for start, habit in _HABITS.items():
        if type(part).__name__.startswith(start) and getattr(part, "bootstrap", True):
            yield Finding(where, habit)
    for name, child in inner:
        yield from _walk(child, name, fits)
    if not inner and isinstance(part, BaseEstimator) and (why := _uncovered(part)) is not None:
        yield Finding(where, why)


_FOLDS = (
    "cuts folds in which one record can move others: toss a coin for each record, "
    "cv=PredefinedSplit(rng.integers(5, size=n))"
)
_EXACT = "chooses by scores on private rows, without noise: the choice is not covered"
_SCORES = "scores on private rows without noise: every number that it returns is a release that nobody counts"
_SHUFFLES = "shuffles n rows: one record moves others from part to part; use curvedp split"
_HABITS = {
    "Bagging": "a resample may hold a record twice, and every copy counts: the ε of a fit does not hold",
    "MultiOutput": "one fit per target on the same rows: they add up, and each states its own ε alone",
    "Calibrated": "calibrates on private rows without noise: the calibration is not covered",
}
_MANY = ("Stacking", "Calibrated", "RFE", "MultiOutput", "OneVs", "SelfTraining", "SequentialFeature")


def _parts(part: Any) -> Iterator[tuple[str, Any]]:
    for name in _INNER:
        if isinstance(child := getattr(part, name, None), BaseEstimator):
            yield type(child).__name__, child
    for name in _LISTS:
        for child in getattr(part, name, None) or ():
            if isinstance(child, tuple) and len(child) >= 2 and isinstance(child[1], BaseEstimator):
                yield str(child[0]), child[1]


def _search_fits(search: Any) -> float:
    """Candidates × splits, and one more for the refit; NaN where they are not known beforehand."""
    grid = getattr(search, "param_grid", None)
    candidates: Any = getattr(search, "n_iter", None) if grid is None else len(ParameterGrid(grid))
    splits = 5 if search.cv is None else search.cv
    if isinstance(splits, PredefinedSplit):
        splits = splits.get_n_splits()
    elif not isinstance(splits, int):
        splits = getattr(splits, "n_splits", None)
    known = isinstance(candidates, int) and splits is not None
    return candidates * splits + bool(search.refit) if known else math.nan


def _uncovered(part: BaseEstimator) -> str | None:
    """Why a leaf is not covered; None where it learns nothing from rows."""
    name = type(part).__name__
    if is_regressor(part) or is_classifier(part):
        return f"a {name} is not private at all"
    if name == "FunctionTransformer" and not isinstance(part.func, np.ufunc | None):
        return "its function must read every row by itself, which cannot be seen here: no means, no ranks"
    if name in _ONLY_WIDTH or not get_tags(part).requires_fit:
        return None
    declared = _DECLARED_BY.get(name)
    if declared is not None and not isinstance(getattr(part, declared), str):
        return None
    instead = "levels" if name in _DECLARED_BY else "bounds"
    return f"a {name} is fitted on the private rows without noise: declare {instead} instead"
