"""The report page: escapes what it shows, loads nothing, and says what the numbers say."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest
from scipy.stats import norm

from curvedp.budget import Budget
from curvedp.charts import Axis, Series, line_chart, power
from curvedp.forecast import Verdict
from curvedp.ledger import LedgerState
from curvedp.neighbours import Neighbours
from curvedp.privacy.guarantee import Guarantee
from curvedp.privacy.parameters import Parameter, Parameters
from curvedp.report import (
    Coefficient,
    DeclaredBounds,
    PrivacyCurve,
    noise_scales,
    privacy_curve,
    release_page,
)


class GaussianProfile:
    """δ(ε) of a Gaussian shift μ, written out here on its own."""

    zcdp_rho = None

    def __init__(self, mu: float) -> None:
        self.mu = mu

    def delta_at(self, epsilon: float) -> float:
        a, b = self.mu / 2 - epsilon / self.mu, -self.mu / 2 - epsilon / self.mu
        return float(norm.cdf(a) - math.exp(epsilon) * norm.cdf(b))

    def epsilon_at(self, delta: float) -> float:
        raise AssertionError("the page does not need it")

    def to_pld(self) -> object:
        raise AssertionError("the page does not need it")


PARAMETERS = Parameters(
    Parameter("m", "m", "degrees of freedom", 75.0, is_noise=True),
    Parameter("sigma2", "σ²", "scale of the curvature", 11.2, is_noise=True),
    Parameter("eta", "η", "certified distance", 1e-9),
    Parameter("noise", "", "law of the noise", "gaussian", is_noise=True),
    Parameter("odd<name>", "o<", "an <odd> thing", 2.0),
)


def guarantee(epsilon: float = 1.0, delta: float = 1e-6, **changes: object) -> Guarantee:
    values: dict[str, object] = {
        "budget": Budget(epsilon, delta),
        "neighbours": Neighbours(),
        "mechanism": "qop",
        "accounting": "directional",
        "theorem": "Theorem A with (P-7j)",
        "parameters": PARAMETERS,
        "profile": GaussianProfile(0.2),
    }
    return Guarantee(**(values | changes))  # type: ignore[arg-type]


def page(**changes: object) -> str:
    values: dict[str, object] = {
        "title": "wage <script>alert(1)</script>",
        "subtitle": "",
        "guarantee": guarantee(),
        "coefficients": [
            Coefficient("a<b", -1.2345678901234567, 10.0),
            Coefficient("(intercept)", 4e-9),
        ],
    }
    return release_page(**(values | changes))  # type: ignore[arg-type]


def test_everything_is_escaped_and_nothing_is_loaded() -> None:
    html = page()
    assert "<script" not in html and "a&lt;b" in html and "odd&lt;name&gt;" in html
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", html)
    assert "http" not in html.replace("http-equiv", "")
    assert "url(" not in html and "@import" not in html


def test_the_page_is_well_formed() -> None:
    open_tags: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "link", "br"):
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

        def handle_startendtag(self, tag: str, attrs: object) -> None:
            pass

    Balance().feed(page(ledger=LedgerState(3.0, 1e-5, "replace", "basic", 1.0, 1e-6, 2.0, 9e-6, 1)))
    assert open_tags == []


def test_numbers_are_there_in_full() -> None:
    html = page()
    for value in (1.0, 1e-6, -1.2345678901234567, 4e-9, 75.0, 11.2, 1e-9):
        assert f'data-value="{value!r}"' in html


def test_words_follow_the_adjacency_and_the_seed() -> None:
    assert "had that record been any other record" in page()
    assert "had that record been left out" in page(guarantee=guarantee(neighbours=Neighbours("add_remove")))
    assert "Not a private release" not in page()
    assert "Not a private release" in page(guarantee=guarantee(private=False))


@pytest.mark.parametrize(
    ("verdict", "words", "tone"),
    [
        (Verdict(1000, 8000, 0.1), "mostly noise; you need about 8,000 rows", "bad"),
        (Verdict(1000, None, -3.0), "mostly noise; you need more than 1,000,000,000 rows", "bad"),
        (Verdict(10_000, 8000, 0.6), "keeps about 60 %", "warn"),
        (Verdict(10**6, 8000, 0.99), "keeps about 99 %", "good"),
    ],
)
def test_the_verdict_is_plain(verdict: Verdict, words: str, tone: str) -> None:
    html = page(verdict=verdict)
    assert words in html and f'class="box {tone}" id="verdict"' in html
    assert f"For the {verdict.rows:,} rows that were declared" in html
    assert 'id="verdict"' not in page()


def test_detection_rate_is_the_trade_off_curve_of_the_mechanism() -> None:
    """For a Gaussian shift μ the most powerful test has power Φ(Φ⁻¹(α) + μ)."""
    for mu in (0.1, 0.5, 1.0):
        exact = norm.cdf(norm.ppf(0.05) + mu)
        found = PrivacyCurve.of(
            guarantee(profile=GaussianProfile(mu), epsilon=3.0, delta=0.01)
        ).detection_rate()
        assert exact <= found <= exact + 2e-3


def test_bounds_are_shown_rounded_up_and_the_promise_in_full() -> None:
    html = page(guarantee=guarantee(epsilon=1.0, delta=1.23456789e-6))
    assert "e<sup>ε</sup> = 2.72," in html  # e = 2.71828…
    assert "1.23456789 × 10<sup>−6</sup>" in html
    found = PrivacyCurve.of(guarantee()).detection_rate()
    shown = re.search(r'id="attack" data-value="([\d.]+)">([\d.]+)<', html)
    assert shown is not None and 100 * found <= float(shown.group(2)) < 100 * found + 0.1


def test_declared_bounds_are_shown_as_declared() -> None:
    bounds = [DeclaredBounds("wage", 0.0, 500_001.0)]
    text = release_page("t", "s", guarantee(), [Coefficient("wage", 1.0, 1.0)], None, None, bounds)
    assert ">500,001</td>" in text


def test_the_ledger_section() -> None:
    state = LedgerState(4.0, 1e-5, "replace", "basic", 1.0, 5e-6, 3.0, 5e-6, 2)
    html = page(ledger=state)
    assert "width: 50.00%" in html and "Releases charged so far: 2" in html
    assert 'id="ledger"' not in page()


def test_every_parameter_is_shown_with_its_own_words_and_only_sizes_of_noise_in_one_line() -> None:
    html = page()
    for parameter in PARAMETERS.described:
        assert f'data-name="{parameter.name.replace("<", "&lt;").replace(">", "&gt;")}"' in html
    assert "an &lt;odd&gt; thing" in html and "degrees of freedom" in html
    assert [parameter.name for parameter in noise_scales(guarantee())] == ["m", "sigma2"]


def test_nothing_is_said_about_the_deviation_of_a_coefficient() -> None:
    html = page()
    assert "± noise" not in html and "deviation" not in html and 'class="spread"' not in html


def test_the_curve_passes_where_the_profile_says() -> None:
    promise = guarantee(profile=GaussianProfile(0.2))
    svg = str(privacy_curve(promise, PrivacyCurve.of(promise)))
    points = re.search(r'points="([^"]*)"', svg)
    assert points is not None
    pairs = [tuple(map(float, p.split(","))) for p in points.group(1).split()]
    assert pairs == sorted(pairs)  # ε to the right, and δ falls
    assert [y for _, y in pairs] == sorted(y for _, y in pairs)
    x, y = pairs[24 // 3]  # ε = 0.5 of axis 0 … 1.5: a third of the width; δ between 1e-9 and 1
    share = math.log(GaussianProfile(0.2).delta_at(0.5) / 1e-9) / math.log(1e9)
    assert x == pytest.approx(72 + (720 - 92) / 3, abs=0.06)
    assert y == pytest.approx(16 + (360 - 68) * (1 - share), abs=0.06)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (-95.25, "−95.25"),
        (14_100.4, "14,100"),
        (0.0123456, "0.01235"),
        (99_999.6, "100,000"),
        (1e-6, "10<sup>−6</sup>"),
        (1.5e-7, "1.5 × 10<sup>−7</sup>"),
        (-3e12, "−3 × 10<sup>12</sup>"),
        (1e-320, "10<sup>−320</sup>"),
        (math.inf, "∞"),
        (math.nan, "—"),
    ],
)
def test_power(value: float, text: str) -> None:
    assert power(value) == text


def test_chart_escapes_and_skips_what_is_not_finite() -> None:
    axis = Axis("x", 0.1, 10.0, log=True)
    svg = line_chart(
        "a<b", axis, Axis("y", 0.0, 1.0), [Series("<i>", [0.1, 1.0, 10.0], [0.0, math.nan, 1.0])]
    )
    assert "<i>" not in svg and "a&lt;b" in svg and "nan" not in svg
    assert 'points="72.0,308.0 700.0,16.0"' in svg
    assert axis.ticks() == pytest.approx([0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0])
