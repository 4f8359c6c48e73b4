"""Any convex problem: Huber loss, an L1 penalty and a box, by quadratic objective perturbation."""

import numpy as np

from curvedp import Budget, Domain, Problem, private_fit
from curvedp.constraints import Box
from curvedp.losses import Huber
from curvedp.mechanisms import QOP
from curvedp.regularizers import L1

random = np.random.default_rng(0)
X = random.normal(size=(30_000, 5))
X /= np.linalg.norm(X, axis=1, keepdims=True)  # the domain below clips rows to norm 1
y = np.clip(X @ [0.8, -0.5, 0.0, 0.0, 0.3] + 0.05 * random.standard_t(2, size=30_000), -1, 1)

problem = Problem(
    loss=Huber(0.2),
    regularizer=L1(5.0),
    constraint=Box(1.0),
    domain=Domain(x_norm=1.0, y_bound=1.0, adjacency="add_remove"),
)
released = private_fit(problem, X, y, budget=Budget(1.0, 1e-6), mechanism=QOP())
print("theta     ", released.value.theta[:, 0].round(3))
print("accounting", released.privacy.accounting, "-", released.privacy.theorem)
