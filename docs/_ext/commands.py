"""The command line from its own help: `{command} fit` shows a command's usage, options and example.

`{other-commands}` shows every command that the page has not shown, so that none can be missing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from curvedp.cli import app as curvedp_app

HIDDEN = {"help", "install_completion", "show_completion"}


def tree() -> dict[str, Any]:
    """Every command by its words, `ledger create`; groups are left out, hidden ones too."""
    found: dict[str, Any] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        children = getattr(command, "commands", None)
        if children:
            for name, child in children.items():
                if not child.hidden:
                    walk(child, (*words, name))
        else:
            found[" ".join(words)] = command

    walk(typer.main.get_command(curvedp_app), ())
    return found


def plain(text: str | None) -> str:
    """Help without terminal markup, on one line; signs that Markdown would read are kept as they are."""
    words = " ".join((text or "").split())
    words = re.sub(r"\[/?(?:bold|dim|italic|red|green|yellow|cyan)[^\]]*\]", "", words)
    return re.sub(r"([*_<>|`$\[\]])", r"\\\1", words)


WORDS = {float: "NUMBER", int: "INTEGER", str: "TEXT", Path: "PATH", bool: ""}


def types(command: Any) -> dict[str, str]:
    """What the value of every parameter looks like, from the function's annotations; nothing for a switch."""
    hints = get_type_hints(inspect.unwrap(command.callback))
    return {name: spelled(kind) for name, kind in hints.items() if name != "return"}


def spelled(kind: Any) -> str:
    """PATH, NUMBER, a|b."""
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(member.value) for member in kind)
    inner = [part for part in get_args(kind) if part is not type(None)]
    return spelled(inner[0]) if inner else WORDS.get(kind, "TEXT")


def default_of(param: Any) -> str:
    """The default in words, where there is one worth saying."""
    value = param.default
    value = getattr(value, "value", value)
    if (
        param.required
        or callable(value)
        or not isinstance(value, (str, int, float))
        or isinstance(value, bool)
    ):
        return ""
    return "" if value == "" else f" Default: `{value}`."


def parts(command: Any) -> tuple[list[Any], list[Any]]:
    """(arguments, options) that are shown."""
    shown = [p for p in command.params if not getattr(p, "hidden", False) and p.name not in HIDDEN]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    return arguments, [p for p in shown if p.param_type_name == "option"]


def label(argument: Any) -> str:
    return str(argument.metavar or argument.name).upper()


def described(name: str, command: Any) -> Iterator[str]:
    """Markdown: the sentence, usage, arguments and options, the example."""
    arguments, options = parts(command)
    kinds = types(command)
    for paragraph in re.split(r"\n\s*\n", command.help or ""):
        yield from (plain(paragraph), "")
    usage = ["curvedp", name, *(label(a) if a.required else f"[{label(a)}]" for a in arguments)]
    needed = [f"{o.opts[0]} {kinds[o.name]}".strip() for o in options if o.required]
    rest = ["[OPTIONS]"] if len(needed) < len(options) else []
    yield from ("```text", *wrapped(" ".join(usage), [*needed, *rest]), "```", "")
    for argument in arguments:
        yield from (f"`{label(argument)}`", f": {plain(argument.help) or 'see above'}", "")
    for option in sorted(options, key=lambda option: not option.required):
        names = ", ".join(f"`{text}`" for text in [*option.opts, *option.secondary_opts])
        kind = kinds[option.name]
        value = f" `{kind}`" if kind else ""
        needed_words = " **Required.**" if option.required else ""
        yield from (f"{names}{value}", f": {plain(option.help)}{needed_words}{default_of(option)}", "")
    example = " ".join((command.epilog or "").split()).removeprefix("Example: ")
    if example:
        yield from ("```sh", *wrapped("", split_options(example)), "```", "")


def split_options(example: str) -> list[str]:
    """An example cut before its options, so that it can be wrapped."""
    return re.split(r" (?=--)", example)


def wrapped(first: str, words: list[str], width: int = 72) -> list[str]:
    """A command over several lines, as a shell reads it."""
    lines, current = [], first
    for word in words:
        joined = f"{current} {word}".strip() if current.strip() else word
        if len(joined) > width and current.strip():
            lines.append(current + " \\")
            current = f"    {word}"
        else:
            current = joined if not current.startswith("    ") else f"{current} {word}"
    return [*lines, current]


class CommandDirective(SphinxDirective):
    """One command, or a group with all of its commands."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = False

    def run(self) -> list[nodes.Node]:
        asked, commands = self.arguments[0], tree()
        found = {k: v for k, v in commands.items() if k == asked or k.startswith(f"{asked} ")}
        if not found:
            raise self.error(f"there is no command {asked!r}")
        self.env.temp_data.setdefault("commands_shown", set()).update(found)
        return rendered(self, found, titled=len(found) > 1)


class OtherCommands(SphinxDirective):
    """All commands that the page has not shown yet."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        shown = self.env.temp_data.get("commands_shown", set())
        return rendered(self, {k: v for k, v in tree().items() if k not in shown}, titled=True)


def rendered(directive: SphinxDirective, found: dict[str, Any], *, titled: bool) -> list[nodes.Node]:
    collected: list[nodes.Node] = []
    for name, command in found.items():
        box = nodes.container(classes=["command"])
        if titled:
            title = nodes.paragraph(classes=["command-name"])
            title += nodes.literal(text=f"curvedp {name}")
            box += title
        directive.state.nested_parse(StringList(list(described(name, command)), "help"), 0, box)
        box["ids"].append(f"command-{name.replace(' ', '-')}")
        collected.append(box)
    return collected


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command", CommandDirective)
    app.add_directive("other-commands", OtherCommands)
    return {"parallel_read_safe": True}
