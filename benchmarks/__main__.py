"""Run every section, print its tables, save them as benchmarks/results.md.

    python -m benchmarks                 # all sections
    python -m benchmarks solvers passes  # some

A section is a module of this package with a function `tables() -> list[Table]`; add its name to SECTIONS.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib import import_module
from pathlib import Path

# One BLAS thread per process, before numpy is loaded: the library runs its own threads over chunks.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

SECTIONS = ("ratios", "solvers", "logistic", "passes")


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(SECTIONS))
    if unknown:
        sys.exit(f"no section {', '.join(unknown)}; choose from {', '.join(SECTIONS)}")
    lines = [
        "# Benchmarks",
        "",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, one BLAS thread.",
        "Times are the best of several runs in one process: processor time where one thread does the work,",
        "wall-clock time where several do. The ratios are what to read.",
        "",
    ]
    print("\n".join(lines))
    for name in names or SECTIONS:
        start = time.perf_counter()
        for table in import_module(f"benchmarks.{name}").tables():
            text = table.markdown()
            print(text, flush=True)
            lines.append(text)
        print(f"({name}: {time.perf_counter() - start:.0f} s)\n", flush=True)
    if not names:
        Path(__file__).with_name("results.md").write_text("\n".join(lines) + "\n")


main(sys.argv[1:])
