"""The README's own commands, in their order, as a reader pastes them; its words and its links."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pricemesh.lab.demo import free_ports

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
MAX_WORDS = 1500
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(title: str) -> list[str]:
    """The shell commands of a section."""
    section = README.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return BLOCK.findall(section)


def pasted(commands: list[str], folder: Path) -> str:
    """What an interactive shell prints, in a checkout with its environment, on ports that are free here."""
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "pricemesh").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m pricemesh "$@"\n'
    )
    (folder / ".venv" / "bin" / "pricemesh").chmod(0o755)
    text = "\n".join(commands)
    for written, port in zip(("8001", "8002"), free_ports(2), strict=True):
        text = text.replace(written, str(port))
    script = f"set -em\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{text}\n"
    result = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_in_the_documents_lead_somewhere(document: Path) -> None:
    links = [
        link for link in LINK.findall(document.read_text()) if not link.startswith(("http", "#", "mailto"))
    ]
    missing = [link for link in links if not (document.parent / link.split("#")[0]).exists()]
    assert missing == []
