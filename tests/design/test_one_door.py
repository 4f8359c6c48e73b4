"""`execute` is the only code that charges, draws a private generator and lets a plan touch rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "curvedp"
MODULES = {
    path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")
}

SOLVED = ("mechanisms/objective.py",)  # OutputNoise.release


def called(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """(name, call) of every call: f(…) and x.f(…) are both `f`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr, node
            elif isinstance(node.func, ast.Name):
                yield node.func.id, node


def modules_that_call(name: str, but: tuple[str, ...] = ()) -> set[str]:
    return {
        module
        for module, tree in MODULES.items()
        if not module.startswith(but) and any(found == name for found, _ in called(tree))
    }


def test_only_the_door_charges() -> None:
    assert modules_that_call("charge") == {"release/door.py"}


def test_only_the_door_draws_from_the_operating_system() -> None:
    """Elsewhere a generator has a seed: the noise of an audit or of a forecast, which see no private row.

    The coins of `data/source.py` choose one row of a person: no noise, and nothing is released of them. Those
    of `analyses/split.py` make up a table, which no data touch.
    """
    unseeded = {
        module
        for module, tree in MODULES.items()
        for name, call in called(tree)
        if name in ("generator", "default_rng") and not (call.args or call.keywords)
    }
    assert not unseeded
    assert modules_that_call("generator", ("auditing/", "planning.py", "cli/workflow.py")) == {
        "release/door.py",
        "data/source.py",
        "analyses/split.py",
    }


def test_only_the_door_lets_a_plan_touch_rows() -> None:
    """The audit attacks plans on its own records; a composition or a search hands rows on to its parts."""
    releasing = {
        module
        for module, tree in MODULES.items()
        for name, call in called(tree)
        if name == "release" and isinstance(call.func, ast.Attribute) and len(call.args) == 2
        if not module.startswith("auditing/")
    }
    assert releasing <= {"release/door.py", "plans.py", "analyses/search.py", *SOLVED}


@pytest.mark.parametrize("name", ["gradient_sum", "moments", "hessian_sum", "norm_histogram", "value_sum"])
def test_only_plans_and_their_solvers_ask_for_sums_over_rows(name: str) -> None:
    allowed = ("mechanisms/", "solvers/", "data/rows/", "auditing/")
    assert not modules_that_call(name, allowed)


@pytest.mark.parametrize("name", ["compute", "persist", "delayed", "to_delayed", "submit"])
def test_only_the_graphs_of_partitions_reach_dask(name: str) -> None:
    """Elsewhere a failing task would raise, and its worker would log what it says (test_cluster_logs.py)."""
    naming = {
        module
        for module, tree in MODULES.items()
        if any(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(tree))
    }
    door = {"data/graphs.py", "data/rows/dask.py"}  # `handed_over`; a task's own subgraph
    pool = {"data/rows/blocked.py"} if name == "submit" else set()
    assert naming <= door | pool
