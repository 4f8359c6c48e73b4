"""python -m curvedp_studies.coverage [noise|field|document] …

The cells themselves: `curvedp coverage`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from curvedp_studies.coverage.catalogue import CPS, RARE


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in _COMMANDS:
        raise SystemExit(f"usage: {__doc__}")
    _COMMANDS[words[0]](words[1:])


def _noise(words: Sequence[str]) -> None:
    """Refits of fixed tables: empirical over stated deviation of the noise."""
    parser = argparse.ArgumentParser(prog="coverage noise", description=_noise.__doc__)
    parser.add_argument("--data", type=Path, help="a folder of tables with their public bounds")
    parser.add_argument("--populations", help="names, separated by commas")
    parser.add_argument("--refits", type=int, default=200)
    parser.add_argument("--workers", type=int, help="processes; default: all cores")
    parser.add_argument("--out", type=Path, required=True, help="a CSV file; what is there already is kept")
    options = parser.parse_args(words)
    from curvedp_studies.coverage import noise

    there = [name for name in noise.TABLES if name in (CPS, RARE) or _has(options.data, name)]
    names = options.populations.split(",") if options.populations else there
    noise.refit(names, options.data, options.out, options.refits, _count, options.workers)


def _has(folder: Path | None, name: str) -> bool:
    return folder is not None and (folder / f"{name}.npz").exists()


def _field(words: Sequence[str]) -> None:
    """Other ways to private intervals, on the same generated populations."""
    parser = argparse.ArgumentParser(prog="coverage field", description=_field.__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--workers", type=int, help="processes; default: all cores")
    parser.add_argument("--out", type=Path, required=True, help="a CSV file; what is there already is kept")
    options = parser.parse_args(words)
    from curvedp_studies.coverage import rivals

    rivals.against_the_field(rivals.POPULATIONS, options.out, options.runs, _count, options.workers)


def _document(words: Sequence[str]) -> None:
    """Put the tables of finished runs into the page, its CSV and its figure."""
    parser = argparse.ArgumentParser(prog="coverage document", description=_document.__doc__)
    parser.add_argument("--scores", type=Path, help="coverage.csv of `curvedp coverage`")
    parser.add_argument("--noise", type=Path, help="of `noise`")
    parser.add_argument("--field", type=Path, help="of `field`")
    parser.add_argument("--groups", type=Path, help="groups.csv of `curvedp coverage --of groups`")
    for names in (
        "shipped",
        "formulas",
        "unseen",
        "tails",
        "weak",
        "drawn",
        "held",
        "persons",
        "counts",
        "quantiles",
    ):
        told = f"coverage.csv of `curvedp coverage --populations {names}`"
        parser.add_argument(f"--{names}", type=Path, help=told)
    parser.add_argument("--page", type=Path, default=Path("docs/inference.md"))
    options = parser.parse_args(words)
    from curvedp_studies.coverage.document import document

    for path in document(**vars(options)):
        print(path)


def _count(done: int, total: int) -> None:
    print(f"{done} of {total}", flush=True)


_COMMANDS = {"noise": _noise, "field": _field, "document": _document}

if __name__ == "__main__":
    main()
