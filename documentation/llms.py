"""llms.txt: the site's pages for programs that read, in the order of the navigation, with a sentence each."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def llms_text(configuration: Path, docs: Path) -> str:
    site = yaml.safe_load(configuration.read_text(encoding="utf-8"))
    lines = [f"# {site['site_name']}", "", f"> {site['site_description']}"]
    for section, pages in sections(site["nav"]):
        lines += ["", f"## {section}", ""]
        for path in pages:
            page = (docs / path).read_text(encoding="utf-8")
            lines.append(f"- [{title(page)}]({path}): {first_sentence(page)}")
    return "\n".join(lines) + "\n"


def sections(nav: list[Any]) -> Iterator[tuple[str, list[str]]]:
    """(title, pages) of each part of the navigation, nested ones flattened."""
    for item in nav:
        if isinstance(item, str):
            yield "Start", [item]
            continue
        ((name, below),) = item.items()
        yield name, list(pages_of(below))


def pages_of(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for below in nav.values():
            yield from pages_of(below)
    else:
        for item in nav:
            yield from pages_of(item)


def title(page: str) -> str:
    return page.splitlines()[0].removeprefix("# ").strip()


def first_sentence(page: str) -> str:
    """Of the first paragraph, without links and emphasis."""
    body = FENCE.sub("", page.split("\n", 1)[1])
    for paragraph in re.split(r"\n\s*\n", body):
        text = " ".join(paragraph.split())
        if text and text[0] not in "#|<!-":
            plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "").replace("*", "")
            return re.split(r"(?<=[.:])\s+(?=[A-Z])|:$", plain)[0].rstrip(":.") + "."
    return ""
