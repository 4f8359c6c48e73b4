"""`curvedp search`, `refit`, `path` and `split`."""

from __future__ import annotations

import json

import pytest

from curvedp.cli.console import plain


@pytest.fixture
def model(run, folder):
    options = ["--schema", folder / "schema.toml", "--epsilon", 3, "--delta", 1e-5, "--model", "ridge"]
    done = run("fit", folder / "data.csv", *options, "--out", folder / "model.json", "--quiet")
    assert done.exit_code == 0, done.output
    return folder / "model.json"


def test_a_refit_writes_a_model_of_the_same_guarantee(run, model, folder) -> None:
    done = run("refit", model, "--alpha", 5, "--out", folder / "stronger.json", "--json")
    assert done.exit_code == 0, done.output
    before, after = (json.loads((folder / n).read_text()) for n in ("model.json", "stronger.json"))
    assert after["guarantee"] == before["guarantee"] and after["settings"]["alpha"] == 5
    assert json.loads(done.stdout)["coefficients"] == after["coefficients"] != before["coefficients"]
    again = run("refit", folder / "stronger.json", "--alpha", 1, "--out", folder / "back.json")
    assert again.exit_code == 0 and "Nothing was charged" in again.stdout
    back = json.loads((folder / "back.json").read_text())
    assert back["coefficients"][0] == pytest.approx(before["coefficients"][0], rel=1e-6)


def test_a_refit_that_goes_too_far_is_refused(run, model, folder) -> None:
    done = run("refit", model, "--alpha", 1e7, "--out", folder / "far.json")
    assert done.exit_code != 0 and "noise of the release" in done.stderr
    assert not (folder / "far.json").exists()
    done = run("refit", model, "--columns", "age,height", "--out", folder / "far.json")
    assert done.exit_code != 0 and "'height' is none of them" in done.stderr


def test_a_path_and_its_page(run, model, folder) -> None:
    done = run("path", model, "--alphas", "1,10,1e6", "--report", folder / "path.html", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["alphas"] == [1, 10, 1e6] and found["trusted"][0] and not found["trusted"][2]
    page = (folder / "path.html").read_text()
    assert "<svg" in page and "not measured this far" in page and "<script" not in page
    shown = run("path", model, "--alphas", "1,10,1e6").stdout
    rows = {line.split()[1]: line for line in shown.splitlines() if line.startswith("│")}
    assert {"age", "(intercept)"} <= set(rows)  # a row for each column: a wide model stays readable
    assert plain(found["coefficients"][0][found["features"].index("age")]) in rows["age"]
    assert "*" in rows["moved"] and "* moves further than was measured" in shown
    assert run("path", model, "--alphas", "").exit_code != 0


def test_a_split_says_what_it_costs_and_no_numbers(run, folder) -> None:
    parts = ["--train-out", folder / "train.csv", "--test-out", folder / "test.csv"]
    done = run("split", folder / "data.csv", "--test", 0.25, *parts)
    assert done.exit_code == 0, done.output
    assert "costs no privacy" in done.stdout
    assert not any(number in done.stdout for number in ("2000", "2,000", "500", "1500"))
    lines = [(folder / name).read_text().splitlines() for name in ("train.csv", "test.csv")]
    assert lines[0][0] == lines[1][0] == "age,sector,note,wage"
    assert len(lines[0]) + len(lines[1]) == 2002 and 380 < len(lines[1]) < 620
    assert run("split", folder / "data.csv", *parts).exit_code != 0  # both exist
    assert run("split", folder / "data.csv", *parts, "--force", "--quiet").stdout == ""


def test_a_split_by_person_is_repeatable_with_its_key(run, folder) -> None:
    people = ["--unit", "sector", "--key", folder / "split.key"]
    texts = []
    for name in ("one", "two"):
        parts = ["--train-out", folder / f"{name}a.csv", "--test-out", folder / f"{name}b.csv"]
        done = run("split", folder / "data.csv", *parts, *people)
        assert done.exit_code == 0 and "not where one replaces another" in " ".join(done.stdout.split())
        texts.append((folder / f"{name}a.csv").read_text())
    assert texts[0] == texts[1]


def test_a_split_reads_a_file_as_its_schema_says(run, folder) -> None:
    rows = [f"Müller {i % 9};{i}" for i in range(60)]
    (folder / "bare.csv").write_bytes("\n".join(rows).encode("latin-1"))
    form = (
        'unit = "Fälle"\n[file]\nencoding = "latin-1"\ndelimiter = ";"\nnames = ["Fälle", "v"]\n[columns]\n'
    )
    (folder / "bare.toml").write_text(form + '"Fälle" = "ignored"\nv = [0, 9]\n', encoding="utf-8")
    parts = ["--train-out", folder / "a.csv", "--test-out", folder / "b.csv"]
    refused = run("split", folder / "bare.csv", *parts, "--delimiter", ";")
    assert refused.exit_code == 2 and "--names" in refused.stderr and "ller" not in refused.output
    done = run("split", folder / "bare.csv", *parts, "--schema", folder / "bare.toml", "--test", 0.5)
    assert done.exit_code == 0 and "rows of a person" in done.stdout, done.output
    found = [(folder / name).read_bytes().decode("latin-1").splitlines() for name in ("a.csv", "b.csv")]
    assert sorted(found[0] + found[1]) == sorted(rows)
    people = [{row.split(";")[0] for row in part} for part in found]
    assert not people[0] & people[1]


def test_refusals_of_a_split(run, folder) -> None:
    parts = ["--train-out", folder / "a.csv", "--test-out", folder / "b.csv"]
    for wrong, words in (
        (["--test", 1.5], "strictly between"),
        (["--unit", "person"], "no column 'person'"),
        (["--key", folder / "k"], "pass --unit"),
    ):
        done = run("split", folder / "data.csv", *parts, *wrong)
        assert done.exit_code != 0 and words in " ".join(done.stderr.split()), done.stderr
    same = run("split", folder / "data.csv", "--train-out", folder / "a.csv", "--test-out", folder / "a.csv")
    assert same.exit_code != 0
    assert not (folder / "a.csv").exists() and not (folder / "k").exists()


def test_a_search_is_one_charge_and_its_model_states_all_of_it(run, folder) -> None:
    assert (
        run(
            "ledger", "create", folder / "b.db", "--epsilon", 2, "--delta", 1e-5, "--filter", "basic"
        ).exit_code
        == 0
    )
    free = ["--schema", folder / "schema.toml", "--epsilon", 1.5, "--delta", 1e-6]
    charged = [*free, "--ledger", folder / "b.db"]
    alphas = ["--alphas", "1,100", "--out"]
    done = run("search", folder / "data.csv", *charged, *alphas, folder / "m.json", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [row["alpha"] for row in found["candidates"]] == [1, 100]
    assert sum(row["chosen"] for row in found["candidates"]) == 1 and found["remaining_epsilon"] == 0.5
    assert json.loads((folder / "m.json").read_text())["guarantee"]["epsilon"] == 1.5
    again = run("search", folder / "data.csv", *charged, *alphas, folder / "n.json")
    assert again.exit_code != 0 and not (folder / "n.json").exists()  # the ledger refuses
    told = run("search", folder / "data.csv", *free, *alphas, folder / "n.json")
    assert told.exit_code == 0 and "chosen" in told.stdout and "No ledger was charged" in told.stdout
    assert run("search", folder / "data.csv", *free, "--alphas", "x", "--out", folder / "k").exit_code != 0
