"""Messages of the library in the words of the command line: options, not parameters of Python."""

from __future__ import annotations

import re

from curvedp import catalogue

# Whole phrases: what only Python can do, and what a command does otherwise.
_PHRASES = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"pass a bounded (?:constraint|one) such as \w+\([^)]*\), or use", "use"),
        (r"pass a bounded (?:constraint|one) such as \w+\([^)]*\)", "choose another --mechanism"),
        (r"pass a bounded constraint \([^)]*\) or Poisson\([^)]*\)", "choose another --mechanism"),
        (r", or pass penalty=, such as [^,]*, in Python", ""),
        (r" \(PrivatePoissonRegressor\)", ""),
        (r"search with curvedp\.selection\.PrivateSearch", "choose with curvedp search"),
        (
            r"(?<=pass )model \"(\w+)\"(?: or \"(\w+)\")?",
            lambda m: "--model " + " or ".join(filter(None, m.groups())),
        ),
        (r"(?<=drop )(alpha|max_rate)\b", lambda m: _option(m.group(1))),
        (r"accounting=\"(\w+)\" or \"(\w+)\"", r"--accounting \1 or \2"),
        (r" of ‖θ\* − θ_c‖", " of the length of θ"),
        (r"has no parameter 'alpha'", "has no penalty: pass --model ridge or lasso"),
        (r"for rank=\d+, classes=\d+ ", "for several classes "),
        (r"(?<=with )inference=(True|False)", lambda m: f"--{'no-' * (m.group(1) == 'False')}inference"),
        (r"(?<=pass )inference=False", "--no-inference"),
        (r"\(Categorical in Python, --levels on the command line\)", "with --levels"),
        (r"header=True", "--header"),
        (r"header=False", "--no-header"),
        (r"names=…", "--names"),
        (r"(?<=pass )y: the model's schema", "a model of a table with its target: the model's schema"),
    )
)
# Parameters that are options by the same name: those that are English words only where a value follows.
_NAMES = r"random_state|x_norm|max_rate"
_WORDS = (
    r"accounting|adjacency|alpha|decimal|delimiter|delta|encoding|epsilon|filter|formula|ledger|mechanism|"
    r"purpose|radius|rows|schema|target|trust|unit"
)
_PARAMETER = re.compile(rf"(?<![\w'\"-])(?:({_NAMES})\b(?!['\"])=?|({_WORDS})=)(?:[\"'](\w+)[\"'])?")
_CLASSES = {entry.path.partition(":")[2]: entry.name for entry in catalogue.MECHANISMS.values()} | {
    entry.class_name: f"the model {entry.name}" for entry in catalogue.ESTIMATORS.values()
}
_CLASS = re.compile(rf"(?<![\w'\"])({'|'.join(map(re.escape, _CLASSES))})(?![\w'\"])")


def in_options(message: str) -> str:
    """The message with `--seed` for random_state, `--epsilon 2` for epsilon=2, `lop_clip` for LOPClip."""
    for pattern, words in _PHRASES:
        message = pattern.sub(words, message)
    message = _CLASS.sub(lambda found: _CLASSES[found.group()], message)
    return _PARAMETER.sub(_named, message)


def _named(found: re.Match[str]) -> str:
    bare, word, value = found.groups()
    space = " " if found.group().endswith("=") else ""
    return f"{_option(bare or word)} {value}" if value else _option(bare or word) + space


def _option(name: str) -> str:
    return "--seed" if name == "random_state" else f"--{name.replace('_', '-')}"
