"""The record of a release: when, of what, for whom, charged where, tuned on what, made with which software.

It holds public things alone: what the operator states, what was declared, what a ledger answered. `keep` lets
the ledger keep the hash of what was released, `verify` compares a document with it.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import version
from typing import Any

from curvedp import __version__
from curvedp.data import Ignored, Schema
from curvedp.data.files import NOTHING, Stated, is_bought
from curvedp.errors import CurvedpError, ModelFileError
from curvedp.forms import LONGEST, read_object, write
from curvedp.privacy.guarantee import Guarantee
from curvedp.release.door import Account
from curvedp.release.ledger.file import Ledger
from curvedp.release.ledger.storage import Fingerprint, OnRecord, Receipt, hashed
from curvedp.release.ledger.storage import now as now

PACKAGES = ("numpy", "scipy", "scikit-learn")
_CLAIMS = ("epsilon", "delta", "mechanism", "theorem")  # of a guarantee, which its charge says, too
_REFITTED = ("coefficients", "intercept", "noise", "settings", "record.derived")  # what a refit may change
_NO_MORE = {"inference": None, "trust": 1.0}  # what a refit has not
BESIDE = ("outlook", "report", "remaining_epsilon", "remaining_delta")  # printed beside a look, no part of it
SHOWN = 8  # names in one sentence


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
    stated: Stated = field(default=NOTHING, metadata={"written": False})  # a file has it in its schema
    receipt: Receipt | None = None
    tuned: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, schema: Schema, proof: Guarantee, receipt: Receipt | None, begun: str, chosen: Sequence[str] = ()
    ) -> ReleaseRecord:
        """Of a release that was begun then; `chosen` says in sentences what a search chose."""
        time = begun if receipt is None else receipt.time
        return cls(time, software(), schema.release, receipt, (*chosen, *tuned_on_data(schema, proof)))

    def after(self, words: str) -> ReleaseRecord:
        """Of what was computed from the same release at no cost."""
        return replace(self, derived=(*self.derived, words[:LONGEST]))

    @property
    def purpose(self) -> str:
        """What the release is for, as the schema or the ledger says."""
        return self.stated.purpose or ("" if self.receipt is None else self.receipt.purpose)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in a model file, which has in its schema what was stated."""
        return dict(write(self))


@cache
def software() -> Mapping[str, str]:
    """The versions that a result depends on."""
    own = {"curvedp": __version__, "Python": platform.python_version()}
    return own | {name: version(name) for name in PACKAGES}


def tuned_on_data(schema: Schema, guarantee: Guarantee) -> tuple[str, ...]:
    """What the mechanism chose by noisy looks within its ε, and what was bought before."""
    found, public = [], guarantee.parameters
    if "mu_clip" in public:
        found.append(
            "Within this ε, from noisy looks at the table: the metric that records are measured in, the "
            "lengths and norms that records and gradients are clipped to, how far the fit moves and in how "
            "many rounds."
        )
    if "mu_extent" in public and guarantee.neighbours.unit is not None:
        found.append("Within this ε, from a noisy histogram: how much of a person's rows counts.")
    if float(public.get("mu_count", 0.0)) > 0:
        found.append(f"Within this ε: a noisy number of {guarantee.neighbours.who}s.")
    bought: dict[str, list[str]] = {}
    for column in schema.columns:
        if not isinstance(column, Ignored) and is_bought(column.source):
            bought.setdefault(column.source, []).append(column.name)
    for source, names in bought.items():
        found.append(f"On top of this ε: the bounds of {', '.join(names)} ({source}).")
    return tuple(words[:LONGEST] for words in found)


def charged(receipt: Receipt | None) -> dict[str, Any]:
    """The receipt as part of a document; nothing where there is none."""
    return {} if receipt is None else {"receipt": asdict(receipt)}


def keep(
    ledger: Account | None, receipt: Receipt | None, released: Callable[[], Mapping[str, Any] | str]
) -> None:
    """Let the ledger keep the hash of a released document, or of the text of the page that shows it.

    Where it cannot, the release is not lost.
    """
    if receipt is None or not isinstance(ledger, Ledger):
        return
    try:
        made = released()
        fingerprint = Fingerprint(hashed(made), {}) if isinstance(made, str) else Fingerprint.of(made)
        ledger.keep(receipt, fingerprint, page=isinstance(made, str))
    except CurvedpError as problem:
        warnings.warn(
            f"what charge {receipt.charge} released is not on record ({problem}); the charge stands, and "
            "curvedp verify will say so",
            RuntimeWarning,
            stacklevel=3,
        )


@dataclass(frozen=True)
class Verification:
    """Whether a document is what a charge released, the `answer` in one line.

    `charge` is the number that it names, None where it names none; `differs` the fields that are not as the
    charge released them; `refit`, whether it calls itself a refit and differs in nothing but what a refit
    changes.
    """

    charge: int | None
    differs: tuple[str, ...]
    answer: str
    refit: bool = False

    @property
    def holds(self) -> bool:
        """Whether it is what the charge released."""
        return self.charge is not None and not self.differs


def verify(document: Mapping[str, Any], ledger: Ledger, page: str | None = None) -> Verification:
    """Compare a document, as it is in its file or in a `page`, with what the ledger keeps of its charge.

    What holds up to the ledger's head is proved up to the head, no further: see docs/threat-model.md.
    """
    record = document.get("record")
    place, said = "receipt", document.get("receipt")
    if isinstance(record, Mapping):  # of a model; a description says there what one record is
        place, said = "record.receipt", record.get("receipt")
    try:
        receipt: Receipt = read_object(Receipt, said, "its receipt")
    except ModelFileError:
        words = "it has no receipt of a ledger: no charge is known to have paid for it"
        return Verification(None, (place,), words)
    number, here = receipt.charge, ledger.state()
    if receipt.ledger != here.ledger:
        words = (
            f"its receipt is of ledger {receipt.ledger} and this is ledger {here.ledger}: pass that one. If "
            "it should be this file, the file was replaced: count every release as spent"
        )
        return Verification(number, (f"{place}.ledger",), words)
    if (found := ledger.on_record(number)) is None:
        words = f"there is no charge {number}: this ledger has {here.charges}"
        return Verification(number, (f"{place}.charge",), words)
    differs = _differing(document, place, receipt, found, page)
    if found.document is None:
        also = f"; and {_named(differs)} of the charge itself" if differs else ""
        words = (
            f"charge {number} has no document on record, so that nothing shows what it released: it stopped "
            f"before it ended, or released what is no file{also}"
        )
        return Verification(number, (*differs, "document"), words)
    if not differs:
        return Verification(number, (), f"this is what charge {number} released")
    answer = f"this is not what charge {number} released: {_named(differs)}"
    derived = isinstance(record, Mapping) and record.get("derived")
    none = tuple(name for name, value in _NO_MORE.items() if document.get(name) == value)
    refit = bool(derived) and all(name.startswith((*_REFITTED, *none)) for name in differs)
    if refit:
        answer += ". It calls itself a refit of that release: verify the model that it was made from"
    return Verification(number, tuple(differs), answer, refit)


def _differing(
    document: Mapping[str, Any], place: str, receipt: Receipt, found: OnRecord, page: str | None
) -> list[str]:
    """The fields that are not as the charge and what is kept of it say; the coarser name is left out."""
    claim = document.get("guarantee")
    claim = claim if isinstance(claim, Mapping) else {}
    said = asdict(receipt)
    names = {f"{place}.{key}": None for key, value in asdict(found.receipt).items() if said[key] != value}
    names |= {f"guarantee.{key}": None for key in _CLAIMS if claim.get(key) != getattr(found.charge, key)}
    if found.document is not None:
        kept = found.document.fields
        beside = () if "format" in document else BESIDE
        now_is = Fingerprint.of({key: value for key, value in document.items() if key not in beside})
        fields = sorted({*kept, *now_is.fields}, key=list({**kept, **now_is.fields}).index)
        names |= {name: None for name in fields if kept.get(name) != now_is.fields.get(name)}
        if not names and now_is.sha256 != found.document.sha256:
            names["the document"] = None
    if page is not None and (found.page is None or found.page.sha256 != hashed(page)):
        names["the page around its numbers"] = None
    return [name for name in names if not any(other.startswith(f"{name}.") for other in names)]


def _named(differs: Sequence[str]) -> str:
    verb = "differs" if len(differs) == 1 else "differ"
    return f"{listed([name[:100] for name in differs])} {verb}"


def listed(names: Sequence[str], most: int = SHOWN) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
