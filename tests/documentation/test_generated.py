"""What is made from the code is up to date, and complete."""

import pytest

from documentation.commands import command_tree
from documentation.pages import DOCS, generated_files, replace_part
from pricemesh.city.settings import Settings
from pricemesh.errors import StorageCause
from pricemesh.http.problems import STATUSES


def test_every_generated_file_is_what_the_code_says() -> None:
    files = generated_files()
    assert {path.name for path in files} >= {
        "openapi.json",
        "llms.txt",
        "api.md",
        "configuration.md",
        "cli.md",
    }
    outdated = [path.name for path, text in files.items() if path.read_text(encoding="utf-8") != text]
    assert outdated == [], "run `make docs` (or python -m documentation)"


def test_every_setting_has_a_description_and_a_row() -> None:
    page = (DOCS / "reference/configuration.md").read_text()
    for section, field in Settings.model_fields.items():
        fields = getattr(field.annotation, "model_fields", None)
        for key, setting in ({section: field} if fields is None else fields).items():
            assert setting.description, f"{section}.{key}"
            assert setting.description.replace("|", "\\|") in page


def test_every_command_has_a_section_with_examples() -> None:
    page = (DOCS / "reference/cli.md").read_text()
    for command in command_tree():
        section = page.split(f"\n## pricemesh {command}\n")[1].split("\n## ")[0]
        assert "**Examples**" in section, command


def test_every_kind_of_problem_has_a_cause_and_a_cure() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (DOCS / "reference/errors.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    kinds = {kind.strip("` "): row for row in rows for kind in row[0].split(",")}
    for error, status in STATUSES.items():
        assert kinds[error.kind][1] == str(status), error.kind
        assert all(kinds[error.kind][2:]), error.kind
    assert {cause.value for cause in StorageCause} <= set(kinds)


def test_a_part_that_a_page_lacks_is_an_error() -> None:
    page = "<!-- generated:a -->\nold\n<!-- end of generated:a -->"
    assert replace_part(page, "a", "new") == "<!-- generated:a -->\n\nnew\n\n<!-- end of generated:a -->"
    with pytest.raises(ValueError, match="0 times"):
        replace_part(page, "b", "new")
