"""The record of a release: when, of what, for whom, charged where, tuned on what, made with which software.

It holds public things alone: what the operator states, what was declared, what a ledger answered.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from curvedp import __version__
from curvedp.errors import InvalidInput
from curvedp.privacy.guarantee import Guarantee
from curvedp.receipt import Receipt
from curvedp.schema import Ignored, Schema
from curvedp.schema.sources import is_bought
from curvedp.schema.statements import NOTHING, Stated

PACKAGES = ("numpy", "scipy", "scikit-learn")
LONGEST = 1000
_LISTS = ("tuned", "derived")
_KEYS = {"time", "versions", *_LISTS}
_RECEIPT = {"ledger": str, "charge": int, "head": str, "time": str, "by": str, "purpose": str}


@dataclass(frozen=True)
class ReleaseRecord:
    """What is to be filed of a release beside its guarantee and its declarations.

    Parameters
    ----------
    time : str
        When it was charged or, without a ledger, begun: UTC, as 2024-12-31T23:59:59+00:00.
    versions : mapping
        Of curvedp, Python, numpy, scipy and scikit-learn.
    stated : Stated
        What the operator states: table, purpose, audience, rows.
    receipt : Receipt or None
        Where it was charged; None without a ledger.
    tuned : tuple of str
        What was chosen by looking at private data, and who paid for it.
    derived : tuple of str
        What was computed from the release afterwards, at no cost: refits.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateRidge
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])
    >>> sorted(model.record_.versions)
    ['Python', 'curvedp', 'numpy', 'scikit-learn', 'scipy']
    >>> model.record_.receipt is None, model.record_.derived
    (True, ())
    """

    time: str
    versions: Mapping[str, str] = field(default_factory=dict)
    stated: Stated = NOTHING
    receipt: Receipt | None = None
    tuned: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        schema: Schema,
        guarantee: Guarantee,
        receipt: Receipt | None,
        begun: str,
        chosen: Sequence[str] = (),
    ) -> ReleaseRecord:
        """Of a release that was begun then; `chosen` says in sentences what a search chose."""
        time = begun if receipt is None else receipt.time
        tuned = (*chosen, *tuned_on_data(schema, guarantee))
        return cls(time, software(), schema.release, receipt, tuned)

    def after(self, words: str) -> ReleaseRecord:
        """Of what was computed from the same release at no cost."""
        return replace(self, derived=(*self.derived, words[:LONGEST]))

    @property
    def table(self) -> str:
        """What the table is called; "" where nothing was stated."""
        return self.stated.table

    @property
    def purpose(self) -> str:
        """What the release is for, as the schema or the ledger says."""
        return self.stated.purpose or ("" if self.receipt is None else self.receipt.purpose)

    @property
    def audience(self) -> str:
        """Who may see what."""
        return self.stated.audience

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a model file; what was stated stands in its schema."""
        own: dict[str, Any] = {
            "time": self.time,
            "versions": dict(self.versions),
            "tuned": list(self.tuned),
            "derived": list(self.derived),
        }
        return own if self.receipt is None else {**own, "receipt": asdict(self.receipt)}

    @classmethod
    def from_dict(cls, content: Any, schema: Schema) -> ReleaseRecord:
        """The inverse of `to_dict`, for content that nobody vouches for."""
        if not isinstance(content, Mapping) or not _KEYS <= content.keys() <= _KEYS | {"receipt"}:
            raise InvalidInput("its record does not hold what a record does")
        receipt, versions = content.get("receipt"), content["versions"]
        if not isinstance(versions, Mapping) or not all(type(content[key]) is list for key in _LISTS):
            raise InvalidInput("its record holds something of the wrong kind")
        texts = [
            content["time"],
            *versions.keys(),
            *versions.values(),
            *content["tuned"],
            *content["derived"],
        ]
        if receipt is not None:
            if not isinstance(receipt, Mapping) or receipt.keys() != _RECEIPT.keys():
                raise InvalidInput("its record has a receipt that no ledger gives")
            if not all(type(receipt[key]) is kind for key, kind in _RECEIPT.items()):
                raise InvalidInput("its record has a receipt of the wrong kind")
            texts += [value for value in receipt.values() if isinstance(value, str)]
        if not all(isinstance(text, str) and len(text) <= LONGEST for text in texts):
            raise InvalidInput("its record holds what is no short text")
        return cls(
            time=content["time"],
            versions=dict(versions),
            stated=schema.release,
            receipt=None if receipt is None else Receipt(**receipt),
            tuned=tuple(content["tuned"]),
            derived=tuple(content["derived"]),
        )


def now() -> str:
    """This second in UTC: taken before a release begins, so that it tells nothing of how long it took."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def software() -> Mapping[str, str]:
    """The versions that a result depends on."""
    found = {"curvedp": __version__, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def tuned_on_data(schema: Schema, guarantee: Guarantee) -> tuple[str, ...]:
    """What the mechanism chose by noisy looks within its ε, and what was bought before."""
    found, public = [], guarantee.parameters
    if "mu_clip" in public:
        found.append(
            "Within this ε, from noisy looks at the table: the metric that records are measured in, the "
            "lengths and norms that records and gradients are clipped to, how far the fit moves and in how "
            "many rounds."
        )
    if "mu_extent" in public:
        found.append("Within this ε, from a noisy histogram: how much of a person's rows counts.")
    if float(public.get("mu_count", 0.0)) > 0:
        found.append(f"Within this ε: a noisy number of {guarantee.neighbours.who}s.")
    for source, names in bought_bounds(schema).items():
        found.append(f"On top of this ε: the bounds of {', '.join(names)} ({source}).")
    return tuple(words[:LONGEST] for words in found)


def bought_bounds(schema: Schema) -> dict[str, list[str]]:
    """The columns whose bounds were bought, by what their source says."""
    found: dict[str, list[str]] = {}
    for column in schema.columns:
        if not isinstance(column, Ignored) and is_bought(column.source):
            found.setdefault(column.source, []).append(column.name)
    return found
