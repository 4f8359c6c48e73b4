"""One word for one thing on the command line: a walk over every command and every option."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from curvedp.cli import app

SPOKEN_OTHERWISE = {  # an audit tries what others release: its model is a file, its seed no danger
    ("dummy", "--seed"),  # nor where nothing is private
    ("audit", "--model"),
    ("audit", "--seed"),
    ("describe", "--by"),  # of tables by group, as statisticians say it; who releases is its --office
}
OUTPUTS = {"--out", "--report", "--folder", "--train-out", "--test-out", "--png"}
CONTINUE = {"compare", "reproduce", "coverage", "others"}  # what is in their folder is kept, and goes on
CHARGING = {"check", "bounds", "describe", "fit", "score", "search"}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        elif not command.hidden:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(get_command(app)))


def options(command: Any) -> dict[str, Any]:
    """By every name they have; of arguments the name in capitals."""
    named = {}
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        for name in parameter.opts if is_option else [parameter.metavar or parameter.name.upper()]:
            named[name] = parameter
    return named


def meaning(help_text: str) -> str:
    """What an option is; what a command does with it comes after the first stop."""
    return re.split(r"[:;,.]", help_text)[0]


def test_an_option_means_the_same_everywhere() -> None:
    meanings: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, command in COMMANDS.items():
        for name, parameter in options(command).items():
            if name.startswith("-") and (path, name) not in SPOKEN_OTHERWISE:
                assert parameter.help, (path, name)
                meanings[name][meaning(parameter.help)].append(path)
    assert {name: dict(found) for name, found in meanings.items() if len(found) > 1} == {}


def test_no_option_has_two_names() -> None:
    both = {("--quiet", "-q"), ("--ratios", "--odds-ratios")}  # the second as people say it
    for path, command in COMMANDS.items():
        for parameter in command.params:
            if parameter.param_type_name == "option" and len(parameter.opts) > 1:
                assert tuple(parameter.opts) in both, (path, parameter.opts)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_knows_quiet_and_json_and_force_where_it_writes(path: str) -> None:
    known = options(COMMANDS[path])
    assert {"--quiet", "--json"} <= set(known)
    if OUTPUTS & set(known) and path not in CONTINUE:
        assert "--force" in known
    assert "--html" not in known  # a page is a --report


@pytest.mark.parametrize("path", sorted(CHARGING))
def test_every_command_that_charges_says_who_and_why(path: str) -> None:
    who = "--office" if path == "describe" else "--by"  # by names groups there
    assert {"--ledger", who, "--purpose", "--seed"} <= set(options(COMMANDS[path]))


def test_no_other_command_charges() -> None:
    assert {path for path, command in COMMANDS.items() if "--purpose" in options(command)} == CHARGING
    assert {path for path, command in COMMANDS.items() if "--ledger" in options(command)} - CHARGING <= {
        "plan",  # it reads what is left
        "report",
        "verify",
    }


def test_tables_and_models_are_named_alike() -> None:
    names = {name for command in COMMANDS.values() for name in options(command) if not name.startswith("-")}
    assert {name.strip("[]") for name in names} <= {"DATA", "MODEL", "LEDGER", "HEAD", "WHAT", "FILE"}
    for path in ("predict", "score"):
        assert list(options(COMMANDS[path]))[:2] == ["MODEL", "DATA"]


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_shows_an_example_of_itself(path: str) -> None:
    command = COMMANDS[path]
    assert (command.epilog or "").startswith(f"Example: curvedp {path}")
    assert command.help
