"""The command line as a page, from the typer application: usage, arguments, options, examples."""

from collections.abc import Iterator
from typing import Any

import typer

from documentation.markdown import code, table
from pricemesh.cli import app


def command_tree() -> dict[str, Any]:
    """Every command by its words: "serve", "keys new"."""
    return dict(_walk(typer.main.get_command(app), ()))


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield " ".join(words), command
        return
    for name, child in children.items():
        yield from _walk(child, (*words, name))


def commands() -> str:
    return "\n\n".join(_section(name, command) for name, command in command_tree().items())


def options_of(command: Any) -> set[str]:
    """All spellings, hidden ones too."""
    options = [param for param in command.params if param.param_type_name == "option"]
    return {name for param in options for name in (*param.opts, *param.secondary_opts)} | {"--help"}


def _section(name: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    words = " ".join(_metavar(param) for param in arguments)
    usage = " ".join(filter(None, ["pricemesh", name, "[OPTIONS]" if options else "", words]))
    parts = [f"## pricemesh {name}", _paragraphs(command.help), f"```text\n{usage}\n```"]
    if arguments:
        parts.append(
            table(("argument", "meaning"), [[code(_metavar(item)), item.help or ""] for item in arguments])
        )
    if options:
        parts.append(table(("option", "default", "meaning"), map(_option_row, options)))
    if command.epilog:
        parts.append(_paragraphs(command.epilog))
    return "\n\n".join(parts)


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def _metavar(param: Any) -> str:
    name = param.metavar or param.name.rstrip("_").upper()
    return f"{name}..." if param.nargs == -1 and not name.endswith("...") else name


def _option_row(param: Any) -> list[str]:
    names = ", ".join(code(name) for name in (*param.opts, *param.secondary_opts))
    if not param.is_flag:
        names += f" {code(param.metavar or param.name.strip('_').rpartition('_')[2].upper())}"
    meaning, _, default = (param.help or "").partition(" [default: ")  # one that is found out when it runs
    if param.envvar:
        meaning = f"{meaning} Also from {code(param.envvar)}."
    return [names, default.rstrip("]") or _default(param), meaning]


def _default(param: Any) -> str:
    value = param.default
    if param.required:
        return "**required**"
    if value is None or value is False or value == () or callable(value):
        return ""
    return code("on" if value is True else value)
