"""The recipe of an estimator, done: its own loss and parameter, from a file to a command, in three files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import curvedp

SOURCE = Path(curvedp.__file__).parent
LINE = '        EstimatorEntry("log_cosh", f"{_E}:PrivateLogCosh", "Log-cosh regression"),\n'
SCRIPT = """
import json, sys, numpy as np, curvedp
from curvedp.cli import main
from curvedp.analyses.estimators import PrivateLogCosh
from curvedp.release.json_schema import model_schema
from curvedp.cli.workflow import release_report
from jsonschema import Draft202012Validator

X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
model = PrivateLogCosh(bounds=(-1, 1), target_bounds=(-1, 1), width=0.125).fit(X, X[:, 0])
model.save("saved.json")
again = curvedp.load("saved.json")
assert type(again) is PrivateLogCosh and again.width == 0.125, again
assert np.array_equal(again.predict(X), model.predict(X))
Draft202012Validator(model_schema()).validate(json.load(open("saved.json")))
assert "Log-cosh regression" in release_report(again)
fit = ["fit", "table.csv", "--schema", "schema.toml", "--model", "log_cosh"]
fit += ["--epsilon", "1", "--delta", "1e-6"]
for command in ([*fit, "--out", "m.json"], ["predict", "m.json", "table.csv", "--out", "predicted.csv"]):
    sys.argv = ["curvedp", *command]
    try:
        main()
    except SystemExit as end:
        assert not end.code, command
"""
SCHEMA = """
target = "y"
[[column]]
name = "x"
kind = "numeric"
bounds = [0, 1]
[[column]]
name = "y"
kind = "numeric"
bounds = [0, 1]
"""


def linked(source: Path, into: Path) -> None:
    """The files of a folder, as links."""
    into.mkdir()
    for path in source.iterdir():
        (into / path.name).symlink_to(path)


def test_an_estimator_with_a_loss_and_a_parameter_of_its_own_takes_three_files(tmp_path: Path) -> None:
    house = tmp_path / "curvedp"
    linked(SOURCE, house)
    for folder in ("analyses", "analyses/estimators", "release"):
        (house / folder).unlink()
        linked(SOURCE / folder, house / folder)

    def edit(name: str, old: str, new: str) -> None:
        text = (house / name).read_text("utf-8")
        assert old in text
        (house / name).unlink()
        (house / name).write_text(text.replace(old, new, 1), "utf-8")

    shutil.copy(Path(__file__).parents[1] / "log_cosh.py", house / "analyses" / "estimators" / "log_cosh.py")
    last = "from curvedp.analyses.estimators.counts import"
    edit(
        "analyses/estimators/__init__.py",
        last,
        f"from curvedp.analyses.estimators.log_cosh import PrivateLogCosh\n{last}",
    )
    edit("release/catalogue.py", '        EstimatorEntry("ridge"', f'{LINE}        EstimatorEntry("ridge"')
    own = [path for path in house.rglob("*.py") if not path.is_symlink()]
    assert len(own) == 3

    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "table.csv").write_text("x,y\n" + "".join(f"{k / 200},{k / 200}\n" for k in range(200)))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    call = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "predicted.csv").read_text().splitlines()) == 201
