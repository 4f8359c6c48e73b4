"""What a release can answer for itself, in sentences: for a registry and for an authority.

Every sentence follows from the model file, from its ledger, or from how curvedp is made. What none of these
tells is asked of the operator, never supposed.
"""

from __future__ import annotations

from collections import Counter

from curvedp.data.columns import Categorical, Ignored, Numeric
from curvedp.data.dates import Boolean, Column, Date, Feature
from curvedp.data.files import BY_KIND, NOT_STATED, is_bought
from curvedp.errors import InvalidInput
from curvedp.numbers import shown
from curvedp.privacy.guarantee import Guarantee, Promise
from curvedp.release import catalogue
from curvedp.release.ledger.storage import LedgerState
from curvedp.release.modelfile import Release

TRUST = (
    "Central: the operator, the process and the machine that hold the table see it as it is, and are "
    "trusted. Whoever sees the release is not trusted, whatever they know of all other records and however "
    "much they can compute."
)
NOT_INTERACTIVE = (
    "Nobody queries the table through it: what was released is a file of numbers. Predictions and everything "
    "else that is computed from it cost nothing more."
)
DECLARED = (
    "Bounds, levels, classes, penalty weights, the formula and the choice of the mechanism are the "
    "operator's declarations, and are trusted to be public knowledge, but for what is said to be bought or "
    "chosen within ε. No program can notice a bound that was read off the data."
)
RANDOMNESS = (
    "Noise comes from the ChaCha20 stream cipher, keyed with 256 bits from the operating system for this "
    "release alone. A run with a seed says that it is not private, and no ledger accepts it."
)
TIMING = (
    "How long the computation takes depends on the data and is not covered: outsiders must not be able to "
    "measure it. Nor are memory, caches, power and the operator's own disk."
)
EXACT = (
    "Sums over records are rounded to a public grid and get a discrete Gaussian on it, drawn exactly in "
    "integers; rounding errors are counted in the sensitivity, what discreteness adds in δ. Noise scales and "
    "δ are rounded up."
)
_CURVATURE = (
    "Of that, one thing is excepted: the random curvature W is sampled in double "
    "precision, added to the sum XᵀX and rounded to a public grid. The proof treats it as continuous; no "
    "proof counts the difference, nor the rounding errors of XᵀX there."
)
_LAPLACE = (
    "Sums over records are rounded to a public grid and get discrete Laplace noise on it, drawn exactly in "
    "integers; the sensitivity is counted in steps of the grid. Noise scales are rounded up."
)
_SOLVED = (
    "The solution is rounded to a public grid and gets an exact discrete Gaussian; how far the solver may be "
    "from the exact minimiser is counted. The noise inside the objective is sampled in double precision, is "
    "never released, and the proof treats it as continuous."
)
_SOLVED_BY = ("qop", "lop", "output", "amp")  # mechanisms that release a solution


class Answered:
    """A release and what it can say of itself; `ledger` is the state of its own, where it is at hand.

    `rows`: how many records were declared to be known; never counted. `name` is what the release is, in a few
    words; `tuning` what was chosen by looking at private data; `after` what was computed from it; `domain`
    the tables that the guarantee is about; `enforced` how the contribution of a unit is bounded; `within` and
    `across` how it adds up, inside of the release and with others; `bias` what the method does to every
    table. "" stands for what is not known: where it was `charged`, `across`, its own `accuracy`.
    """

    def __init__(self, document: Release, ledger: LedgerState | None = None) -> None:
        g, schema, record = document.guarantee, document.schema, document.record
        receipt = record.receipt
        if ledger is not None and receipt is not None and ledger.ledger != receipt.ledger:
            raise InvalidInput(
                f"the release was charged to ledger {receipt.ledger} and this is ledger "
                f"{ledger.ledger}: pass that one, or leave it out"
            )
        self.document, self.schema, self.guarantee, self.ledger = document, schema, g, ledger
        self.receipt, self.promise, self.rows = receipt, Promise(g), schema.release.rows
        of = f" of {schema.target}" if schema.has_target else ""
        table = f" ({schema.release.table})" if schema.release.table else ""
        self.name = f"{document.entry.words}{of}{table}"
        self.variant = "Pure DP" if g.delta == 0 else "Approximate DP"
        self.numbers = f"ε = {shown(g.epsilon, 15)}, δ = {shown(g.delta, 15)}"
        entry = catalogue.MECHANISMS.get(g.mechanism)
        words = "" if entry is None else f" ({entry.words})"
        proof = f"accounting {g.accounting}, proved by {g.theorem} (docs/theory.md)"
        self.mechanism = f"Mechanism {g.mechanism}{words}, {proof}."
        self.arithmetic = _arithmetic(g)
        self.tuning = record.tuned or ("Nothing that the model file knows of.",)
        self.software = ", ".join(f"{name} {version}" for name, version in record.versions.items()) + "."
        self.after = " ".join(("Coefficients were brought into the units of the columns.", *record.derived))

        columns, outputs = len(schema.feature_names), len(document.intercept)
        constants = f" and {outputs} intercept{'s' if outputs > 1 else ''}"
        constants = " (fixed effects of persons absorbed)" if document.columns.absorbed else constants
        parts = [f"{columns * outputs} coefficients{constants}"]
        self.accuracy = ""
        if document.inference is not None:
            parts.append("what their intervals are made of")
            self.accuracy = (
                "Standard errors and intervals, which hold sampling and privacy noise together, follow from "
                "the model file and stand in its report."
            )
        elif document.noise.deviations is not None:
            self.accuracy = "How far privacy noise alone moves each coefficient is stated in the model file."
        if document.objective is not None:
            parts.append("a noisy quadratic model of the objective, from which other penalties are free")
        self.contents = f"{self.name}: a file with {', '.join(parts)}, and the public declarations."

        unit, fixed = g.neighbours.unit, g.neighbours.count_is_public
        size = " and one number of records" if fixed else ""
        cells = "; ".join(_declared(column) for column in schema.columns)
        self.domain = f"All tables with these columns{size}, whatever their cells say: {cells}."
        self.unprotected = (
            "No number of the release was computed from the table without noise. Public are the "
            "declarations: names of columns, bounds, levels, what a record is, settings, noise scales."
            + (f" The number of {g.neighbours.who}s is public." if fixed else "")
        )
        self.enforced = (
            "Cells outside of the declared bounds are clipped, and what one record adds to a sum is kept "
            "within a bound that is public or that a noisy look chose"
        ) + (
            ". A record whose target cannot be read adds nothing, and still counts as a record."
            if unit is None
            else f"; all rows of one {unit!r} are clipped and counted as one, however many there are. A row "
            "without an identifier contributes nothing."
        )
        rest = [column.name for column in schema.columns if isinstance(column, Ignored)]
        read = [column for column in schema.columns if not isinstance(column, Ignored)]
        found = Counter(map(_source, read)).items()
        said = "; ".join(f"{source} ({count} of {len(read)})" for source, count in found)
        self.sources = f"Where the bounds and levels come from: {said}."
        said = f" Declared as not to be learned from: {', '.join(rest)}." if rest else ""
        own = f"Read were {len(read)} columns: {', '.join(column.name for column in read)}."
        self.used = f"{own}{said} Columns that are not declared are never read."
        scales = "; ".join(
            f"{p.symbol} = {p.value if isinstance(p.value, str) else shown(float(p.value), 6)} ({p.meaning})"
            for p in g.parameters.described
            if p.is_noise
        )
        self.noise_scales = scales and f"Sizes of the noise: {scales}."
        penalty = " A penalty draws coefficients towards 0." if document.settings.get("alpha") else ""
        self.bias = (
            "Cells beyond the bounds are clipped to them, missing and unreadable ones become what their "
            "column declares (the middle of the bounds, or a level or column of their own), records without "
            "a readable target contribute nothing, long records are clipped: each of these biases "
            f"coefficients, and none is counted or reported.{penalty} Noise weighs most on rare levels."
        )

        self.within = (
            "The release was planned, and its noise sized, before the charge; all of its looks at the table, "
            f"also those that depend on earlier ones, are counted together in its {self.numbers} "
            f"({g.accounting} accounting)."
        )
        self.charged, self.across = "", ""
        if receipt is not None:
            by = f" by {receipt.by}" if receipt.by else ""
            purpose = f", for: {receipt.purpose}" if receipt.purpose else ""
            self.charged = (
                f"Charge {receipt.charge} of ledger {receipt.ledger}, {receipt.time}{by}{purpose}, on disk "
                "before anything was computed from the table. Head of the ledger's history with this charge: "
                f"{receipt.head}."
            )
            self.across = (
                "The ledger refuses a charge that would exceed its total, also where releases are chosen "
                "after seeing earlier ones."
            )
        if receipt is not None and ledger is not None:
            adds = "Σε and Σδ" if ledger.filter == "basic" else "squares of μ, as of Gaussian releases"
            self.across += (
                f" It adds up {adds}: of ε = {shown(ledger.epsilon)}, δ = {shown(ledger.delta)} in all, ε = "
                f"{shown(ledger.spent_epsilon)}, δ = {shown(ledger.spent_delta)} are spent (charges: "
                f"{ledger.charges}). Its head is now {ledger.digest}."
            )


def _arithmetic(g: Guarantee) -> str:
    if g.mechanism.startswith(_SOLVED_BY):
        return _SOLVED
    if g.mechanism == "functional":
        return _LAPLACE
    if g.mechanism == "wishart":
        return f"{EXACT} {_CURVATURE}"
    return f"{EXACT} {_SOLVED}" if any(word in g.mechanism for word in _SOLVED_BY) else EXACT


def _declared(column: Column) -> str:
    """One column of the domain."""
    if isinstance(column, Numeric):
        return f"{column.name}, a number, clipped to [{column.low:g}, {column.high:g}]"
    if isinstance(column, Categorical):
        return f"{column.name}, one of {len(column.levels)} levels"
    if isinstance(column, Date):
        return f"{column.name}, a date, clipped to {column.low.isoformat()} … {column.high.isoformat()}"
    if isinstance(column, Ignored):
        return f"{column.name}, not read"
    return f"{column.name}, a truth value"


def _source(column: Feature) -> str:
    if is_bought(column.source):
        return "a private release of their own"
    return column.source or (BY_KIND if isinstance(column, Boolean) else NOT_STATED)
