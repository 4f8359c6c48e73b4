"""The numbers of docs/comparison.md, written from a finished comparison.

python -m curvedp_studies.peers_document RESULTS docs/comparison.md
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from curvedp.errors import InvalidInput
from curvedp_studies.peers import Score
from curvedp_studies.peers_report import REFERENCE, SHOWN, Summary, summarise, tallies
from curvedp_studies.resume import read_rows

FIRST = "recentered"
RIVAL = "gradient_tuned"
# The rule was chosen on these; the others were only run.
DEVELOPMENT = (
    "adult",
    "bike",
    "california",
    "communities",
    "concrete",
    "fertility",
    "magic",
    "metro_traffic",
    "spambase",
    "wine",
)
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def document(results: Path, page: Path) -> None:
    """Put the tables of `results` between the marks of `page`, and its figure and summary beside it."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise InvalidInput(f"{page} must hold the marks {BEGIN} and {END}")
    summaries = summarise(read_rows(results / "scores.csv", Score))
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    page.write_text(f"{head}{BEGIN}\n\n{tables(summaries)}\n{END}{tail}", encoding="utf-8")
    shutil.copy(results / "summary.csv", page.with_suffix(".csv"))
    figures = page.parent / "figures"
    figures.mkdir(exist_ok=True)
    shutil.copy(results / "comparison.png", figures / "comparison.png")


def tables(summaries: Sequence[Summary]) -> str:
    """Wins, ties and losses on each half of the tables, then the scores."""
    held_out = [s for s in summaries if s.dataset not in DEVELOPMENT]
    chosen_on = [s for s in summaries if s.dataset in DEVELOPMENT]
    return "\n".join([*_wins(summaries, chosen_on, held_out), "", *_scores(summaries), ""])


def _wins(
    summaries: Sequence[Summary], chosen_on: Sequence[Summary], held_out: Sequence[Summary]
) -> list[str]:
    lines = [
        "| against | won / tied / lost | won or tied | sets used for the rule | sets never used | worst |",
        "|---|---|---|---|---|---|",
    ]
    halves = [{t.mechanism: t for t in tallies(part, FIRST)} for part in (chosen_on, held_out)]
    for tally in tallies(summaries, FIRST):
        shares = [
            f"{100 * half[tally.mechanism].share:.0f} %"
            if tally.mechanism in half and not math.isnan(half[tally.mechanism].share)
            else "—"
            for half in halves
        ]
        lines.append(
            f"| {SHOWN.get(tally.mechanism, tally.mechanism)} | {tally.wins} / {tally.ties} / {tally.losses} "
            f"| {100 * tally.share:.0f} % | {shares[0]} | {shares[1]} | {tally.worst:+.3f} |"
        )
    return lines


def _scores(summaries: Sequence[Summary]) -> list[str]:
    """Per table and ε: ours, the tuned rival, the best of the others; without privacy first."""
    median = {(s.dataset, s.mechanism, s.epsilon): s.median for s in summaries if s.covered}
    epsilons = sorted({s.epsilon for s in summaries if math.isfinite(s.epsilon)})
    heads = " | ".join(f"ε = {e:g}" for e in epsilons)
    lines = [
        f"| table | no privacy | {heads} |",
        "|---|---|" + "---|" * len(epsilons),
    ]
    for dataset in sorted({s.dataset for s in summaries}):
        cells = []
        for e in epsilons:
            others = [
                value
                for (d, m, level), value in median.items()
                if d == dataset and level == e and m not in (FIRST, RIVAL, REFERENCE)
            ]
            parts = [
                median.get((dataset, FIRST, e)),
                median.get((dataset, RIVAL, e)),
                max(others, default=None),
            ]
            cells.append(" · ".join("—" if value is None else f"{value:.3f}" for value in parts))
        star = "" if dataset in DEVELOPMENT else "*"
        best = median.get((dataset, REFERENCE, math.inf), math.nan)
        lines.append(f"| {dataset}{star} | {best:.3f} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Median of {max(s.seeds for s in summaries)} splits, R² or accuracy: recentered · tuned gradient "
        "descent · best of the others. * not used to choose the rule.",
    ]
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=document.__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("page", type=Path)
    options = parser.parse_args(arguments)
    document(options.results, options.page)


if __name__ == "__main__":
    main()
