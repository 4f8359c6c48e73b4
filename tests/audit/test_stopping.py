"""Time limits and interruptions: an audit stops when it is told to, wherever it is, and goes on later."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from curvedp.audit import audit_plan, views
from curvedp.audit.samplers import Releases
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.errors import InvalidInput
from curvedp.losses import Squared
from curvedp.mechanisms.base import make_plan
from curvedp.mechanisms.qop import QOP
from curvedp.problem import Problem

PROBLEM = Problem(Squared(), domain=Domain(adjacency="add_remove"))
PLAN = make_plan(QOP(m=40.0), PROBLEM, 3, Budget(1.0, 1e-2))
QUICK = {"fits": 3000, "seed": 5, "device": "cpu"}


class Slow(Releases):
    """One fit takes `pause` seconds; `drawn` counts all that were ever made."""

    __setattr__ = object.__setattr__

    def __init__(self) -> None:
        self.pause, self.drawn, self.stop_after = 0.0, [], math.inf

    def sample(self, side: int, n: int, seed: int) -> np.ndarray:
        if sum(self.drawn) + n > self.stop_after:
            raise KeyboardInterrupt
        time.sleep(self.pause * n)
        self.drawn.append(n)
        return 0.3 * side + np.random.default_rng(seed).standard_normal((n, 3))


@pytest.fixture
def source(monkeypatch):
    made = Slow()
    monkeypatch.setattr(views, "accounted", lambda plan, pair, engine: None)
    monkeypatch.setattr(views, "sampler", lambda plan, pair, engine: made)
    return made


@pytest.mark.parametrize("resumed", [False, True])
def test_the_time_limit_covers_the_pilot(source, tmp_path, resumed):
    """30 000 slow fits would take a minute: within a second the audit is over, with and without a file."""
    source.pause = 2e-3
    path = tmp_path / "state" if resumed else None
    began = time.monotonic()
    options = QUICK | {"fits": 30_000}
    report = audit_plan(PLAN, PROBLEM, time_limit=0.5, resume_path=path, **options)
    assert time.monotonic() - began < 3.0  # and it ended within a block of five fits
    assert not report.complete and 0 < sum(source.drawn) <= 300
    assert report.verdict == "inconclusive"
    if resumed:
        assert path.exists() and report.reach is None and "not finished" in report.reason


def test_an_audit_of_many_short_runs_is_the_audit_of_one(source, tmp_path):
    """Stopped in the pilot and in the test, by Ctrl-C and by the clock: nothing is drawn twice."""
    whole = audit_plan(PLAN, PROBLEM, **QUICK)
    total = sum(source.drawn)
    assert whole.complete and whole.fits == total
    source.drawn.clear()
    path, runs = tmp_path / "state", 0
    for stop in (120, 700, 1300, 2000, math.inf):
        source.stop_after = stop
        runs += 1
        try:
            report = audit_plan(PLAN, PROBLEM, resume_path=path, **QUICK)
        except KeyboardInterrupt:
            assert path.exists()
            stopped = audit_plan(PLAN, PROBLEM, resume_path=path, time_limit=0.0, **QUICK)
            assert not stopped.complete and stopped.fits == sum(source.drawn)
    assert runs == 5 and report.complete
    assert report.attacks == whole.attacks and report.reach == whole.reach
    assert sum(source.drawn) == total
    again = audit_plan(PLAN, PROBLEM, resume_path=path, **QUICK)
    assert again.attacks == whole.attacks and sum(source.drawn) == total


def test_the_state_is_there_from_the_first_fits(source, tmp_path):
    path = tmp_path / "state"
    source.stop_after = 5
    with pytest.raises(KeyboardInterrupt):
        audit_plan(PLAN, PROBLEM, resume_path=path, **QUICK)
    assert path.exists()
    with np.load(path) as kept:
        assert kept["numbers"].tolist() == [5, 0]


def test_a_file_of_another_audit_is_refused_and_left_alone(source, tmp_path):
    path = tmp_path / "state"
    audit_plan(PLAN, PROBLEM, resume_path=path, **QUICK)
    for other in ({"seed": 6}, {"fits": 4000}, {"fits": None}, {"claimed": (0.5, 1e-2)}):
        with pytest.raises(InvalidInput, match="another path"):
            audit_plan(PLAN, PROBLEM, resume_path=path, **(QUICK | other))
    for content in (b"", b"{}", b"PK\x03\x04 no archive", path.read_bytes()[:300]):
        (tmp_path / "foreign").write_bytes(content)
        with pytest.raises(InvalidInput, match="another path"):
            audit_plan(PLAN, PROBLEM, resume_path=tmp_path / "foreign", **QUICK)
        assert (tmp_path / "foreign").read_bytes() == content


def test_progress_never_goes_back_and_ends_at_what_was_planned(source):
    seen: list[tuple[int, int]] = []
    report = audit_plan(PLAN, PROBLEM, progress=lambda *at: seen.append(at), **QUICK)
    done = [at for at, _ in seen]
    assert done == sorted(done) and done[-1] == report.fits == seen[-1][1]
