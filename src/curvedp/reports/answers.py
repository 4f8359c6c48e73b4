"""What a release can answer for itself, in sentences: for a registry and for an authority.

Every sentence follows from the model file, from its ledger, or from how curvedp is made. What none of these
tells is asked of the operator, never supposed.
"""

from __future__ import annotations

from collections import Counter

from curvedp.data.columns import Categorical, Ignored, Numeric
from curvedp.data.dates import Boolean, Column, Date
from curvedp.data.files import NOT_STATED, is_bought
from curvedp.errors import InvalidInput
from curvedp.numbers import shown
from curvedp.privacy.guarantee import Promise
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
ERRORS = (
    "Nothing that depends on the data reaches messages, warnings, logs or files but what the mechanism "
    "releases. Whether a release happens does not depend on the data either: what can be refused is refused "
    "from public facts, before the charge."
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
REFUSES = (
    "The ledger refuses a charge that would exceed its total, also where releases are chosen after "
    "seeing earlier ones."
)
TESTED = (
    "The library is tested against independent oracles. `curvedp audit --model MODEL` replays the release of "
    "this file on worst-case neighbouring tables and checks every premise of its proof there, without data."
)


class Answered:
    """A release and what it can say of itself; `ledger` is the state of its own, where it is at hand.

    `rows`: how many records were declared to be known; never counted. `name` is what the release is, in a few
    words; `tuning` what was chosen by looking at private data; `after` what was computed from it.
    """

    def __init__(self, document: Release, ledger: LedgerState | None = None) -> None:
        self.document, self.schema, self.guarantee = document, document.schema, document.guarantee
        self.ledger, self.receipt = ledger, document.record.receipt
        self.promise, self.rows = Promise(document.guarantee), document.schema.release.rows
        if ledger is not None and self.receipt is not None and ledger.ledger != self.receipt.ledger:
            raise InvalidInput(
                f"the release was charged to ledger {self.receipt.ledger} and this is ledger "
                f"{ledger.ledger}: pass that one, or leave it out"
            )
        g, record = document.guarantee, document.record
        entry = catalogue.MECHANISMS.get(g.mechanism)
        of = f" of {self.schema.target}" if self.schema.has_target else ""
        table = f" ({self.schema.release.table})" if self.schema.release.table else ""
        self.name = f"{document.entry.words}{of}{table}"
        self.variant = "Pure DP" if g.delta == 0 else "Approximate DP"
        self.numbers = f"ε = {shown(g.epsilon, 15)}, δ = {shown(g.delta, 15)}"
        words = "" if entry is None else f" ({entry.words})"
        proof = f"accounting {g.accounting}, proved by {g.theorem} (docs/theory.md)"
        self.mechanism = f"Mechanism {g.mechanism}{words}, {proof}."
        self.tuning = record.tuned or ("Nothing that the model file knows of.",)
        self.software = ", ".join(f"{name} {version}" for name, version in record.versions.items())
        self.after = " ".join(("Coefficients were brought into the units of the columns.", *record.derived))

    @property
    def contents(self) -> str:
        columns, outputs = len(self.schema.feature_names), len(self.document.intercept)
        constants = f" and {outputs} intercept{'s' if outputs > 1 else ''}"
        constants = " (fixed effects of persons absorbed)" if self.document.columns.absorbed else constants
        parts = [f"{columns * outputs} coefficients{constants}"]
        if self.document.inference is not None:
            parts.append("what their intervals are made of")
        if self.document.objective is not None:
            parts.append("a noisy quadratic model of the objective, from which other penalties are free")
        return f"{self.name}: a file with {', '.join(parts)}, and the public declarations."

    @property
    def domain(self) -> str:
        """The tables that the guarantee is about."""
        columns = "; ".join(_declared(column) for column in self.schema.columns)
        size = " and one number of records" if self.guarantee.neighbours.count_is_public else ""
        return f"All tables with these columns{size}, whatever their cells say: {columns}."

    @property
    def unprotected(self) -> str:
        who = self.guarantee.neighbours.who
        count = f" The number of {who}s is public." if self.guarantee.neighbours.count_is_public else ""
        return (
            "No number of the release was computed from the table without noise. Public are the "
            "declarations: names of columns, bounds, levels, what a record is, settings, noise scales."
            f"{count}"
        )

    @property
    def enforced(self) -> str:
        """How the contribution of a unit is bounded."""
        unit = self.guarantee.neighbours.unit
        rows = (
            ". A record whose target cannot be read adds nothing, and still counts as a record."
            if unit is None
            else f"; all rows of one {unit!r} are clipped and counted as one, however many there are. A row "
            "without an identifier contributes nothing."
        )
        return (
            "Cells outside of the declared bounds are clipped, and what one record adds to a sum is kept "
            f"within a bound that is public or that a noisy look chose{rows}"
        )

    @property
    def sources(self) -> str:
        columns = [column for column in self.schema.columns if not isinstance(column, Ignored)]
        counted = Counter(_source(column) for column in columns)
        said = "; ".join(f"{source} ({count} of {len(columns)})" for source, count in counted.items())
        return f"Where the bounds and levels come from: {said}."

    @property
    def noise_scales(self) -> str:
        return "; ".join(
            f"{p.symbol} = {p.value if isinstance(p.value, str) else shown(float(p.value), 6)} ({p.meaning})"
            for p in self.guarantee.parameters.described
            if p.is_noise
        )

    @property
    def arithmetic(self) -> str:
        name, noise = self.guarantee.mechanism, self.guarantee.parameters.get("noise")
        if name.startswith(_SOLVED_BY):
            return _SOLVED
        if name == "functional":
            return _LAPLACE
        if noise == "wishart":
            return f"{EXACT} {_CURVATURE}"
        return f"{EXACT} {_SOLVED}" if any(word in name for word in _SOLVED_BY) else EXACT

    @property
    def within(self) -> str:
        """Composition inside of the release."""
        return (
            "The release was planned, and its noise sized, before the charge; all of its looks at the table, "
            f"also those that depend on earlier ones, are counted together in its {self.numbers} "
            f"({self.guarantee.accounting} accounting)."
        )

    @property
    def charged(self) -> str:
        """Where it was charged; "" where it was not."""
        if (receipt := self.receipt) is None:
            return ""
        by = f" by {receipt.by}" if receipt.by else ""
        purpose = f", for: {receipt.purpose}" if receipt.purpose else ""
        return (
            f"Charge {receipt.charge} of ledger {receipt.ledger}, {receipt.time}{by}{purpose}, on disk "
            "before anything was computed from the table. Head of the ledger's history with this charge: "
            f"{receipt.head}."
        )

    @property
    def across(self) -> str:
        """Composition with other releases; "" where nothing is known of them."""
        state = self.ledger
        if self.receipt is None or state is None:
            return "" if self.receipt is None else REFUSES
        adds = "Σε and Σδ" if state.filter == "basic" else "squares of μ, as of Gaussian releases"
        return (
            f"{REFUSES} It adds up {adds}: of ε = {shown(state.epsilon)}, δ = {shown(state.delta)} in all, "
            f"ε = {shown(state.spent_epsilon)}, δ = {shown(state.spent_delta)} are spent (charges: "
            f"{state.charges}). Its head is now {state.digest}."
        )

    @property
    def accuracy(self) -> str:
        """What the release tells of its own errors; "" where nothing."""
        if self.document.inference is not None:
            return (
                "Standard errors and intervals, which hold sampling and privacy noise together, follow from "
                "the model file and stand in its report."
            )
        if self.document.noise.deviations is not None:
            return "How far privacy noise alone moves each coefficient is stated in the model file."
        return ""

    @property
    def bias(self) -> str:
        """What the method does to every table."""
        penalty = " A penalty draws coefficients towards 0." if self.document.settings.get("alpha") else ""
        return (
            "Cells beyond the bounds are clipped to them, missing and unreadable ones become what their "
            "column declares (the middle of the bounds, or a level or column of their own), records without "
            "a readable target contribute nothing, long records are clipped: each of these biases "
            f"coefficients, and none is counted or reported.{penalty} Noise "
            "weighs most on rare levels."
        )

    @property
    def used(self) -> str:
        rest = [column.name for column in self.schema.columns if isinstance(column, Ignored)]
        read = [column.name for column in self.schema.columns if column.name not in rest]
        said = f" Declared as not to be learned from: {', '.join(rest)}." if rest else ""
        own = f"Read were {len(read)} columns: {', '.join(read)}."
        return f"{own}{said} Columns that are not declared are never read."


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


def _source(column: Column) -> str:
    source = "" if isinstance(column, Ignored) else column.source
    if isinstance(column, Boolean) and not source:
        return "by its kind"
    return "a private release of their own" if is_bought(source) else source or NOT_STATED
