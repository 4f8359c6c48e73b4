"""Anderson acceleration of an averaged map, safeguarded: fixed points of w ↦ T(w)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from curvedp.arrays import UNIT_ROUNDOFF, FloatArray

Map = Callable[[FloatArray], FloatArray]

_MEMORY = 30
_PATIENCE = 25  # extrapolations without progress before plain steps take over
_PROGRESS = 0.9  # a residual this much smaller than the best counts as progress
_EXCESS = 2.0  # an extrapolated point may have a residual this much larger


def fixed_point(
    T: Map, w: FloatArray, good_enough: Callable[[FloatArray], bool], every: int, max_steps: int
) -> tuple[FloatArray, bool]:
    """(w, whether it is good enough), from w_{k+1} = T(w_k) or an extrapolation of the last steps.

    The residual ‖T(w) − w‖ of an averaged T never grows along plain steps and tends to 0. After `_PATIENCE`
    extrapolations without progress the method goes back to its best point and takes plain steps until there
    is some, so it converges whenever plain iteration does. It ends when the residual is down to rounding.
    """
    image = T(w)
    residual = image - w
    best, best_w = float(np.linalg.norm(residual)), w
    history: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=_MEMORY)
    idle, plain = 0, False
    for step in range(1, max_steps + 1):
        if best <= 4.0 * UNIT_ROUNDOFF * float(np.linalg.norm(w)):
            break
        candidate = image
        if history and not plain:
            differences = np.array([entry[0] for entry in history]).T
            weights = np.linalg.lstsq(differences, residual, rcond=1e-13)[0]
            candidate = image - np.array([entry[1] for entry in history]).T @ weights
        new_image = T(candidate)
        new_residual = new_image - candidate
        size = float(np.linalg.norm(new_residual))
        if candidate is not image and not size <= _EXCESS * float(np.linalg.norm(residual)):
            history.clear()
            candidate, new_image = image, T(image)
            new_residual = new_image - candidate
            size = float(np.linalg.norm(new_residual))
        history.append((new_residual - residual, new_image - image))
        w, image, residual = candidate, new_image, new_residual
        if step % every == 0 and good_enough(w):
            return w, True
        idle += 1
        if size < _PROGRESS * best:
            best, best_w, idle, plain = size, w, 0, False
        elif not plain and idle >= _PATIENCE:
            w, idle, plain = best_w, 0, True
            image = T(w)
            residual = image - w
            history.clear()
    return best_w, good_enough(best_w)
