"""A private lasso on a data frame, with its guarantee."""

import numpy as np
import pandas as pd

from curvedp import PrivateLasso

random = np.random.default_rng(0)
n = 20_000
people = pd.DataFrame({"age": random.uniform(18, 80, n), "hours": random.uniform(0, 60, n)})
wage = 50 * people["age"] + 300 * people["hours"] + random.normal(0, 3000, n)

model = PrivateLasso(
    epsilon=1.0,
    delta=1e-6,
    bounds={"age": (16, 90), "hours": (0, 80)},  # public knowledge, never read off the data
    target_bounds=(0, 40_000),
)
model.fit(people, wage)

print("coefficients", model.coef_.round(1), "intercept", round(model.intercept_, 1))
print("promise     ", model.privacy_.epsilon, model.privacy_.delta, model.privacy_.theorem)
print("also holds  ", f"delta = {model.privacy_.delta_at(0.5):.2e} at epsilon = 0.5")
