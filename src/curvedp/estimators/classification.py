"""Private classifiers: declared classes, one private fit, coefficients in the user's units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin

from curvedp.arrays import FloatArray, TableLike
from curvedp.errors import InvalidInput
from curvedp.estimators.documentation import documented
from curvedp.estimators.inference import Inferring
from curvedp.estimators.refitting import Refitting
from curvedp.losses import Logistic, Loss, Multinomial, OneVsRest, SquaredHinge
from curvedp.regularizers import L2, Regularizer
from curvedp.schema import ClassTarget
from curvedp.schema.targets import Target


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, Refitting):  # type: ignore[misc]
    """Classification among declared classes."""

    classes: Sequence[Any] | None = None
    alpha: float = 0.0

    def _regularizer(self) -> Regularizer:
        return L2(self.alpha)

    def _declared_target(self) -> Target:
        declared = self._schema_target(ClassTarget, "classes", "a number: use a regressor")
        if declared is not None:
            return declared
        if self.classes is None:
            raise InvalidInput(
                "pass classes=[...]: the labels that may occur, declared; never read off the data"
            )
        return ClassTarget(tuple(self.classes))

    @property
    def classes_(self) -> NDArray[Any]:
        target = self.release_.target
        assert isinstance(target, ClassTarget)
        return target.labels

    def decision_function(self, X: TableLike) -> FloatArray:
        """Margins of new records.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        margins : array of shape (n,) or (n, classes)
            For two classes one number per record, positive: the second class.
        """
        margins = self._margins(X)
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
        index = (margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)
        labels: NDArray[Any] = np.asarray(self.classes_)[index]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a private fit of a few dozen rows is mostly noise
        tags.classifier_tags.multi_class = self.classes is None or len(self.classes) > 2
        return tags


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLogisticRegression(Inferring, PrivateClassifier):
    """Logistic (two classes) or multinomial regression + (alpha/2)‖θ‖², under (ε, δ)-differential privacy.

    Parameters
    ----------
    alpha : float, default=0.0
        Weight of the penalty in the SUMMED objective; it acts on the coefficients of the mapped columns.
    """

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
        margins = self._margins(X)
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
        margins = self._margins(X)
        if margins.shape[1] == 1:
            margins = np.column_stack([np.zeros(len(margins)), margins[:, 0]])
        return np.asarray(log_softmax(margins, axis=1))


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearSVC(PrivateClassifier):
    """Squared-hinge classification + (alpha/2)‖θ‖², under (ε, δ)-differential privacy; one against the rest.

    Parameters
    ----------
    alpha : float, default=0.0
        Weight of the penalty in the SUMMED objective; it acts on the coefficients of the mapped columns.
    """

    def _loss(self, target: Target) -> Loss:
        assert isinstance(target, ClassTarget)
        K = len(target.classes)
        return SquaredHinge() if K == 2 else OneVsRest(SquaredHinge(), K)
