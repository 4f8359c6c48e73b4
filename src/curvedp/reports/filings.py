"""A page that answers, for one release, what NIST SP 800-226 asks of a claim of differential privacy.

"Guidelines for Evaluating Differential Privacy Guarantees" (March 2025) orders its questions as a pyramid:
each layer holds only if those below it do. Answers come from the model file, from the ledger and from how
curvedp is made; what these do not tell is left for the operator to state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from curvedp.digits import shown
from curvedp.filing import answers
from curvedp.filing.answers import Answered
from curvedp.ledger import LedgerState
from curvedp.modelfile import Release
from curvedp.pages import environment


@dataclass(frozen=True)
class Answer:
    """A question, what is known, and what the operator is still asked for ("" where nothing is)."""

    question: str
    known: tuple[str, ...] = ()
    asked: str = ""


@dataclass(frozen=True)
class Layer:
    """A layer of the pyramid."""

    id: str
    name: str
    answers: tuple[Answer, ...]

    @property
    def open(self) -> int:
        """How many answers the operator still owes."""
        return sum(bool(answer.asked) for answer in self.answers)


def evaluation(document: Release, ledger: LedgerState | None = None) -> tuple[Layer, ...]:
    """Answer the questions of SP 800-226 for a release, from the top of its pyramid to the ground.

    Parameters
    ----------
    document : Release
        A model file, as `curvedp.modelfile.load` reads it.
    ledger : LedgerState, optional
        The state of the ledger that it was charged to.

    Returns
    -------
    layers : tuple of Layer
        Each with its questions, what is known, and what only the operator can say.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateRidge
    >>> from curvedp.modelfile import Release
    >>> from curvedp.filing.nist import evaluation
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])
    >>> layers = evaluation(Release.of(model))
    >>> layers[0].name, layers[0].answers[0].known[0]
    ('Privacy parameters', 'Approximate DP: ε = 1, δ = 10⁻⁶.')
    """
    release = Answered(document, ledger)
    g, promise, stated, receipt = release.guarantee, release.promise, release.schema.release, release.receipt
    who, unit, bounded = g.neighbours.who, g.neighbours.unit, g.neighbours.count_is_public
    record = document.record
    purpose = "" if record is None else record.purpose
    scales = (f"Sizes of the noise: {release.noise_scales}.",) if release.noise_scales else ()
    command = "" if receipt is None else f"curvedp verify MODEL --ledger LEDGER --head {receipt.head}"
    seeded = "NOTHING is promised: the run had a fixed seed, or is a study. It must not be released."
    small = Answer(
        f"Is δ small against the number of {who}s?",
        asked=f"its size against the number of {who}s: it should be far below 1 divided by that number",
    )
    if release.rows is not None:
        expected = g.delta * release.rows
        size = "far below 1" if expected <= 0.1 else "NOT far below 1"
        known = f"δ times the {release.rows:,} {who}s that were declared is {shown(expected)}: {size}."
        small = Answer(small.question, (known,))
    layers = {
        ("parameters", "Privacy parameters"): [
            Answer(
                "Which guarantee is claimed, and with which parameters?",
                (f"{release.variant}: {release.numbers}.", *(() if g.private else (seeded,))),
            ),
            Answer("What do they mean for one whose data were used?", (promise.conclusion, promise.test)),
            small,
            Answer("Why are these values strong enough?", asked="who chose ε and δ, by what rule, and why"),
        ],
        ("unit", "Unit of privacy"): [
            Answer("What is the unit of privacy?", (promise.neighbours,)),
            Answer(
                "Does the unit cover all data of a person?",
                (f"The schema says: {release.schema.record}.",),
                "that no person has two rows, or why a row is what is to be protected",
            )
            if unit is None
            else Answer(
                "Does the unit cover all data of a person?",
                (f"Yes: all rows of one {unit!r} count together, however many.",),
                f"that {unit!r} identifies persons, and that none has two identifiers",
            ),
            Answer(
                "Is it bounded or unbounded differential privacy?",
                (
                    f"{'Bounded: one replaced' if bounded else 'Unbounded: one added or removed'}. The "
                    f"number of {who}s is {'public' if bounded else 'protected, too'}.",
                ),
            ),
            Answer("How is the contribution of a unit bounded?", (release.enforced,)),
        ],
        ("budget", "The budget across releases"): [
            Answer("How do computations within the release add up?", (release.within,)),
            Answer(
                "How does it add up with other releases of the same data?",
                tuple(line for line in (release.charged, release.across) if line)
                or ("It was charged to no ledger.",),
                "releases of the same data that are not in this ledger, with or without differential privacy",
            ),
            Answer(
                "What happens when the budget is spent?",
                ("The ledger refuses every further charge; nothing is computed then.",) if receipt else (),
                "whether the budget is ever renewed, when, and why that is justified",
            ),
        ],
        ("algorithms", "Algorithms and their correctness"): [
            Answer("Which algorithm was used?", (release.contents, release.mechanism, *scales)),
            Answer(
                "What proves that it is private?",
                (f"The theorem {g.theorem} of docs/theory.md, with its proof.",),
            ),
            Answer(
                "How was the implementation tested?",
                (answers.TESTED,),
                "the page of `curvedp audit` for this mechanism, and any review by others",
            ),
            Answer(
                "What was chosen by looking at the data, and was that paid for?",
                release.tuning,
                "anything else that was looked at before: summaries, plots, earlier models",
            ),
            Answer(
                "Do the bounds and levels come from public knowledge?",
                (answers.DECLARED, release.sources),
                "that no declared bound or level was read off the data",
            ),
            Answer(
                "What was computed from the release afterwards?", (release.after, answers.NOT_INTERACTIVE)
            ),
        ],
        ("utility", "Utility"): [
            Answer(
                "How far may the released numbers be from those without privacy?",
                (release.accuracy,) if release.accuracy else (),
                ""
                if release.accuracy
                else "how accurate it is: `curvedp plan` before, `curvedp score` after",
            ),
            Answer(
                "Is that accurate enough for its purpose?",
                (f"The purpose, as the operator states it: {purpose}.",) if purpose else (),
                "by which measure it is",
            ),
        ],
        ("bias", "Bias"): [
            Answer("Which bias does the method itself add?", (release.bias,)),
            Answer(
                "Whom does the noise hit?",
                ("Small groups more than large ones: the same noise stands beside fewer records.",),
                "scores by group (`curvedp score --group`), or why no group matters",
            ),
            Answer(
                "Which bias do the data bring along?",
                asked="how they were collected, who is missing from them, who decided what is measured",
            ),
        ],
        ("trust", "Trust and threats"): [
            Answer("Who is trusted, and who is the adversary?", (answers.TRUST,)),
            Answer("Can outsiders query the data?", (answers.NOT_INTERACTIVE,)),
            Answer("What is released without protection?", (release.unprotected,)),
            Answer(
                "Who may see what?",
                (f"As the operator states: {stated.audience}.",) if stated.audience else (),
                "" if stated.audience else "who may see the table, the ledger, the model and its report",
            ),
        ],
        ("implementation", "Implementation"): [
            Answer("Which software made it?", (f"{release.software}.",)),
            Answer("Can the digits of a number betray its input?", (release.arithmetic,)),
            Answer("Where does the randomness come from?", (answers.RANDOMNESS,)),
            Answer(
                "Which side channels are there?",
                (answers.TIMING,),
                "how outsiders are kept from measuring time, memory and load",
            ),
            Answer("What do messages, logs and failures reveal?", (answers.ERRORS,)),
        ],
        ("security", "Security and access control"): [
            Answer("How are the raw data secured?", asked="encryption, accounts, backups, deletion"),
            Answer("Who can make releases, and who approves them?", asked="who may charge the budget"),
            Answer(
                "Can the record of the budget be changed afterwards?",
                (
                    "A ledger chains its charges by hashes: who keeps a head elsewhere notices when what "
                    "came before it was rewritten. Whoever can replace the file can drop what came after.",
                    *((f"To check: `{command}`.",) if command else ()),
                ),
                "where heads of the ledger are kept, and who can replace or copy the file",
            ),
        ],
        ("collection", "Data collection and exposure"): [
            Answer(
                "Which data were used?",
                (
                    *((f"The table, as the operator states: {stated.table}.",) if stated.table else ()),
                    release.used,
                ),
                "" if stated.table else "what the table is called, and where it comes from",
            ),
            Answer(
                "Is more collected or kept than is needed?",
                asked="why these columns are needed, how long the data are kept, on what legal ground",
            ),
            Answer(
                "What do those whose data are used know of it?", asked="what they were told and agreed to"
            ),
        ],
    }
    return tuple(Layer(*key, tuple(found)) for key, found in layers.items())


def nist_page(document: Release, ledger: LedgerState | None = None, cautions: Sequence[str] = ()) -> str:
    """Write the answers as one HTML page, with room for what the operator has to add.

    Parameters
    ----------
    document : Release
        A model file, as `curvedp.modelfile.load` reads it.
    ledger : LedgerState, optional
        The state of the ledger that it was charged to.
    cautions : sequence of str, default=()
        What the report warns of.

    Returns
    -------
    html : str
        A page that loads nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateRidge
    >>> from curvedp.modelfile import Release
    >>> from curvedp.filing.nist import nist_page
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])
    >>> "To be stated by the operator" in nist_page(Release.of(model))
    True
    """
    release, layers = Answered(document, ledger), evaluation(document, ledger)
    return (
        environment()
        .get_template("nist.html")
        .render(
            release=release,
            g=release.guarantee,
            layers=layers,
            asked=sum(layer.open for layer in layers),
            questions=sum(len(layer.answers) for layer in layers),
            cautions=cautions,
            marked=_marked,
        )
    )


def _marked(text: str) -> Markup:
    """Escaped, with what stands between backticks as code."""
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if i % 2 else part for i, part in enumerate(text.split("`")))
