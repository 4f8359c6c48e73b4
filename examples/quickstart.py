"""A private lasso on a raw table, with its guarantee; the model is saved and read back."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import curvedp
from curvedp import PrivateLasso, Schema
from curvedp.schema import Categorical, Numeric

random = np.random.default_rng(0)
n = 20_000
people = pd.DataFrame(
    {
        "age": random.uniform(18, 80, n),
        "hours": random.uniform(0, 60, n),
        "sector": random.choice(["private", "public", "n/a"], n),
    }
)
people["wage"] = 50 * people["age"] + 300 * people["hours"] + random.normal(0, 3000, n)

schema = Schema(  # public knowledge, never read off the data
    [
        Numeric("age", 16, 90),
        Numeric("hours", 0, 80),
        Categorical("sector", ["private", "public"]),
        Numeric("wage", 0, 40_000),
    ],
    target="wage",
)
model = PrivateLasso(epsilon=1.0, delta=1e-6, schema=schema).fit(people)

for name, value in zip(model.schema_.feature_names, model.coef_, strict=True):
    print(f"{name:15s} {value:8.1f}")
print("promise    ", model.privacy_.epsilon, model.privacy_.delta, model.privacy_.theorem)
print("also holds ", f"delta = {model.privacy_.delta_at(0.5):.2e} at epsilon = 0.5")

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "model.json")
    again = curvedp.load(Path(folder) / "model.json")
print("read back  ", bool(np.array_equal(again.predict(people), model.predict(people))))
