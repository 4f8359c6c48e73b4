"""python -m curvedp_studies.accuracy [variants|run|choose|leverage] …"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from curvedp_studies.accuracy import variants
from curvedp_studies.pages import fill

ADJACENCIES = ("add_remove", "replace")


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in _COMMANDS:
        raise SystemExit(f"usage: {__doc__}")
    _COMMANDS[words[0]](words[1:])


def _variants(words: Sequence[str]) -> None:
    """Write a file of variants to start from: every constant of the rule up and down."""
    parser = argparse.ArgumentParser(prog="accuracy variants", description=_variants.__doc__)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(words)
    variants.write(options.out)
    print(f"{options.out}  {len(variants.AROUND)} variants")


def _run(words: Sequence[str]) -> None:
    """Every variant on every table, by the library; what is in the CSV file already is kept."""
    parser = argparse.ArgumentParser(prog="accuracy run", description=_run.__doc__)
    parser.add_argument("--data", type=Path, help="a folder of tables as `curvedp compare` reads them")
    parser.add_argument("--out", type=Path, required=True, help="a CSV file")
    parser.add_argument("--variants", type=Path)
    parser.add_argument(
        "--tables", help="names, separated by commas; default: the folder's and the packages'"
    )
    parser.add_argument("--adjacency", choices=ADJACENCIES, default="add_remove")
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--workers", type=int, help="processes; default: all cores")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing once over")
    options = parser.parse_args(words)
    from curvedp_studies.accuracy.results import run

    run(
        options.data,
        options.out,
        variants.rules(options.variants),
        options.adjacency,
        options.seeds,
        lambda done, total: print(f"{done} of {total}", flush=True),
        tables=options.tables.split(",") if options.tables else None,
        workers=options.workers,
        seconds=options.seconds,
    )


def _choose(words: Sequence[str]) -> None:
    """Leave tables out, and compare with the opponents; the page gets the constants."""
    parser = argparse.ArgumentParser(prog="accuracy choose", description=_choose.__doc__)
    parser.add_argument("--results", type=Path, required=True, nargs="+", help="of `run`")
    parser.add_argument("--descent", type=Path, help="CSV: dataset, epsilon, full_fresh")
    parser.add_argument("--unit", type=Path, help="CSV: dataset, epsilon, method, test_mse")
    parser.add_argument("--adjacency", choices=ADJACENCIES, default="add_remove")
    parser.add_argument("--folds", type=int, default=8)
    parser.add_argument("--page", type=Path, help="whose constants, between its marks, are replaced")
    options = parser.parse_args(words)
    from curvedp.mechanisms.rule import Rule
    from curvedp_studies.accuracy import opponents
    from curvedp_studies.accuracy.choose import Field
    from curvedp_studies.accuracy.constants import constants_table
    from curvedp_studies.accuracy.document import report
    from curvedp_studies.accuracy.results import Cell
    from curvedp_studies.resume import read_rows

    cells = [cell for path in options.results for cell in read_rows(path, Cell)]
    met = [*opponents.descents(options.descent)] if options.descent else []
    met += opponents.published(options.unit) if options.unit else []
    lines = report(Field([cell for cell in cells if cell.adjacency == options.adjacency], met), options.folds)
    print("\n".join(lines))
    if options.page is not None:
        fill(options.page, {"constants": constants_table(Rule())})


def _leverage(words: Sequence[str]) -> None:
    """How often a few long records spoil a fit, with and without `doubt`."""
    parser = argparse.ArgumentParser(prog="accuracy leverage", description=_leverage.__doc__)
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args(words)
    from curvedp_studies.accuracy.leverage import spreads

    for line in spreads(options.runs):
        print(line, flush=True)


_COMMANDS = {
    "variants": _variants,
    "run": _run,
    "choose": _choose,
    "leverage": _leverage,
}

if __name__ == "__main__":
    main()
