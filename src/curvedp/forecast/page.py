"""The HTML page of `curvedp plan`: what a release would cost and give, before any data are touched."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from curvedp.charts import Axis, Series, legend, line_chart
from curvedp.forecast.intervals import Widths
from curvedp.forecast.run import Forecast, Reached
from curvedp.pages import rendered
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import Parameter


def noise_scales(guarantee: Guarantee) -> list[Parameter]:
    """The parameters that are sizes of noise, for one line of a table."""
    return [p for p in guarantee.parameters.described if p.is_noise and not isinstance(p.value, str)]


def plan_page(wide: Sequence[Widths], found: Sequence[Forecast] = ()) -> str:
    """The HTML of expected intervals and of forecasts, if any, that differ in their adjacency alone."""
    parts = [(one, *_chart_of(one)) for one in found]
    return rendered("plan.html", t=wide[0], wide=wide, parts=parts, scales=noise_scales)


def reached_page(*found: Reached) -> str:
    """The HTML of "which ε for this score", for one adjacency or for both."""
    first = found[0]
    tried = [one for one in found if one.tried]
    epsilons = sorted({epsilon for one in tried for epsilon, _ in one.tried})
    series, shown = [], Markup("")
    if len(epsilons) > 1:
        for one in tried:
            x = [epsilon for epsilon, _ in one.tried]
            for words, key in (("half of the runs", "median"), ("nine of ten", "low")):
                ys = [getattr(spread, key) for _, spread in one.tried]
                series.append(Series(f"{one.adjacency}: {words} are above", x, ys))
        series.append(Series("asked for", epsilons, [first.score] * len(epsilons), True))
        lowest = min(spread.low for one in tried for _, spread in one.tried)
        shown = line_chart(
            "Score against ε",
            Axis("ε", epsilons[0], epsilons[-1], log=True),
            Axis(first.score_name, min(lowest, first.score) - 0.05, 1.05 * first.nonprivate_score),
            series,
        )
    return rendered("plan_score.html", t=first, found=found, chart=shown, legend=legend(series))


def _chart_of(forecast: Forecast) -> tuple[Markup, Markup]:
    epsilons = forecast.epsilons
    curves = [Series(row.label, epsilons, row.scores_by_epsilon) for row in forecast.rows]
    series = [*curves, Series("no privacy", epsilons, [forecast.nonprivate_score] * len(epsilons), True)]
    chart = line_chart(
        "Expected score against ε",
        Axis("ε", min(epsilons), max(epsilons), log=True),
        Axis(
            f"expected {forecast.score_name}",
            forecast.constant_score - 0.05,
            1.05 * forecast.nonprivate_score,
        ),
        series,
    )
    return chart, legend(series)
