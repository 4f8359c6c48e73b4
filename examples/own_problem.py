"""Any convex problem: Huber loss, an L1 penalty and a box, by quadratic objective perturbation."""

import numpy as np

from curvedp import L1, QOP, Box, Domain, Huber, Problem, private_fit

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
release = private_fit(problem, X, y, mechanism=QOP(epsilon=1.0, delta=1e-6))
print("theta    ", release.theta[:, 0].round(3))
print("accounting", release.privacy.accounting, "-", release.privacy.theorem)
