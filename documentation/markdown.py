"""Tables and cells of Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def cell(text: str) -> str:
    """One line, in which a bar does not end the cell."""
    return " ".join(text.replace("|", "\\|").split())


def code(text: object) -> str:
    return f"`{text}`"
