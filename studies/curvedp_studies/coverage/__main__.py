"""python -m curvedp_studies.coverage [run|calibrate|export|noise|field|document] …"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from curvedp_studies.coverage.calibration import Calibrations
from curvedp_studies.coverage.catalogue import CPS, RARE, chosen, export, population
from curvedp_studies.coverage.cells import ADJACENCIES, EPSILONS, Score, grid
from curvedp_studies.coverage.synthetic import DIMENSIONS


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = words.pop(0) if words and words[0] in _COMMANDS else "run"
    _COMMANDS[command](words)


def _run(words: Sequence[str]) -> None:
    """Coverage and width in every cell."""
    parser = argparse.ArgumentParser(prog="coverage run", description=_run.__doc__)
    parser.add_argument("--engine", choices=("code", "batched"), default="code")
    parser.add_argument("--data", type=Path, help="tables with their bounds, or exported populations")
    parser.add_argument("--out", type=Path, required=True, help="a CSV file; what is there already is kept")
    parser.add_argument("--calibrations", type=Path, help="made by `calibrate`; default: calibrated here")
    parser.add_argument("--cells", help="N:EPSILON or N:EPSILON:ADJACENCY, separated by commas")
    parser.add_argument("--populations", help="names, separated by commas")
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), help="of the batched engine; default: a GPU if any"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after a cell once over")
    options = parser.parse_args(words)
    cells = grid(chosen(options.populations, options.data), options.cells)
    if options.engine == "code":
        from curvedp_studies.coverage import library

        library.study(cells, options.data, options.out, options.runs, _count, options.workers)
        return
    from curvedp_studies.coverage.engines import default_device, simulate

    simulate(
        cells,
        options.data,
        options.out,
        calibrations_of(options.calibrations, [cell.population for cell in cells], options.data),
        options.runs,
        _tell,
        device=options.device or default_device(),
        workers=options.workers,
        seconds=options.seconds,
    )


def calibrations_of(path: Path | None, names: Sequence[str], data: Path | None) -> Calibrations:
    """From a file, or made here for these populations."""
    if path is not None:
        return Calibrations.load(path)
    from curvedp_studies.coverage.study import calibrations_for

    return calibrations_for(list(names), data)


def _calibrate(words: Sequence[str]) -> None:
    """The public numbers of every plan of the study, as JSON."""
    parser = argparse.ArgumentParser(prog="coverage calibrate", description=_calibrate.__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--populations")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    from curvedp_studies.coverage.calibrate import calibrated

    sizes = {d + 1 for d in DIMENSIONS}
    for name in (*chosen(options.populations, options.data), RARE):
        if "-" not in name:
            sizes.add(population(name, options.data).r)
    calibrated(sizes, EPSILONS, ADJACENCIES).save(options.out)
    print(f"{options.out}: r = {', '.join(map(str, sorted(sizes)))}")


def _export(words: Sequence[str]) -> None:
    """Real populations as compressed arrays, for a machine without the tables."""
    parser = argparse.ArgumentParser(prog="coverage export", description=_export.__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--populations")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    names = chosen(options.populations, options.data) + ([] if options.populations else [RARE])
    for path in export(names, options.data, options.out):
        print(f"{path}  {path.stat().st_size / 1e6:.2f} MB")


def _noise(words: Sequence[str]) -> None:
    """Refits of fixed tables: empirical over stated deviation of the noise."""
    parser = argparse.ArgumentParser(prog="coverage noise", description=_noise.__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--populations")
    parser.add_argument("--calibrations", type=Path)
    parser.add_argument("--refits", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    from curvedp_studies.coverage import noise
    from curvedp_studies.coverage.engines import default_device, pooled

    there = [name for name in noise.TABLES if name in (CPS, RARE) or _has(options.data, name)]
    names = options.populations.split(",") if options.populations else there
    calibrations = calibrations_of(options.calibrations, names, options.data)
    device = options.device or default_device()
    with pooled(options.workers) as mapper:
        noise.refit(
            names, options.data, options.out, calibrations, options.refits, _say, device=device, mapper=mapper
        )


def _has(folder: Path | None, name: str) -> bool:
    return folder is not None and (folder / f"{name}.npz").exists()


def _field(words: Sequence[str]) -> None:
    """Other ways to private intervals, on the same generated populations."""
    parser = argparse.ArgumentParser(prog="coverage field", description=_field.__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    from curvedp_studies.coverage import rivals

    rivals.against_the_field(rivals.POPULATIONS, options.out, options.runs, _say)


def _document(words: Sequence[str]) -> None:
    """Put the tables of finished runs into the page, its CSV and its figure."""
    parser = argparse.ArgumentParser(prog="coverage document", description=_document.__doc__)
    parser.add_argument("--scores", type=Path, help="of `run`")
    parser.add_argument("--noise", type=Path, help="of `noise`")
    parser.add_argument("--field", type=Path, help="of `field`")
    parser.add_argument("--page", type=Path, default=Path("docs/inference.md"))
    options = parser.parse_args(words)
    from curvedp_studies.coverage.document import document

    for path in document(options.page, options.scores, options.noise, options.field):
        print(path)


def _say(score: object) -> None:
    print(score, flush=True)


def _count(done: int, total: int) -> None:
    print(f"{done} of {total} cells", flush=True)


def _tell(done: int, total: int, score: Score) -> None:
    print(
        f"{done}/{total} {score.population} n={score.n} ε={score.epsilon:g} {score.adjacency} "
        f"κ={score.kappa:.0f}: "
        f"coverage {score.coverage:.3f} (worst {score.worst:.2f}) width {score.width:.2f} "
        f"refused {score.refused:.2f} bias {score.bias:.2f} sd {score.deviation:.2f}",
        flush=True,
    )


_COMMANDS = {
    "run": _run,
    "calibrate": _calibrate,
    "export": _export,
    "noise": _noise,
    "field": _field,
    "document": _document,
}

if __name__ == "__main__":
    main()
