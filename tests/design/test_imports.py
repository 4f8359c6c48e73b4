"""What `import curvedp.estimators` loads: no more than scikit-learn itself needs, and this library."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"dask", "distributed", "dp_accounting", "jinja2", "llvmlite", "matplotlib", "numba", "rich", "torch"}


def loaded(*modules: str) -> set[str]:
    """The modules that a fresh interpreter has after importing these."""
    code = f"import sys, {', '.join(modules)}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_estimators_load_no_compiler_and_no_engine():
    own = loaded("curvedp.estimators") - loaded("sklearn.linear_model")
    assert not HEAVY & {name.partition(".")[0] for name in own}


def test_estimators_load_neither_calibrations_nor_kernels_nor_model_files():
    late = {"curvedp.privacy.calibrate", "curvedp.privacy.pld", "curvedp.modelfile", "curvedp.rows.kernels"}
    assert not late & loaded("curvedp.estimators")
    assert late <= loaded("curvedp.estimators", *sorted(late))
