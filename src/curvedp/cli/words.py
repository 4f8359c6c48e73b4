"""Messages of the library in the words of the command line: options, not parameters of Python."""

from __future__ import annotations

import re

from curvedp import catalogue

_BOUNDED = re.compile(r"pass a bounded (?:constraint|one) such as \w+\([^)]*\)(?:, or use)?")
_PARAMETER = re.compile(
    r"(?<![\w'\"-])(random_state|(?:accounting|adjacency|alpha|delimiter|epsilon|delta|ledger|mechanism|radius|"
    r"x_norm|schema)(?==))(?!\w|['\"])=?"
)
_WORDS = {"header=True": "--header", "header=False": "--no-header", "names=…": "--names"}
_CLASSES = {entry.path.partition(":")[2]: entry.name for entry in catalogue.MECHANISMS.values()}
_CLASS = re.compile(rf"(?<![\w'\"])({'|'.join(map(re.escape, _CLASSES))})(?![\w'\"])")


def in_options(message: str) -> str:
    """The message with `--seed` for random_state, `--epsilon 2` for epsilon=2, `lop_clip` for LOPClip."""
    message = _BOUNDED.sub(
        lambda found: "use" if found.group().endswith("use") else "choose another --mechanism", message
    )
    for words, option in _WORDS.items():
        message = message.replace(words, option)
    message = _CLASS.sub(lambda found: _CLASSES[found.group()], message)
    return _PARAMETER.sub(_option, message)


def _option(found: re.Match[str]) -> str:
    name = "seed" if found.group(1) == "random_state" else found.group(1).replace("_", "-")
    return f"--{name} " if found.group().endswith("=") else f"--{name}"
