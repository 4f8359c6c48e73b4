"""The numbers of docs/audit.md, written from finished audits.

    curvedp audit --full --time-limit 20 --resume results/audit
    python -m curvedp_studies.audit_page "two cores=results/audit/audits.json" --page docs/audit.md

Every audit becomes a row of the CSV file beside the page, where rows replace those of the same machine; the
tables of the page are made from that file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from curvedp.errors import InvalidInput
from curvedp_studies.accuracy.document import written
from curvedp_studies.resume import read_rows, write_rows

NONE = -1.0  # in place of a number that is not known
MARK = "audits"


@dataclass(frozen=True)
class Audited:
    """One audit; `everything` and `leaves` are the ε proved by attackers who see so much, −1: none."""

    machine: str
    mechanism: str
    accounting: str
    adjacency: str
    loss: str
    features: int
    epsilon: float
    delta: float
    confidence: float
    fits: int
    seconds: float
    verdict: str
    proved: float
    everything: float
    leaves: float
    reach: float
    needed: int

    @property
    def point(self) -> tuple[str, ...]:
        """What names an audit."""
        return (self.machine, self.mechanism, self.accounting, self.adjacency, self.loss, str(self.features))

    @property
    def share(self) -> float:
        return self.proved / self.epsilon

    @classmethod
    def of(cls, machine: str, told: Mapping[str, Any]) -> Audited:
        """A row from what `AuditReport.to_dict` says."""
        return cls(
            machine=machine,
            **{name: told[name] for name in ("adjacency", "loss", "features")},
            mechanism=_name(told),
            accounting=_variant(told),
            **{name: told[name] for name in ("epsilon", "delta", "confidence", "fits", "verdict")},
            seconds=round(told["seconds"], 1),
            proved=_known(told["proved"]),
            everything=_known(told["proved_everything_released"]),
            leaves=_known(told["proved_what_leaves"]),
            reach=_known(told["reach"]),
            needed=int(_known(told["needed"])),
        )


def _name(told: Mapping[str, Any]) -> str:
    """The mechanism; of a release that is no fit of rows, what the grid calls it."""
    if told["loss"]:
        return str(told["mechanism"])
    return str(told["cell"]).removesuffix(told["adjacency"]).strip()


def _variant(told: Mapping[str, Any]) -> str:
    """The accounting, or where a grid names it by its kind of noise, that."""
    if not told["loss"]:
        return str(told["accounting"])
    before = str(told.get("cell", "")).partition(f" {told['loss']} ")[0]
    return before.removeprefix(told["mechanism"]).strip() or str(told["accounting"])


def _known(number: float | None) -> float:
    return NONE if number is None else round(number, 4)


def read_audits(machine: str, path: Path) -> list[Audited]:
    """The audits of a JSON file of `curvedp audit`: one, or those of `--full`."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return [Audited.of(machine, one) for one in (told if isinstance(told, list) else [told])]
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidInput(f"{path} does not hold audits: pass what curvedp audit --json prints") from None


def document(page: Path, found: Iterable[Audited] = ()) -> list[Path]:
    """Put the audits into the CSV file beside the page, and its tables between the marks of the page."""
    if not page.is_file():
        raise InvalidInput(f"there is no page {page}")
    table = page.with_suffix(".csv")
    fresh = list(found)
    kept = [row for row in read_rows(table, Audited) if row.machine not in {one.machine for one in fresh}]
    rows = [*kept, *fresh]
    if not rows:
        raise InvalidInput(f"{table} holds no audits yet: pass some")
    write_rows(table, Audited, rows)
    return [written(page, {MARK: tables(rows)}), table]


def tables(rows: Sequence[Audited]) -> list[str]:
    """One table for each machine."""
    lines: list[str] = []
    for machine in dict.fromkeys(row.machine for row in rows):
        lines += [*_table(machine, [row for row in rows if row.machine == machine]), ""]
    return lines[:-1]


def _table(machine: str, rows: Sequence[Audited]) -> list[str]:
    """The best audit of each mechanism, accounting and adjacency, and how many audits ended in which way."""
    counted = {v: sum(row.verdict == v for row in rows) for v in ("held", "inconclusive", "refuted")}
    hours = sum(row.seconds for row in rows) / 3600
    words = f"{len(rows)} audits with {_fits(sum(row.fits for row in rows))} fits in {hours:.1f} hours: "
    words += ", ".join(f"{count} {verdict}" for verdict, count in counted.items()) + "."
    lines = [f"### On {machine}", "", words, ""]
    lines += ["| mechanism | accounting | adjacency | proved/claimed | θ alone | reach | fits | at | held |"]
    lines += ["|---|---|---|--:|--:|--:|--:|---|--:|"]

    def group(row: Audited) -> tuple[str, str, str]:
        return row.mechanism, row.accounting, row.adjacency

    seen = [list(dict.fromkeys(part)) for part in zip(*map(group, rows), strict=True)]

    def place(row: Audited) -> list[int]:
        return [names.index(name) for names, name in zip(seen, group(row), strict=True)]

    for key, some in groupby(sorted(rows, key=place), key=group):
        found = list(some)
        best = max(found, key=lambda row: row.share)
        leaves = "" if best.leaves < 0 else f"{best.leaves / best.epsilon:.2f}"
        mark = f"**{best.share:.2f}**" if best.verdict == "held" else f"{best.share:.2f}"
        if any(row.verdict == "refuted" for row in found):
            mark += " refuted"
        held = f"{sum(row.verdict == 'held' for row in found)} of {len(found)}"
        where = f"{best.loss}, d = {best.features}" if best.loss else ""
        reach = "" if best.reach < 0 else f"{min(best.reach / best.epsilon, 1.0):.2f}"
        lines.append(f"| {' | '.join([*key, mark, leaves, reach, _fits(best.fits), where, held])} |")
    return lines


def _fits(count: float) -> str:
    return f"{count / 1e6:,.1f} million" if count >= 1e6 else f"{count:,.0f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="curvedp_studies.audit_page", description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", help='MACHINE=FILE, such as "two cores=results/audits.json"')
    parser.add_argument(
        "--page", type=Path, required=True, help="whose tables, between its marks, are replaced"
    )
    options = parser.parse_args(arguments)
    found: list[Audited] = []
    for given in options.results:
        machine, separator, path = given.partition("=")
        if not separator:
            raise SystemExit(f"{given}: say what made it, as in MACHINE=FILE")
        found += read_audits(machine, Path(path))
    for path in document(options.page, found):
        print(path)


if __name__ == "__main__":
    main()
