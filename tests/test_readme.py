"""The README's own commands, in their order, as a reader pastes them; its length."""

import re
from pathlib import Path

import pytest

from tests.pasting import ROOT, pasted, shell_blocks

README = (ROOT / "README.md").read_text()
MAX_WORDS = 1500


def blocks(title: str) -> list[str]:
    """The shell commands of a section."""
    return shell_blocks(README.split(f"\n## {title}\n")[1].split("\n## ")[0])


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="there is no bash")
def test_own_data_is_priced_and_learned_as_the_readme_says(tmp_path: Path) -> None:
    printed = pasted([*blocks("Your own data in ten minutes"), "kill %1"], tmp_path)
    assert '"status":"ready"' in printed
    assert re.search(r'"decision_id":"order-1".*"price":(8|9|10|11|12)\.0', printed)
    assert '"sold":1.0' in printed
    assert '"learned":true,"version":2001' in printed  # after the 2,000 rows of the file


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="there is no bash")
def test_two_cities_hear_each_other_as_the_readme_says(tmp_path: Path) -> None:
    start = 'export PATH="$PWD/.venv/bin:$PATH"'
    printed = pasted([start, *blocks("Many cities")], tmp_path)
    assert printed.count('"status":"ready"') == 2
    assert '"origin": "porto"' in printed
    assert '"status": "fresh"' in printed


def test_a_newcomer_finishes_the_readme() -> None:
    assert len(README.split()) <= MAX_WORDS
