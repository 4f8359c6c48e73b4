"""What an audit has found so far: kept in a file, so that an interrupted one goes on where it stopped.

Every number follows from the seed, so draws that were not finished are simply made again.
"""

from __future__ import annotations

import math
import os
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput

Counts = NDArray[np.int64]
_SAVE_EVERY = 2.0  # seconds


@dataclass(frozen=True, eq=False)
class Sample:
    """Outputs of one table, shape (n, size), and L of everything released, where it is known."""

    theta: FloatArray
    ratio: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.theta)

    @classmethod
    def join(cls, parts: Sequence[Sample]) -> Sample:
        """All parts; one of another width, where every release was refused, is NaN in every entry."""
        width = max(part.theta.shape[1] for part in parts)
        wide = [
            part.theta if part.theta.shape[1] == width else np.full((len(part), width), np.nan)
            for part in parts
        ]
        ratios = [part.ratio for part in parts if part.ratio is not None]
        return cls(np.concatenate(wide), np.concatenate(ratios) if len(ratios) == len(parts) else None)


@dataclass(eq=False)
class State:
    """Pilot draws by (turn, pair, side) and what they promise by (turn, pair); then how many steps of the
    test were made, and their counts: an array (phase, side, cells) for each view of each candidate.
    """

    path: Path | None
    key: str
    samples: dict[tuple[int, int, int], Sample] = field(default_factory=dict)
    promises: dict[tuple[int, int], float] = field(default_factory=dict)
    pilot_fits: int = 0
    tested: tuple[int, list[Counts]] = (0, [])  # one value, so that Ctrl-C leaves the two in step
    _saved: float = -math.inf

    @property
    def resumable(self) -> bool:
        return self.path is not None

    @classmethod
    def load(cls, path: Path | str | None, key: str) -> State:
        """What is at `path`, or nothing yet. A file of another audit is refused, not overwritten."""
        state = cls(None if path is None else Path(path), key)
        if state.path is None or not state.path.exists():
            return state
        try:
            state._read(state.path)
        except (ValueError, KeyError, TypeError, zipfile.BadZipFile, EOFError, IndexError):
            raise InvalidInput(
                f"{state.path} does not hold the counts of this audit; pass another path"
            ) from None
        return state

    def save(self, *, now: bool = False) -> None:
        """Replace the file in one step, at most every few seconds unless `now`."""
        if self.path is None or not (now or time.monotonic() - self._saved > _SAVE_EVERY):
            return
        step, counts = self.tested
        parts: dict[str, NDArray[np.generic]] = {
            "key": np.array(self.key),
            "numbers": np.array([self.pilot_fits, step]),
            "promises": np.array([[*at, value] for at, value in self.promises.items()]).reshape(-1, 3),
        }
        for index, count in enumerate(counts):
            parts[f"counts {index}"] = count
        for at, sample in self.samples.items():
            parts["theta {} {} {}".format(*at)] = sample.theta
            if sample.ratio is not None:
                parts["ratio {} {} {}".format(*at)] = sample.ratio
        temporary = self.path.with_name(self.path.name + ".part")
        with temporary.open("wb") as file:
            np.savez(file, **parts)  # type: ignore[arg-type]
        os.replace(temporary, self.path)
        self._saved = time.monotonic()

    def _read(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as found:
            if str(found["key"]) != self.key:
                raise ValueError
            self.pilot_fits, step = (int(number) for number in found["numbers"])
            self.promises = {(int(t), int(i)): float(value) for t, i, value in found["promises"]}
            names = sorted((n for n in found.files if n.startswith("counts ")), key=lambda n: int(n[7:]))
            self.tested = step, [found[name] for name in names]
            for name in (n for n in found.files if n.startswith("theta ")):
                turn, pair, side = (int(part) for part in name.split()[1:])
                ratio = "ratio" + name[5:]
                self.samples[turn, pair, side] = Sample(
                    found[name], found[ratio] if ratio in found.files else None
                )
