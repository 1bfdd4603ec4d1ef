"""All documents of the project, and what a reader can find in them: blocks, commands, links, anchors."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from documentation.calls import slug

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)">')


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    return [match[3] for match in FENCE.finditer(text) if match[2] == language]


def prose(text: str) -> str:
    return FENCE.sub("", text)


def links(text: str) -> list[str]:
    """Those that stay within the repository. Links in code are no links."""
    found = LINK.findall(CODE.sub("`", prose(text)))
    return [link for link in found if not link.startswith(("http:", "https:", "mailto:"))]


def anchors(text: str) -> set[str]:
    body = prose(text)
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in HEADING.findall(body)]
    return {slug(title.replace("`", "")) for title in titles} | set(ANCHOR.findall(body))


def commands(text: str) -> Iterator[list[str]]:
    """The words after `pricemesh`, of every call of it in a block or in code within a line."""
    pieces = [*blocks(text, "sh"), *blocks(text, "text")]
    pieces += [code for code in CODE.findall(prose(text)) if re.match(r"(\w+=\S+ )*pricemesh ", code)]
    for piece in pieces:
        for line in piece.replace("\\\n", " ").replace("\n", " \n ").split(" \n "):
            yield from _calls(line.removeprefix("$ "))


def _calls(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a drawing or a sentence, not a command
        return
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        is_command = word.strip("$(") in ("pricemesh", ".venv/bin/pricemesh", "/opt/pricemesh/bin/pricemesh")
        if is_command and before not in ("install", "--entrypoint", "--namespace"):
            rest = words[index + 1 :]
            end = next((i for i, each in enumerate(rest) if set(each) <= set("();<>|&")), len(rest))
            yield rest[:end]
