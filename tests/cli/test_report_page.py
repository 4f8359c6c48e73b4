"""The report page: escapes what it shows, loads nothing, and says what the numbers say."""

from __future__ import annotations

import itertools
import math
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from scipy.stats import norm

from curvedp.data.files import Stated
from curvedp.pages import COLOURS, Axis, Series, breakable, interval_chart, line_chart, power
from curvedp.planning import Verdict
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.privacy.guarantee import Guarantee, Parameter, Parameters, PrivacyCurve, Promise
from curvedp.privacy.profiles import PointProfile
from curvedp.release.ledger import LedgerState
from curvedp.release.ledger.storage import Receipt
from curvedp.release.record import ReleaseRecord
from curvedp.reports.report import Caution, Coefficient, DeclaredColumn, privacy_curve, release_page
from curvedp_studies.forecasts import noise_scales


class GaussianProfile:
    """δ(ε) of a Gaussian shift μ, written out here on its own."""

    costs = ()

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


RECORD = ReleaseRecord(
    "2024-12-31T23:59:59+00:00",
    {"numpy": "2.0"},
    Stated("register <2024>", "wage report", "staff only", 5000),
    Receipt("abc123", 7, "ffff", "2024-12-31T23:59:59+00:00", "unit 4", "annual"),
    ("Chosen by a search.",),
    ("Refitted.",),
)


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
    assert "not a private release" not in page()
    assert "not a private release" in page(guarantee=guarantee(private=False))


def test_a_weak_promise_is_said_in_red_and_never_called_nearly_the_same() -> None:
    strong = page()
    assert "nearly the same probability" in strong and 'class="box bad"' not in strong
    for weak in (
        guarantee(epsilon=50.0, delta=0.1, profile=GaussianProfile(5.0)),
        guarantee(epsilon=11.0),
        guarantee(delta=1e-3),
    ):
        html = page(guarantee=weak)
        promise = html[html.index('id="promise"') : html.index('id="budget"')]
        assert "nearly the same" not in html and '<div class="box bad">' in promise
    html = page(guarantee=guarantee(epsilon=50.0, delta=0.1, profile=GaussianProfile(5.0)))
    assert "e^ε = 5.19 × 10²¹" in html and "once in 10 releases" in html  # e⁵⁰ = 5.1847…·10²¹
    assert "nearly the same" not in page(guarantee=guarantee(epsilon=3.0))
    assert "more than 10³⁰⁰" in page(guarantee=guarantee(epsilon=5e3, profile=PointProfile(5e3, 1e-6)))


def test_the_order_is_that_of_an_officer() -> None:
    columns = [DeclaredColumn("a<b", "feature", 0.0, 1.0)]
    html = page(columns=columns, cautions=[Caution("red", "Mind <this>.")], record=RECORD)
    parts = ("promise", "warnings", "budget", "limits", "declared", "protected", "software", "curve")
    places = [html.index(f'<section id="{part}"') for part in (*parts, "released", "officials")]
    assert places == sorted(places)
    assert 'data-level="red"><p>Mind &lt;this&gt;.</p>' in html


def test_the_record_is_shown_and_escaped() -> None:
    html = page(record=RECORD)
    for words in (
        "register &lt;2024&gt;",
        "wage report",
        "staff only",
        "2024-12-31 23:59:59 UTC",
        "numpy 2.0",
    ):
        assert words in html
    assert "<code>abc123</code>" in html and "number 7" in html and "<code>ffff</code>" in html
    assert "unit 4" in html and "by a search" in html and "Refitted" in html
    silent = page()
    assert silent.count("not stated") == 3 and "not recorded" in silent and 'id="receipt"' not in silent


def test_columns_with_one_declaration_share_a_line_and_levels_fold() -> None:
    many = tuple(f"L{i}" for i in range(40))
    columns = [
        DeclaredColumn("a", "feature", 0.0, 1.0),
        DeclaredColumn("b", "feature", 0.0, 1.0),
        DeclaredColumn("c", "feature", levels=("x", "y")),
        DeclaredColumn("d", "feature", levels=many, source="census"),
    ]
    html = page(columns=columns)
    assert 'data-name="a, b"' in html and "x, y" in html and "<summary>40 levels</summary>" in html
    assert html.count("declared by the operator, source not stated") == 2


def test_the_figure_has_at_most_thirty_lines_and_says_which() -> None:
    few = [Coefficient(f"x{i}", float(i), 1.0) for i in range(30)]
    html = page(coefficients=[*few, Coefficient("(intercept)", 3.0)])
    assert html.count('class="row" data-name=') == 30 and "that move it furthest" not in html
    many = [Coefficient(f"x{i}", (-1.0) ** i * i, 1.0) for i in range(89)]
    html = page(coefficients=many)
    assert html.count('class="row" data-name=') == 30
    assert "the 30 of 89 coefficients that move it furthest" in html
    shown = re.findall(r'class="row" data-name="([^"]*)"', html)
    assert shown == [f"x{i}" for i in range(88, 58, -1)]
    assert html.count('class="number value"') == 89  # the table has all


def test_bars_start_at_zero_and_are_as_long_as_their_values() -> None:
    svg = str(interval_chart("a<b", [("one", 2.0, None), ("two", -1.0, None)], bars=True))
    assert "a&lt;b" in svg
    found = re.findall(r'class="bar" x="([\d.]+)%" y="25%" width="([\d.]+)%"', svg)
    (x1, w1), (x2, w2) = [(float(x), float(w)) for x, w in found]
    zero = re.search(r'class="zero" x1="([\d.]+)%"', svg)
    assert zero is not None and x1 == pytest.approx(float(zero.group(1)), abs=0.02)
    assert x2 + w2 == pytest.approx(x1, abs=0.02) and w1 == pytest.approx(2 * w2, abs=0.02)


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
    assert "e^ε = 2.72," in html  # e = 2.71828…
    assert "1.23456789 × 10<sup>−6</sup>" in html and "δ = 1.23456789 × 10⁻⁶" in html
    found = PrivacyCurve.of(guarantee()).detection_rate()
    shown = re.search(r'id="attack" data-value="([\d.]+)">.*at most ([\d.]+) cases', html)
    assert shown is not None and shown.group(1) == shown.group(2)
    assert 100 * found <= float(shown.group(2)) < 100 * found + 0.1


def test_declared_bounds_are_shown_as_declared() -> None:
    columns = [DeclaredColumn("wage", "target", 0.0, 500_001.0)]
    text = release_page("t", "s", guarantee(), [Coefficient("wage", 1.0, 1.0)], columns=columns)
    assert 'data-value="500001.0">500,001</span>' in text


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


def lab(colour: str) -> tuple[float, float, float]:
    """CIE L*a*b* of #rrggbb under D65."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_curves_of_a_chart_have_colours_that_differ() -> None:
    """By ΔE*ab ≥ 30 each, in light, in dark and on paper, the grey of the reference among them."""
    sheet = files("curvedp").joinpath("templates/page.css").read_text("utf-8")
    names = [*(f"c{i}" for i in range(COLOURS)), "plain"]
    found = {name: re.findall(rf"--{name}: (#[0-9a-f]{{6}});", sheet) for name in names}
    for palette in zip(*(found[name] for name in names), strict=True):
        for one, other in itertools.combinations(palette, 2):
            assert math.dist(lab(one), lab(other)) >= 30, (one, other)
    assert {len(colours) for colours in found.values()} == {3}


def test_a_long_name_breaks_between_its_words() -> None:
    assert breakable("net_income=a<b") == "net_<wbr>income=<wbr>a&lt;b"
    assert breakable("netIncome") == "net<wbr>Income"
    long = "monthly_net_household_income=above_the_median"
    html = page(coefficients=[Coefficient(long, 1.0, 1.0)])
    assert html.count(str(breakable(long))) == 2 and f'data-name="{long}"' in html  # figure and table


def test_not_resolved_is_told_from_not_different_from_zero() -> None:
    nan = float("nan")
    known, hidden = ("x", 1.0, (-1.0, 3.0)), ("z", 5.0, (nan, nan))
    made = [Coefficient(name, value, 1.0, interval=interval) for name, value, interval in (known, hidden)]
    html = page(coefficients=[*made, Coefficient("(intercept)", 3.0, interval=(2.0, 4.0))])
    rows = dict(
        re.findall(r'<tr data-name="([^"]*)" data-output.*?data-label="95 % interval">(.*?)</td>', html)
    )
    assert rows == {"x": "[−1, 3]", "z": "not resolved", "(intercept)": ""}
    text = " ".join(re.sub(r"<[^>]*>", "", html).split())
    assert (
        "does not resolve: privacy noise is too large" in text
        and "not different from 0 by these data" in text
    )


def officials(**changes: object) -> str:
    html = page(**changes)
    text = re.sub(r"<[^>]*>", " ", html[html.index('<section id="officials"') :])
    return " ".join(text.split())


def test_whoever_approves_it_is_answered_from_the_record() -> None:
    """The three questions of Opinion 05/2014 and the headings of ISO/IEC 27559, with its own numbers."""
    state = LedgerState(3.0, 1e-5, "replace", "basic", 1.5, 2e-6, 1.5, 8e-6, 4)
    columns = [
        DeclaredColumn("a", "feature", 0.0, 1.0, source="census"),
        DeclaredColumn("b", "feature", 0.0, 1.0),
    ]
    told = officials(record=RECORD, ledger=state, columns=columns, protects="one row is one visit")
    places = [told.index(words) for words in ("Singling out", "Linkability", "Inference", "Left to a person")]
    headings = (
        "Context assessment",
        "Data assessment",
        "Identifiability assessment and mitigation",
        "Governance",
    )
    assert places == sorted(places) and all(heading in told for heading in headings)
    detected = Promise(guarantee()).detected
    assert f"detects one in at most {detected:.1f} cases of 100; without the release, in 5.0" in told
    assert "holds 2 numbers" in told
    assert told.count("at most e^ε = 2.72 times as probable as had that record been any other record") == 2
    assert "counts those that are charged to it: 4 so far, ε = 1.5 of 3; others it does not know" in told
    assert "Charge 7 of ledger abc123 , 2024-12-31 23:59:59 UTC, by unit 4, was on disk" in told
    assert "For 1 of 2 columns nobody stated" in told and "Declared: one row is one visit." in told
    assert "Purpose: wage report. Who may see what: staff only." in told
    assert "δ times the 5,000 records that were declared is 0.005" in told
    owed = told[told.index("Left to a person") :]
    assert "which table" not in owed and "who may see what" not in owed and "where those bounds" in owed


def test_what_is_not_on_record_is_left_to_a_person_and_nothing_is_supposed() -> None:
    told = officials()
    owed = told[told.index("Left to a person") :]
    for words in (
        "which table it is",
        "what the release is for",
        "who may see what",
        "what else was released",
    ):
        assert words in owed
    assert "No ledger counts this one." in told and "No charge of a ledger is on record" in told
    assert "Of every column" not in told  # no column is known


def test_officials_read_who_is_protected_and_where_nothing_is_promised() -> None:
    person = officials(guarantee=guarantee(neighbours=Neighbours("add_remove", "id")))
    assert "had that person been left out" in person and "is in the table at all is protected" in person
    assert "row by row" not in person and "id identifies persons" in person
    assert "row by row" in officials() and "How many records there are is public." in officials()
    pure = officials(guarantee=guarantee(delta=0.0, profile=PointProfile(1.0, 0.0)))
    assert "up to δ" in officials() and "up to" not in pure
    assert "nothing below is promised" in officials(guarantee=guarantee(private=False))
    weak = officials(guarantee=guarantee(epsilon=11.0))
    assert "they answer none of the three questions" in weak and "they answer none" not in officials()
