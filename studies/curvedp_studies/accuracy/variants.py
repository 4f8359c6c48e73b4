"""Variants of the rule: a JSON file of the fields that differ from the library's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from curvedp.mechanisms.rule import Rule

PRESENT = "present"  # the library's rule as it stands
Changes = Mapping[str, float]

AROUND: Mapping[str, Changes] = {
    PRESENT: {},
    "travel-": {"travel": 0.9},
    "travel+": {"travel": 1.7},
    "first_travel-": {"first_travel": 8.0},
    "first_travel+": {"first_travel": 32.0},
    "momentum-": {"momentum": 0.6},
    "momentum+": {"momentum": 0.9},
    "first_clip-": {"first_clip": 0.18},
    "first_clip+": {"first_clip": 0.35},
    "class_clip-": {"class_clip": 0.5},
    "class_clip+": {"class_clip": 1.0},
    "blind_clip-": {"blind_clip": 0.35},
    "blind_clip+": {"blind_clip": 0.7},
    "first_kept-": {"first_kept": 0.35},
    "first_kept+": {"first_kept": 0.7},
    "kept-": {"kept": 0.4},
    "kept+": {"kept": 0.75},
    "clipped-": {"clipped": 1.5},
    "clipped+": {"clipped": 4.0},
    "doubt-": {"doubt": 0.0},
    "doubt+": {"doubt": 2.0},
    "extent-": {"extent_share": 0.005},
    "extent+": {"extent_share": 0.02},
    "pilot-": {"pilot_share": 0.05},
    "pilot+": {"pilot_share": 0.14},
    "curvature-": {"curvature_share": 0.03},
    "curvature+": {"curvature_share": 0.10},
    "looks-": {"spread_share": 0.01, "scale_share": 0.01},
    "looks+": {"spread_share": 0.04, "scale_share": 0.04},
    "rounds-": {"rounds": 32, "first_rounds": 8, "step": 0.8},
    "rounds+": {"rounds": 128, "first_rounds": 32},
    "plenty-": {"plenty": 30.0},
    "plenty+": {"plenty": 400.0},
    "quick+": {"quick_rounds": 40, "quick_first_rounds": 10, "quick_step": 0.65},
    "floor-": {"floor": 0.2},
    "floor+": {"floor": 0.6},
    "kept_lengths-": {"kept_lengths": 0.65},
    "kept_lengths+": {"kept_lengths": 0.9},
    "first_share-": {"first_share": 0.12},
    "first_share+": {"first_share": 0.30},
}
"""Every constant up and down."""


def rules(path: Path | None = None) -> dict[str, Rule]:
    """By name; without a file those of AROUND."""
    changes: Mapping[str, Changes] = AROUND if path is None else json.loads(path.read_text(encoding="utf-8"))
    return {name: replace(Rule(), **_typed(changed)) for name, changed in changes.items()}


def _typed(changed: Changes) -> dict[str, Any]:
    """Numbers of rounds and edges are whole."""
    whole = {name for name, value in vars(Rule()).items() if isinstance(value, int)}
    return {name: int(value) if name in whole else float(value) for name, value in changed.items()}


def write(path: Path) -> None:
    """AROUND as a file to start from."""
    path.write_text(json.dumps(AROUND, indent=1), encoding="utf-8")
