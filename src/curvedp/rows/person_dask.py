"""Persons in a Dask collection: a shuffle by identifier, then sums where the rows are.

Every partition is cut by a hash of its identifiers; all pieces with one hash come together in one task, which
keeps them, in the memory of this machine: on a cluster, a failing task would write cells into a worker's log.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import FloatArray
from curvedp.columns import ColumnMap
from curvedp.domain import Domain
from curvedp.errors import DataError, InvalidInput
from curvedp.rows.aligned import UNEQUAL, aligned
from curvedp.rows.blocked import bound_of
from curvedp.rows.inputs import as_features, as_targets
from curvedp.rows.person_blocks import PersonBlocks, Work, by_person
from curvedp.rows.persons import PersonRows
from curvedp.rows.sums import Total, tree_sum
from curvedp.rows.workers import open_client
from curvedp.schema.identifiers import NOBODY, Identifiers, identifiers, refuse_floating

Piece = tuple[FloatArray, FloatArray, list[str]]


class DaskPersons:
    """Persons in the partitions of a shuffle, kept by the workers between passes."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
        self._persons: int | None = None

    @property
    def persons(self) -> int:
        if self._persons is None:
            counts = _here(dask.compute, [dask.delayed(_count, pure=False)(part) for part in self._parts])
            self._persons = sum(counts)
        return self._persons

    def total(self, work: Work) -> Total | None:
        tasks = [dask.delayed(_total, pure=False)(part, work) for part in self._parts]
        return tree_sum(total for total in _here(dask.compute, tasks) if total is not None)


def _here(run: Callable[..., tuple[Any, ...]], tasks: Sequence[Any]) -> tuple[Any, ...]:
    """On threads of this process, even where a cluster was connected since the rows were made."""
    return run(*tasks, scheduler="threads")


def dask_person_rows(X: Any, y: Any, unit: Any, domain: Domain, columns: ColumnMap | None) -> PersonRows:
    """Rows of a Dask array or data frame, with a Dask column of identifiers in the same partitions."""
    if open_client() is not None:
        raise InvalidInput(
            "persons are gathered on one machine, and a Dask cluster is connected: fit without it, or leave "
            "unit out if a row is what is to be protected"
        )
    if not dask.is_dask_collection(unit):
        raise InvalidInput("X is a Dask collection: take unit from the same table")
    refuse_floating(getattr(unit, "_meta", unit))
    X, y = aligned(X, y)
    whose = list(np.ravel(unit.to_delayed()))
    features, targets = X.to_delayed().ravel(), y.to_delayed().ravel()
    if not len(features) == len(targets) == len(whose):
        raise InvalidInput("X and unit are cut into different partitions: take both from one table")
    p, bound, T = int(X.shape[1]), bound_of(domain, columns), 1 if y.ndim == 1 else int(y.shape[1])
    if columns is not None and p != columns.n_inputs:
        raise DataError(f"X must have {columns.n_inputs} columns, one per pair of bounds")
    salt, places = secrets.randbits(32), len(features)
    pieces = [
        dask.delayed(_cut, nout=places, pure=False)(*part, salt, places)
        for part in zip(features, targets, whose, strict=True)
    ]
    parts = [
        dask.delayed(_gathered, pure=False)([piece[q] for piece in pieces], p, T, columns, bound)
        for q in range(places)
    ]
    return PersonRows.stored(DaskPersons(_here(dask.persist, parts)), p, T, domain, columns)


def _cut(X: Any, y: Any, unit: Any, salt: int, places: int) -> list[Piece]:
    """The rows of a partition by a hash of their identifiers; those of nobody are left out."""
    features = as_features(X)
    targets, names = as_targets(y, len(features)), identifiers(unit)
    if len(names) != len(features):
        raise DataError(UNEQUAL.replace("y", "unit", 1))
    hashes = np.array([NOBODY if name is None else _hash(name, salt) % places for name in names], np.int64)
    found = []
    for q in range(places):
        rows = np.flatnonzero(hashes == q)
        own = [name for name in (names[i] for i in rows.tolist()) if name is not None]
        found.append((np.asarray(features[rows], float), np.asarray(targets[rows], float), own))
    return found


def _gathered(
    pieces: Sequence[Piece], p: int, T: int, columns: ColumnMap | None, bound: float
) -> PersonBlocks:
    """All rows of some persons, sorted by person."""
    X = np.concatenate([np.empty((0, p)), *(X for X, _, _ in pieces)])
    y: NDArray[np.float64] = np.concatenate([np.empty((0, T)), *(y for _, y, _ in pieces)])
    known = Identifiers()
    codes = np.concatenate([np.empty(0, np.int64), *(known.codes(names) for _, _, names in pieces)])
    order, starts = by_person(codes)
    return PersonBlocks(X[order], y[order], starts, columns, bound)


def _hash(name: str, salt: int) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass"), salt)


def _count(part: PersonBlocks) -> int:
    return part.persons


def _total(part: PersonBlocks, work: Work) -> Total | None:
    return part.total(work, threads=1)
