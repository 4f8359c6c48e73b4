"""Private fits on a GPU: correct against numpy, then timed, then a 10⁹-fit audit. One command does it all:

    PYTHONPATH=src python3 benchmarks/gpu.py --out results/

needs numpy, scipy, torch and, for the fused kernel, CuPy; nothing else of the library's dependencies. A
section that fails prints its traceback and the others go on. The table comes last, then in gpu.md, gpu.json.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import sys
import time
import traceback
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).resolve().parents[1] / "src"


def bare_packages() -> None:
    """Make `curvedp` and its packages importable without running their __init__, which import everything."""
    for name in ("curvedp", "curvedp.audit"):
        package = types.ModuleType(name)
        package.__path__ = [str(SOURCE.joinpath(*name.split(".")))]
        sys.modules.setdefault(name, package)


bare_packages()

from curvedp.audit import bounds  # noqa: E402
from curvedp.audit.fits import (  # noqa: E402
    Bins,
    Draws,
    Fits,
    MarginFits,
    Penalty,
    Perturbations,
    QuadraticFits,
)
from curvedp.audit.fits.recentered import Numbers, RecenteredFits, Trace  # noqa: E402
from curvedp.audit.fits.recentered_torch import TorchRecentered  # noqa: E402
from curvedp.audit.fits.torch import Torch  # noqa: E402

# QOP(m=109) under Budget(1.0, 1e-6), squared loss in the unit ball, adding or removing a record, directional
# accounting, d = 10: what QOP.plan computes. G is the shared gradient of the strongest attack.
AUDITED = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "m": 109.0,
    "sigma2": 0.5712942172511835,
    "sigma0": 7.257417695226933,
}
AUDITED_G = 78.36521622423497

# Recentered() under Budget(1.0, 1e-3), squared loss, adding or removing a record, d = 2, by `numbers_of`.
WALKED = Numbers(
    x_norm=1.0,
    public_count=0.0,
    sum_factor=1.0,
    histogram_factor=1.0,
    gram_factor=1.000804474620253,
    mu=0.3884012483064992,
    mu_count=0.054928231293741754,
    mu_pilot=0.11652037447916376,
    mu_lengths=0.03884012482638792,
    mu_spread=0.054928231293741754,
    mu_scale=0.054928231293741754,
    mu_clip=0.054928231293741754,
    mu_first=0.15241965610298658,
    mu_later=0.30483931220597316,
    sigma2=0.8876780749990361,
    m=100.0,
    precise=4000.0,
    plenty=100.0,
    rounds=64.0,
    first_rounds=16.0,
    step=0.5,
    quick_rounds=24.0,
    quick_first_rounds=6.0,
    quick_step=0.8,
    floor=0.35,
    kept_lengths=0.8,
    travel=1.25,
    first_travel=16.0,
    momentum=0.8,
    weight=0.5,
    large=1000.0,
    clipped=2.5,
    kept=0.6,
    doubt=1.0,
    first_clip=0.25,
    first_kept=0.5,
    widest_clip=4.0,
    beta=1.0,
    slope=0.5830951894845301,
)


@dataclass
class Results:
    """Everything that was measured, in the order it was."""

    environment: dict[str, Any] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    timings: list[dict[str, Any]] = field(default_factory=list)
    audit: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def check(self, name: str, value: float, limit: float) -> None:
        """A check passes when |value| ≤ limit; NaN fails."""
        self.checks.append(
            {"check": name, "value": value, "limit": limit, "passed": bool(abs(value) <= limit)}
        )
        print(
            f"check {name}: {value:.3g} (limit {limit:.3g}) {'ok' if abs(value) <= limit else 'FAILED'}",
            flush=True,
        )

    def time(self, name: str, d: int, fits: int, seconds: float) -> None:
        self.timings.append({"name": name, "d": d, "fits": fits, "seconds": seconds, "rate": fits / seconds})
        print(f"{name}, d = {d}: {fits / seconds:.4g} fits/s ({fits} in {seconds:.3f} s)", flush=True)


def regression(d: int, noise: Perturbations, penalty: Penalty | None = None) -> QuadraticFits:
    rng = np.random.default_rng(d)
    X = rng.standard_normal((2 * d + 3, d)) / math.sqrt(d)
    y = X @ rng.standard_normal(d)
    center = 0.1 * rng.standard_normal(d)
    return QuadraticFits(X.T @ X, X.T @ (y - X @ center), noise, penalty or Penalty(), center)


def bartlett(rng: np.random.Generator, n: int, d: int, m: float) -> Draws:
    factor = np.tril(rng.standard_normal((n, d, d)), -1)
    for j in range(d):
        factor[:, j, j] = np.sqrt(rng.chisquare(m - j, n))
    return Draws(factor, rng.standard_normal((n, d)))


def reference(fits: QuadraticFits, draws: Draws) -> np.ndarray:
    """The smooth fits by numpy, one at a time."""
    noise = fits.noise
    S = (
        fits.gram
        + noise.ridge * np.eye(fits.d)
        + noise.sigma2 * draws.factor @ draws.factor.transpose(0, 2, 1)
    )
    v = fits.linear - noise.sigma0 * draws.normal
    return fits.center + np.linalg.solve(S, v[..., None])[..., 0]


def median_seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Median wall time of a call that waits for the device; one call before it warms up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def sized(rate_of: Callable[[int], float], first: int, seconds: float, largest: int) -> int:
    """A number of fits that takes about `seconds`."""
    return int(min(largest, max(first, first / rate_of(first) * seconds)))


def check_solutions(engines: dict[str, Any], results: Results) -> None:
    rng = np.random.default_rng(0)
    for d in (1, 2, 5, 10, 12, 13, 33, 100, 160):
        noise = Perturbations(0.7, 2.0 * d + 1.5, 1.3, 0.05)
        fits, draws = regression(d, noise), bartlett(rng, 300, d, 2.0 * d + 1.5)
        expected = reference(fits, draws)
        for name, engine in engines.items():
            worst = np.abs(engine.solve_draws(fits, draws) - expected).max() / np.abs(expected).max()
            results.check(f"{name}: same draws, same θ, d = {d}", float(worst), 1e-10)
    for d in (3, 20):
        fits = regression(d, Perturbations(0.7, 2.0 * d, 1.3), Penalty(0.5, -0.6, 0.6))
        draws = bartlett(rng, 300, d, 2.0 * d)
        theta = engines["torch"].solve_draws(fits, draws)
        S = fits.gram + 0.7 * draws.factor @ draws.factor.transpose(0, 2, 1)
        slope = fits.linear - 1.3 * draws.normal - np.einsum("nij,nj->ni", S, theta - fits.center)
        low = np.where(theta <= -0.6, -np.inf, np.where(theta == 0, -0.5, 0.5 * np.sign(theta)))
        high = np.where(theta >= 0.6, np.inf, np.where(theta == 0, 0.5, 0.5 * np.sign(theta)))
        off = np.maximum(np.maximum(low - slope, slope - high), 0).max()
        results.check(f"torch: optimality with L1 and box, d = {d}", float(off), 1e-10)


def check_laws(engines: dict[str, Any], results: Results) -> None:
    """Fits without data show χ ~ χ²_{m−d+1}; a Kolmogorov distance beyond 5/√n has odds of 1e-21."""
    from scipy import special

    n = 400_000
    for d, m in ((1, 1.3), (3, 3.4), (10, 40.0), (12, 12.5), (40, 90.0), (100, 250.0)):
        fits = QuadraticFits(np.zeros((d, d)), np.eye(d)[d // 2], Perturbations(2.0, m))
        for name, engine in engines.items():
            count = n if d <= 12 else n // 8
            chi = np.sort(0.5 / engine.sample(fits, count, 7)[:, d // 2])
            law = special.gammainc((m - d + 1) / 2, chi / 2)
            ranks = np.arange(count) / count
            distance = float(np.maximum(law - ranks, ranks + 1 / count - law).max())
            results.check(f"{name}: law of 1/(xᵀW⁻¹x), d = {d}, m = {m}", distance * math.sqrt(count), 5.0)
    for d in (2, 10, 40):
        fits = regression(d, Perturbations(0.7, 2.0 * d + 9, 1.3))
        direction, bins = np.ones(d) / math.sqrt(d), Bins(-1.0, 1.0, 400)
        for name, engine in engines.items():
            counts = engine.histogram(fits, direction, bins, 100_003, 5, 0.0)
            again = np.bincount(bins.index(engine.sample(fits, 100_003, 5) @ direction), minlength=400)
            # The score is summed in another order than the product here: a fit at an edge may change cells.
            moved = 0.5 * float(np.abs(counts - again).sum()) + abs(int(counts.sum()) - 100_003)
            results.check(f"{name}: histogram of the same fits, d = {d}", moved, 2.0)


def time_fused(results: Results) -> None:
    from curvedp.audit.fits.cuda import MAX_THREAD_D, Fused

    def rate(d: int, threads: int, n: int) -> float:
        fits = regression(d, Perturbations(0.7, 2.0 * d + 20, 1.3))
        direction = np.ones(d) / math.sqrt(d)
        kernel = Fused(fits, direction, 1e-4, threads)
        return median_seconds(lambda: kernel.histogram(Bins(-3.0, 3.0, 4096), 1, n))

    for d, threads in ((10, 128), (100, 128), (10, 64), (100, 256), (100, 64), (2, 128), (5, 128), (12, 128)):
        first = 2_000_000 if d <= MAX_THREAD_D else 20_000
        n = sized(lambda n, d=d, t=threads: rate(d, t, n), first, 1.5, 10**9)
        results.time(f"fused kernel, blocks of {threads}", d, n, rate(d, threads, n))
    for d in (16, 32, 50, 150):
        n = sized(lambda n, d=d: rate(d, 128, n), 20_000, 1.0, 10**9)
        results.time("fused kernel, blocks of 128", d, n, rate(d, 128, n))


def time_torch(device: str, results: Results) -> None:
    engine = Torch(device)
    cases: list[tuple[str, Fits, int]] = [
        ("torch operations", regression(10, Perturbations(0.7, 40.0, 1.3)), 1_000_000),
        ("torch operations", regression(100, Perturbations(0.7, 220.0, 1.3)), 20_000),
        (
            "torch operations, L1 and box",
            regression(10, Perturbations(0.7, 40.0, 1.3), Penalty(0.3, -1, 1)),
            100_000,
        ),
        (
            "torch operations, L1 and box",
            regression(100, Perturbations(0.7, 220.0, 1.3), Penalty(3.0, -1, 1)),
            10_000,
        ),
    ]
    x = np.random.default_rng(1).standard_normal((8, 5)) / 3
    y = np.where(np.arange(8) % 2, 1.0, -1.0)
    cases.append(
        ("torch operations, logistic", MarginFits(x, y, Perturbations(0.5, 12.0, 1.0), np.ones(8)), 200_000)
    )
    for name, fits, n in cases:
        direction, bins = np.ones(fits.d) / math.sqrt(fits.d), Bins(-3.0, 3.0, 4096)
        seconds = median_seconds(
            lambda f=fits, w=direction, b=bins, n=n: engine.histogram(f, w, b, n, 1, 0.0), 2
        )
        results.time(name, fits.d, n, seconds)


def walks(d: int) -> RecenteredFits:
    """Recentered fits of 64 rounds: 80 records of three kinds, and one more."""
    x = np.random.default_rng(d).uniform(-0.5, 0.5, (4, d)) / math.sqrt(d)
    x[0] = np.eye(d)[0]
    counts = np.array([[0.0, 40.0, 10.0, 30.0], [1.0, 40.0, 10.0, 30.0]])
    free = np.full(4, np.inf)
    return RecenteredFits(
        WALKED._replace(m=50.0 * d), x, np.array([-1.0, 1.0, 1.0, -1.0]), counts, (-free, free)
    )


def recentered(engines: dict[str, Any], results: Results) -> None:
    """The fused kernel and torch agree on everything released; how fast they are."""
    from scipy import stats

    n = 200_000
    if len(engines) > 1:
        traces = [engine.trace(walks(3), 1, n, seed) for seed, engine in enumerate(engines.values())]
        for name in [name for name in Trace.names() if name not in ("theta", "bound")]:
            distance = stats.ks_2samp(*(getattr(trace, name) for trace in traces)).statistic
            results.check(f"recentered: law of {name}", float(distance) * math.sqrt(n / 2), 3.0)
    for name, engine in engines.items():
        for d in (2, 5, 10):
            fits, count = walks(d), 10_000_000 if name == "fused kernel" else 500_000
            bins, e = Bins(-8.0, 8.0, 4096), np.eye(d)[0]
            seconds = median_seconds(lambda f=fits, c=count: engine.count(f, 1, e, bins, bins, c, 1), 2)  # noqa: B023
            results.time(f"recentered, 64 rounds, {name}", d, count, seconds)


def run_audit(engine: Any, fits: int, results: Results) -> None:
    """The strongest attack on QOP at d = 10: a record against a known gradient G, present or absent."""
    noise = Perturbations(AUDITED["sigma2"], AUDITED["m"], AUDITED["sigma0"])
    e = np.eye(10)[0]
    absent = QuadraticFits(np.zeros((10, 10)), AUDITED_G * e, noise)
    present = QuadraticFits(np.outer(e, e), (AUDITED_G - 1.0) * e, noise)
    start = time.perf_counter()
    pilot = engine.sample(absent, 100_000, 1) @ e
    low, high = np.quantile(pilot, [1e-4, 1 - 1e-4])
    bins = Bins(float(low - 0.5 * (high - low)), float(high + (high - low)), 4096)
    size = (fits - 100_000) // 2
    shares = {"choose": size // 4, "test": size - size // 4}
    counts = {
        (phase, side): engine.histogram(data, e, bins, n, 10 * (1 + step) + side, 1e-4)
        for step, (phase, n) in enumerate(shares.items())
        for side, data in enumerate((absent, present))
    }
    epsilon, delta = AUDITED["epsilon"], AUDITED["delta"]
    best: dict[str, Any] = {"epsilon_lower": 0.0, "delta_lower": 0.0}
    for p, q, direction in ((0, 1, "removing"), (1, 0, "adding")):
        events = bounds.best_events(counts["choose", p], counts["choose", q], epsilon, delta)
        for event in events:  # two bounds, two events, two directions
            found = bounds.evidence(counts["test", p], counts["test", q], event, epsilon, delta, 0.01 / 8)
            print(f"audit, {direction}: {found}", flush=True)
            best["epsilon_lower"] = max(best["epsilon_lower"], found.epsilon)
            best["delta_lower"] = max(best["delta_lower"], found.delta)
    seconds = time.perf_counter() - start
    results.audit = {
        "fits": fits,
        "seconds": seconds,
        "confidence": 0.99,
        **{f"claimed_{k}": AUDITED[k] for k in ("epsilon", "delta")},
        **best,
        "beaten": best["epsilon_lower"] > epsilon or best["delta_lower"] > delta,
    }
    print(f"audit of {fits:.3g} fits: {results.audit}", flush=True)


def environment(device: str) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name()
        if device == "cuda"
        else f"CPU, {torch.get_num_threads()} threads",
    }
    try:
        import cupy

        found["cupy"] = cupy.__version__
    except ImportError:
        found["cupy"] = "not installed"
    return found


def table(results: Results) -> str:
    """The Markdown that benchmarks/gpu.md holds."""
    lines = [
        "# Private fits on a GPU",
        "",
        "Measured by `PYTHONPATH=src python3 benchmarks/gpu.py`, float64 throughout.",
        "",
    ]
    lines += [f"- {name}: {value}" for name, value in results.environment.items()]
    passed = sum(c["passed"] for c in results.checks)
    lines += [f"- checks against numpy and the law of W: {passed} of {len(results.checks)} passed", ""]
    lines += ["| fits | d | fits per second | measured on |", "|---|---|---|---|"]
    for t in results.timings:
        lines.append(
            f"| {t['name']} | {t['d']} | {t['rate']:.3g} | {t['fits']:,} fits, {t['seconds']:.2f} s |"
        )
    if a := results.audit:
        verdict = "is beaten" if a["beaten"] else "holds"
        lines += [
            "",
            f"Audit of QOP at d = 10, claimed ε = {a['claimed_epsilon']:g}, δ = {a['claimed_delta']:g}: "
            f"{a['fits']:,} fits in {a['seconds']:.1f} s refute every ε below {a['epsilon_lower']:.3f} at "
            f"that δ with confidence {a['confidence']:g}; the claim {verdict}.",
        ]
    failed = [c for c in results.checks if not c["passed"]]
    lines += ["", *(f"FAILED check: {c['check']}: {c['value']:.3g} (limit {c['limit']:.3g})" for c in failed)]
    lines += [f"FAILED section: {f}" for f in results.failures]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--fits", type=float, default=1e9, help="fits of the audit")
    arguments = parser.parse_args()
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    results = Results(environment=environment(device))
    engines: dict[str, Any] = {"torch": Torch(device)}
    if device == "cuda" and results.environment["cupy"] != "not installed":
        from curvedp.audit.fits.cuda import Cuda

        engines["fused"] = Cuda()
    walkers: dict[str, Any] = {"torch operations": TorchRecentered(device)}
    if "fused" in engines:
        from curvedp.audit.fits.recentered_cuda import CudaRecentered

        walkers["fused kernel"] = CudaRecentered()
    main_engine = engines.get("fused", engines["torch"])
    sections: list[tuple[str, Callable[[], None]]] = [
        ("solutions", lambda: check_solutions(engines, results)),
        ("laws", lambda: check_laws(engines, results)),
        ("audit", lambda: run_audit(main_engine, int(arguments.fits), results)),
        ("torch timings", lambda: time_torch(device, results)),
        ("recentered", lambda: recentered(walkers, results)),
    ]
    if "fused" in engines:
        sections.insert(2, ("fused timings", lambda: time_fused(results)))
    for name, work in sections:
        start = time.perf_counter()
        try:
            work()
        except Exception:
            traceback.print_exc()
            results.failures.append(f"{name}: {traceback.format_exc().splitlines()[-1]}")
        print(f"-- {name}: {time.perf_counter() - start:.1f} s", flush=True)
        arguments.out.mkdir(
            parents=True, exist_ok=True
        )  # written after every section: a cut run loses little
        (arguments.out / "gpu.json").write_text(json.dumps(asdict(results), indent=1), encoding="utf-8")
        (arguments.out / "gpu.md").write_text(table(results), encoding="utf-8")
    print(table(results))
    return 1 if results.failures or not all(c["passed"] for c in results.checks) else 0


if __name__ == "__main__":
    sys.exit(main())
