"""What importing the estimators loads: no more than scikit-learn itself needs, and this library."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import numpy as np

from curvedp import PrivateRidge
from curvedp.release import catalogue

HEAVY = {"dask", "distributed", "dp_accounting", "jinja2", "llvmlite", "matplotlib", "numba", "rich", "torch"}


@cache
def loaded(*modules: str) -> set[str]:
    """The modules that a fresh interpreter has after importing these."""
    code = f"import sys, {', '.join(modules)}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_estimators_load_no_compiler_and_no_engine():
    own = loaded("curvedp.analyses.estimators") - loaded("sklearn.linear_model")
    assert not HEAVY & {name.partition(".")[0] for name in own}


def test_estimators_load_neither_calibrations_nor_curves_nor_kernels():
    late = {"curvedp.privacy.calibrate", "curvedp.data.kernels"}
    late |= {"curvedp.release.json_schema"}
    assert not late & loaded("curvedp.analyses.estimators")
    assert all(map(find_spec, late))


BARE = """
import sys

sys.modules["curvedp_studies"] = None
from typer.testing import CliRunner
from curvedp import Budget, Problem, load
from curvedp.cli import app
from curvedp.errors import InvalidInput
from curvedp.mechanisms import QOP
from curvedp.problems.losses import Squared
from curvedp.release import catalogue

problem, budget = Problem(Squared()), Budget(0.5, 1e-6)
paper = QOP(accounting="paper")
for asked in (lambda: paper.plan(problem, 2, budget), lambda: catalogue.mechanism("output")):
    try:
        asked()
    except InvalidInput as refusal:
        assert str(refusal).endswith("pip install curvedp-studies"), refusal
    else:
        raise AssertionError("made without curvedp-studies")
shape = ["plan", "--rows", "5000", "--features", "3", "--epsilon", "1", "--delta", "1e-6"]
assert CliRunner().invoke(app, shape).exit_code == 0
tried = CliRunner().invoke(app, [*shape, "--trials", "2"])
assert tried.exit_code == 2 and "pip install curvedp-studies" in tried.output, tried.output
model = load({path!r})
assert model.get_params()["mechanism"].type == "NoisyGradient" and model.predict([[0.5, 0.5]]).shape == (1,)
"""


def test_without_the_package_of_studies_what_needs_it_says_so(tmp_path):
    """Nothing else needs it: a plan is a formula, and a model of a mechanism that is not there predicts."""
    X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    made = catalogue.mechanism("gradient", rounds=3)
    model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), mechanism=made).fit(X, X[:, 0])
    model.save(tmp_path / "model.json")
    code = BARE.format(path=str(tmp_path / "model.json"))
    subprocess.run([sys.executable, "-c", code], check=True)


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {optional!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import numpy as np
import curvedp
from curvedp.release.modelfile import Release
from curvedp.reports.filings import deployment_yaml
from curvedp.cli.workflow import release_report
X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
model = curvedp.PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), formula="~ x0 + x0:x1").fit(X, X[:, 0])
assert "<svg" in release_report(model)
assert "url_slug" in deployment_yaml(Release.of(model))
"""


def test_a_fit_of_an_array_its_report_and_its_registry_entry_need_no_optional_package():
    optional = (
        "pandas",
        "pyarrow",
        "polars",
        "dask",
        "distributed",
        "matplotlib",
        "formulaic",
        "ruamel",
        "yaml",
    )
    subprocess.run([sys.executable, "-c", WITHOUT.format(optional=optional)], check=True)
