"""Every block of docs/schema.md works: files are written, commands run, schemas load, Python asserts."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from curvedp.data import Schema

PAGE = (Path(__file__).parents[2] / "docs" / "schema.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_runs_from_top_to_bottom(
    run: Callable[..., Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    done = []
    for language, name, text in BLOCKS:
        done.append(language)
        if language == "sh":
            for line in text.splitlines():
                result = run(*shlex.split(line)[1:])
                assert result.exit_code == 0, result.output
                assert "Anna" not in result.output
        elif language == "python":
            capsys.readouterr()
            exec(compile(text, "docs/schema.md", "exec"), {})
            wanted = re.findall(r"print\(.*\)  # (.*)", text)
            assert capsys.readouterr().out.splitlines() == wanted
        elif language == "toml":
            Schema.from_toml(text)
            if name:
                assert tomllib.loads(Path(name).read_text()) == tomllib.loads(text)
        else:
            Path(name).write_text(text)
    assert done.count("toml") >= 5 and done.count("sh") >= 5 and done.count("python") >= 2


def test_every_key_of_the_page_is_one_that_is_read() -> None:
    from curvedp.data.files import _ALL_KEYS, _TOP_KEYS, Stated

    for key in {*_ALL_KEYS, *_TOP_KEYS} - {"name", "kind", "file", "column"}:
        assert f"`{key}`" in PAGE or f"`[[{key}]]`" in PAGE, key
    tables = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    kinds = {"numeric", "categorical", "date", "boolean", "ignored"}
    for key in re.findall(r"`(\w+)`", " ".join(tables)):
        assert key in {*_ALL_KEYS, *_TOP_KEYS, *kinds, *vars(Stated())}, key


def test_lines_are_not_too_long() -> None:
    assert all(len(line) <= 116 or line.startswith("|") for line in PAGE.splitlines())
