"""Pages keep their word: commands and Python run from top to bottom, links resolve, lines can be read."""

from __future__ import annotations

import inspect
import math
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import curvedp
from curvedp.cli import app, workflow
from curvedp.data import Schema
from curvedp.privacy.gaussian import calibrate_mu

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SKIPPED = ("auto_gallery/", "reference/api/")
PAGES = [
    page for page in sorted(DOCS.rglob("*.md")) if not page.relative_to(DOCS).as_posix().startswith(SKIPPED)
]
LINKED = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES]
RUN = [ROOT / "README.md", DOCS / "index.md", DOCS / "start.md", *sorted((DOCS / "howto").glob("*.md"))]
TREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What lies in the folder in which a page runs: the demo's table, and a small one for the front page."""
    train, test = workflow._tables()
    return {
        "people.csv": workflow.csv_text(train),
        "others.csv": workflow.csv_text(test),
        "schema.toml": workflow.SCHEMA.to_toml(),
    }


def front_table() -> str:
    random = np.random.default_rng(0)
    lines = ["age,union,wage"]
    for _ in range(3_000):
        age, union = random.uniform(16, 90), random.choice(["no", "yes"])
        lines.append(
            f"{age:.0f},{union},{100 * age + 5_000 * (union == 'yes') + random.normal(9_000, 2_000):.0f}"
        )
    return "\n".join(lines) + "\n"


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `curvedp` line; a backslash continues a line."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "curvedp", line
            yield words[1:]


@pytest.mark.parametrize("page", RUN, ids=name)
def test_a_page_runs_from_top_to_bottom(
    page: Path, tables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("curvedp_studies.forecasts.GRID", (0.1, 1.0))
    monkeypatch.setattr("curvedp_studies.forecasts.RUNS", 3)
    for file, text in ({"people.csv": front_table()} if page.stem == "index" else tables).items():
        if page.stem not in ("README", "start"):  # which begin in an empty folder
            Path(file).write_text(text, encoding="utf-8")
    space: dict[str, object] = {}
    done = []
    for language, file, text in BLOCK.findall(page.read_text("utf-8")):
        if language == "sh":
            for words in commands(text):
                result = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
                assert result.exit_code == 0, (words, result.output, result.exception)
        elif language == "toml":
            Schema.from_toml(text)
            Path(file).write_text(text, encoding="utf-8")
        elif language == "python":
            exec(compile(text, str(page), "exec"), space)
        elif language != "r":  # those of R: tests/docs/test_r.py
            pytest.fail(f"nobody runs a block of {language}")
        done.append(language)
    if page.stem not in ("index", "approve") or page.parent == DOCS:
        assert done


def test_the_start_page_goes_all_the_way() -> None:
    text = (DOCS / "start.md").read_text("utf-8")
    for step in ("schema", "plan", "ledger create", "check", "fit", "score", "predict", "ledger show"):
        assert f"curvedp {step} " in text, step


def anchors(page: Path) -> set[str]:
    """The headings of a page as the site links to them."""
    from anchors import slug

    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return {slug(heading) for heading in headings}


@pytest.mark.usefixtures("extensions")
def test_an_anchor_is_the_id_in_front_or_all_words() -> None:
    from anchors import slug

    assert slug("(P-7j) Replacing a record, by the joint law") == "p-7j"
    assert slug("Theorem A: from a bound") == "theorem-a"
    assert slug("Is it complete?") == "is-it-complete"


@pytest.mark.usefixtures("extensions")
@pytest.mark.parametrize("page", LINKED, ids=name)
def test_every_relative_link_resolves(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        if path.startswith(("api/", "../auto_gallery/")):  # pages that are written when the site is built
            continue
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Lines with their number, without tables, fenced blocks, indented ones and what a program wrote."""
    fence, written = False, False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if line.startswith("```"):
            fence = not fence
        if re.match(r"<!-- (?!end)", line):
            written = True
        elif line.startswith("<!-- end"):
            written = False
        if not (fence or written or line.startswith(("|", "    ", "```"))):
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_line_of_prose_is_too_long(page: Path) -> None:
    assert not [(number, line) for number, line in prose(page) if len(line) > 120]


def test_every_page_is_in_the_menu() -> None:
    """Each page stands in exactly one toctree (so that Sphinx shows one place for it)."""
    listed: list[Path] = []
    for page in PAGES:
        for tree in re.findall(
            r"^```\{toctree\}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
        ):
            for line in tree.splitlines():
                if line and not line.startswith((":", "api/", "auto_gallery")):
                    path = re.sub(r".*<(.*)>$", r"\1", line)
                    listed.append((page.parent / f"{path}.md").resolve())
    assert sorted(listed) == sorted({*listed}), "a page stands twice"
    assert {page.resolve() for page in PAGES} - {*listed} == {(DOCS / "index.md").resolve()}


def test_the_table_of_epsilons_is_right() -> None:
    """Odds e^ε, what one half becomes, the best guess between two Gaussians at the distance that ε allows."""
    rows = re.findall(
        r"^\| ([\d.]+) \| ([\d.,]+) \| ([\d.]+) % \| (\d+) times of 100 \|$",
        (DOCS / "howto" / "epsilon.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert len(rows) == 5
    for epsilon, odds, belief, guess in rows:
        factor = math.exp(float(epsilon))
        assert float(odds.replace(",", "")) == pytest.approx(factor, rel=5e-3)
        assert float(belief) == pytest.approx(100 * factor / (1 + factor), abs=0.5)
        best = 100 * NormalDist().cdf(calibrate_mu(float(epsilon), 1e-6) / 2)
        assert int(guess) == round(best)


def test_the_counts_of_qop_are_those_of_the_comparison() -> None:
    scores = pd.read_csv(DOCS / "comparison.csv")
    tables = ~scores.dataset.str.contains("[@~/]")  # no subsamples, no loose bounds, none of unit/
    cells = scores[tables & (scores.adjacency == "add_remove")]
    medians = cells.pivot_table("median", ["dataset", "epsilon"], "mechanism").dropna(
        subset=["qop", "output", "lop"]
    )
    beside_output, beside_lop = medians.qop - medians.output, medians.qop - medians.lop
    said = (
        f"(`add_remove`, {len(medians)} cells) it beat output perturbation by more than 0.01 in "
        f"{(beside_output > 0.01).sum()} and lost {(beside_output < -0.01).sum()}, with "
        f"{(beside_lop > 0.01).sum()} won and {(beside_lop < -0.01).sum()} lost against linear objective"
    )
    assert said in " ".join((DOCS / "field.md").read_text("utf-8").split())


def test_the_front_pages_repeat_measured_numbers() -> None:
    def row(page: str, start: str) -> list[str]:
        lines = (DOCS / page).read_text("utf-8").splitlines()
        return [cell.strip() for cell in next(x for x in lines if x.startswith(start)).split("|")][2:]

    told = {
        name: row("comparison.md", f"| {name} |")[0].partition(" (")[0].split(" / ")
        for name in ("DP-SGD, default", "AdaSSP", "tuned descent, fresh noise")
    }
    ours, bootstrap = (
        row("inference.md", f"| {x} |")[2] for x in ("default fit", "noisy moments, bootstrap")
    )
    claimed = row("field.md", "| diffprivlib LinearRegression | ε = 1,")[1]
    covered, width, theirs = ours.split(" · ")[0], ours.split(" · ")[1], bootstrap.split(" · ")[1]
    assert ours.endswith(" 0 %") and "0.88" in bootstrap and "0.9954 at ε = 1" in claimed
    sgd, adassp, descent = told.values()
    for page in (ROOT / "README.md", DOCS / "index.md"):
        text = re.sub("[ ,*]+|and|cells", " ", " ".join(page.read_text("utf-8").split())).replace("none", "0")
        text = " ".join(text.split())
        assert f"{sgd[0]} won {sgd[1]} tied {sgd[2]} lost" in text
        assert f"{' '.join(adassp)} against AdaSSP" in text and " ".join(descent) in text
        assert f"{width} times as wide" in text and f"{100 * float(covered):.0f} times of 100" in text
        assert f"{theirs} times" in text
        assert "δ ≥ 0.995" in text


@pytest.fixture
def extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))


@pytest.mark.usefixtures("extensions")
def test_the_help_of_every_command_becomes_a_section() -> None:
    import commands

    found = commands.tree()
    assert {"fit", "score", "ledger create", "audit", "report"} <= {*found}
    for name, command in found.items():
        text = "\n".join(commands.described(name, command))
        assert text.startswith(commands.plain((command.help or "").split("\n\n")[0])) and "```text" in text
        for option in commands.parts(command)[1]:
            assert f"`{option.opts[0]}`" in text and option.help, (name, option.opts)


@pytest.mark.usefixtures("extensions")
def test_every_name_of_the_surface_has_a_page() -> None:
    import names

    written = "\n".join(names.pages().values())
    for name in curvedp.__all__:
        if inspect.isclass(value := getattr(curvedp, name)) or inspect.isfunction(value):
            assert re.search(rf"auto(class|function):: \S+\.{name}$", written, re.MULTILINE), name


@pytest.mark.usefixtures("extensions")
def test_a_json_schema_becomes_definitions() -> None:
    import json_schema

    whole = {
        "$defs": {"unit": {"type": ["string", "null"], "description": "Whose row it is."}},
        "properties": {
            "unit": {"$ref": "#/$defs/unit"},
            "rows": {"type": "array", "items": {"properties": {"n": {"const": 2}}, "required": ["n"]}},
        },
        "required": ["unit"],
    }
    lines = [*json_schema.properties(whole, whole)]
    assert lines[:2] == ["`unit`", ": string or null. Whose row it is."]
    assert "`rows`" in lines and lines[lines.index("`rows[].n`") + 1] == ": always `2`"


@pytest.mark.usefixtures("extensions")
def test_links_that_leave_the_pages_are_named_or_led_back() -> None:
    from outside import inside

    assert inside("[s](../benchmarks/scale.md)", "") == "[s](evidence/scale.md)"
    assert inside("[s](../benchmarks/scale.md#a)", "") == "[s](evidence/scale.md#a)"
    assert inside("[`x`](../tests/x.py)", "") == "`x`"
    assert inside("[t](../theory.md)", "howto") == "[t](../theory.md)"


def test_the_pictures_can_be_drawn_again() -> None:
    """Their scripts look inside a release: what they rely on is still there, and it is the same release."""
    script = runpy.run_path(str(DOCS / "figures" / "mechanism.py"))
    X, y = script["records"]()
    watched = script["Watched"](X[:600], y[:600], 1.0, 3)
    plain = curvedp.private_fit(
        script["PROBLEM"], X[:600], y[:600], budget=curvedp.Budget(1.0, 1e-6), random_state=3
    )
    np.testing.assert_array_equal(watched.theta, plain.value.theta[:, 0])
    assert len(watched.walks) == 2 and watched.geometry.metric.shape == (2, 2)
    X, y, other = runpy.run_path(str(DOCS / "figures" / "guarantee.py"))["neighbours"]()
    assert (y != other).sum() == 1 and len(X) == len(y) == 1_000
