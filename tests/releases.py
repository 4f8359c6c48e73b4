"""Model documents made by hand: what a file may hold, without a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from curvedp.data import Categorical, ClassTarget, CountTarget, Ignored, Numeric, NumericTarget, Schema
from curvedp.data.files import NOTHING, Stated
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.guarantee import Guarantee, Parameter, Parameters
from curvedp.privacy.profiles import PointProfile
from curvedp.release import catalogue
from curvedp.release.ledger.storage import Receipt
from curvedp.release.modelfile import Release
from curvedp.release.record import ReleaseRecord

RECEIPT = Receipt("0123456789ab", 7, "ab" * 32, "2026-03-01T12:00:00+00:00", "Ada", "wages")
VERSIONS = {"curvedp": "0.2.0", "Python": "3.13.0"}


def guarantee(epsilon: float = 1.0, delta: float = 1e-6, **changes: Any) -> Guarantee:
    values: dict[str, Any] = {
        "budget": Budget(epsilon, delta),
        "neighbours": Neighbours(),
        "mechanism": "recentered",
        "accounting": "statistics",
        "theorem": "(P-9)",
        "parameters": Parameters(
            Parameter("sigma2", "σ²", "scale of the random curvature", 0.25, is_noise=True),
            Parameter("L", "L", "smoothness", 1.0),
        ),
        "profile": PointProfile(epsilon, delta),
    }
    return Guarantee(**{**values, **changes})


def document(
    privacy: Guarantee | None = None,
    *,
    stated: Stated = NOTHING,
    receipt: Receipt | None = None,
    name: str = "age",
    source: str = "",
    **changes: Any,
) -> Release:
    privacy = privacy or guarantee()
    schema = Schema(
        (
            Numeric(name, 0, 120, source),
            Categorical("sex", ("f", "m")),
            Ignored("id"),
            Numeric("wage", 0, 1e5),
        ),
        target="wage",
        adjacency=privacy.adjacency,
        unit=privacy.neighbours.unit,
        release=stated,
    )
    record = ReleaseRecord("2026-03-01T12:00:00+00:00", VERSIONS, stated, receipt)
    values: dict[str, Any] = {"settings": {"alpha": 1.0, "fit_intercept": True}, "record": record, **changes}
    coef, intercept = np.array([[0.1, -0.2, 0.3]]), np.array([-1.0])
    return Release(
        estimator="PrivateRidge",
        guarantee=privacy,
        schema=schema,
        target=NumericTarget(0, 1e5),
        named=True,
        coefficients=coef,
        intercept=intercept,
        **values,
    )


# The scikit-learn class that predicts the same from a model's numbers, where that is not least squares.
PLAIN = {
    "poisson": "sklearn.linear_model:PoissonRegressor",
    "logistic": "sklearn.linear_model:LogisticRegression",
}


def plain_model(release: Release) -> Any:
    """A plain scikit-learn model with these coefficients, for the columns that `schema.read` encodes."""
    model = catalogue.load(PLAIN.get(release.entry.name, "sklearn.linear_model:LinearRegression"))()
    if isinstance(release.target, CountTarget):
        model._base_loss = model._get_loss()  # its link, which a fit would have set
    model.n_features_in_ = release.coefficients.shape[1]
    model.coef_, model.intercept_ = release.coefficients.copy(), release.intercept.copy()
    if isinstance(release.target, ClassTarget):
        model.classes_ = release.target.labels.copy()
        if release.target.turned:
            model.coef_, model.intercept_ = -model.coef_, -model.intercept_
    if release.flat:
        model.coef_, model.intercept_ = release.coefficients[0].copy(), float(release.intercept[0])
    return model
