"""`inspect`: what in a scikit-learn pipeline the guarantee of a private estimator does not cover."""

from __future__ import annotations

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
    """What `inspect` found: what is not covered, and how many private fits, and scores beside them, one `fit`
    makes.

    What they cost together is by basic composition, as a ledger would count; None where it is not known
    beforehand.
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
        return Inspection((Finding(name, _FUNCTIONS.get(name, _SCORES)),), 0, 0.0, 0.0)
    found = list(_walk(pipeline, type(pipeline).__name__))
    private = [entry for entry in found if entry.model is not None]
    known = all(entry.fits is not None for entry in private)
    scored = [entry for entry in private if isinstance(entry.model, PrivateScorer)]
    scores = sum(entry.fits or 0 for entry in scored)
    fits = sum(entry.fits or 0 for entry in private) - scores if known else None
    epsilon = delta = None
    if fits is not None:
        epsilon = sum((entry.fits or 0) * entry.model.epsilon for entry in private if entry.model)
        delta = sum((entry.fits or 0) * entry.model.delta for entry in private if entry.model)
    findings = [entry.finding for entry in found if entry.finding is not None]
    return Inspection(tuple(dict.fromkeys(findings)), fits, epsilon, delta, scores if known else 0)


@dataclass(frozen=True)
class _Entry:
    finding: Finding | None = None
    model: PrivateLinearModel | PrivateSearch | PrivateScorer | None = None
    fits: int | None = 1


def _walk(part: Any, where: str, fits: int | None = 1) -> Iterator[_Entry]:
    """Everything inside `part`, with the number of times that it is fitted."""
    if isinstance(part, (PrivateLinearModel, PrivateSearch)):
        yield _Entry(model=part, fits=fits)
        if part.ledger is None:
            yield _Entry(Finding(where, "no ledger: nothing keeps count of what its fits cost"))
        if part.random_state is not None:
            yield _Entry(Finding(where, "a fixed seed: its noise can be repeated, so it is not private"))
        return
    inner = list(_parts(part))
    if isinstance(part, BaseSearchCV):
        yield from _chosen(part, where, fits)
        fits = _times(fits, _search_fits(part))
    elif inner and hasattr(part, "n_estimators"):
        fits = _times(fits, int(part.n_estimators))
    elif inner and not hasattr(part, "steps") and type(part).__name__.startswith(_MANY):
        fits = None
    for start, habit in _HABITS.items():
        if type(part).__name__.startswith(start) and getattr(part, "bootstrap", True):
            yield _Entry(Finding(where, habit))
    for name, child in inner:
        yield from _walk(child, name, fits)
    if not inner and isinstance(part, BaseEstimator):
        why = _uncovered(part)
        if why is not None:
            yield _Entry(Finding(where, why))


def _chosen(search: Any, where: str, fits: int | None) -> Iterator[_Entry]:
    """By what a search chooses: exact scores, or private ones, one for each candidate and fold."""
    if not isinstance(search.scoring, PrivateScorer):
        yield _Entry(
            Finding(where, "chooses by scores on private rows, without noise: the choice is not covered")
        )
        return
    made = _search_fits(search)
    calls = None if made is None else (made - bool(search.refit)) * (2 if search.return_train_score else 1)
    yield _Entry(model=search.scoring, fits=_times(fits, calls))
    if not isinstance(search.cv, PredefinedSplit):
        yield _Entry(Finding(where, _FOLDS))
    if search.scoring.ledger is None:
        yield _Entry(Finding(where, "its scorer has no ledger: nothing keeps count of what its scores cost"))


_FOLDS = (
    "cuts folds in which one record can move others: toss a coin for each record, "
    "cv=PredefinedSplit(rng.integers(5, size=n))"
)
_SCORES = "scores on private rows without noise: every number that it returns is a release that nobody counts"
_FUNCTIONS = {
    "train_test_split": "shuffles n rows: one record moves others from part to part; use curvedp split"
}
_HABITS = {
    "Bagging": "a resample may hold a record twice, and every copy counts: the ε of a fit does not hold",
    "MultiOutput": "one fit per target on the same rows: they add up, and each states its own ε alone",
    "Calibrated": "calibrates on private rows without noise: the calibration is not covered",
}
_MANY = ("Stacking", "Calibrated", "RFE", "MultiOutput", "OneVs", "SelfTraining", "SequentialFeature")


def _parts(part: Any) -> Iterator[tuple[str, Any]]:
    for name in _INNER:
        child = getattr(part, name, None)
        if isinstance(child, BaseEstimator):
            yield type(child).__name__, child
    for name in _LISTS:
        for child in getattr(part, name, None) or ():
            if isinstance(child, tuple) and len(child) >= 2 and isinstance(child[1], BaseEstimator):
                yield str(child[0]), child[1]


def _times(fits: int | None, more: int | None) -> int | None:
    return None if fits is None or more is None else fits * more


def _search_fits(search: Any) -> int | None:
    """Candidates × splits, and one more for the refit."""
    if hasattr(search, "param_grid"):
        candidates = len(ParameterGrid(search.param_grid))
    elif isinstance(getattr(search, "n_iter", None), int):
        candidates = search.n_iter
    else:
        return None
    splits = 5 if search.cv is None else search.cv
    if isinstance(splits, PredefinedSplit):
        splits = splits.get_n_splits()
    elif not isinstance(splits, int):
        splits = getattr(splits, "n_splits", None)
    return None if splits is None else candidates * splits + (1 if search.refit else 0)


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
