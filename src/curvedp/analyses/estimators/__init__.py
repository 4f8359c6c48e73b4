"""scikit-learn estimators: declared bounds in, a private linear model and its guarantee out."""

from curvedp.analyses.estimators.base import load as load
from curvedp.analyses.estimators.counts import PrivateMultiTaskRidge as PrivateMultiTaskRidge
from curvedp.analyses.estimators.counts import PrivatePoissonRegressor as PrivatePoissonRegressor
from curvedp.analyses.estimators.linear import PrivateElasticNet as PrivateElasticNet
from curvedp.analyses.estimators.linear import PrivateHuberRegressor as PrivateHuberRegressor
from curvedp.analyses.estimators.linear import PrivateLasso as PrivateLasso
from curvedp.analyses.estimators.linear import PrivateLinearRegression as PrivateLinearRegression
from curvedp.analyses.estimators.linear import PrivateLinearSVC as PrivateLinearSVC
from curvedp.analyses.estimators.linear import PrivateLogisticRegression as PrivateLogisticRegression
from curvedp.analyses.estimators.linear import PrivateQuantileRegressor as PrivateQuantileRegressor
from curvedp.analyses.estimators.linear import PrivateRidge as PrivateRidge
