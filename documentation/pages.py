"""Which files are generated, in whole or between two comments, and by which function."""

import re
from collections.abc import Callable
from pathlib import Path

from documentation.calls import calls, openapi_text
from documentation.city import example_app, example_settings
from documentation.commands import commands
from documentation.llms import llms_text
from documentation.metric_tables import metric_tables
from documentation.setting_tables import policy_table, setting_tables

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

# A part of a page stands between <!-- generated:NAME --> and <!-- end of generated:NAME -->.
PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "api.md": {"calls": lambda: calls(example_app())},
    "reference/configuration.md": {"settings": setting_tables, "policies": policy_table},
    "reference/cli.md": {"commands": commands},
    "reference/metrics.md": {"metrics": lambda: metric_tables(example_app())},
}


def generated_files() -> dict[Path, str]:
    """What every file with a generated part should hold. llms.txt comes last: it reads the pages."""
    files = {DOCS / "openapi.json": openapi_text(example_app(), example_settings())}
    for name, parts in PARTS.items():
        page = (DOCS / name).read_text(encoding="utf-8")
        for part, make in parts.items():
            page = replace_part(page, part, make())
        files[DOCS / name] = page
    files[DOCS / "llms.txt"] = llms_text(ROOT / "mkdocs.yml", DOCS)
    return files


def replace_part(page: str, part: str, text: str) -> str:
    """The page with another text between the two comments of a part."""
    start, end = f"<!-- generated:{part} -->", f"<!-- end of generated:{part} -->"
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    new, count = pattern.subn(lambda _: f"{start}\n\n{text.strip()}\n\n{end}", page)
    if count != 1:
        raise ValueError(f"a page needs {start} and {end} once, and this one has them {count} times")
    return new
