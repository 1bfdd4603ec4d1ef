"""Shell commands of a document, run as a reader pastes them."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pricemesh.lab.demo import free_ports

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shell_blocks(text: str) -> list[str]:
    return BLOCK.findall(text)


def pasted(commands: Sequence[str], folder: Path, ports: Sequence[str] = ("8001", "8002")) -> str:
    """What an interactive shell prints, in a checkout with its environment, on ports that are free here."""
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "pricemesh").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m pricemesh "$@"\n'
    )
    (folder / ".venv" / "bin" / "pricemesh").chmod(0o755)
    text = "\n".join(commands)
    for written, port in zip(ports, free_ports(len(ports)), strict=True):
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
