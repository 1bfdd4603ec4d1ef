"""The base install serves a city; every command of the laboratory names the extra that it needs."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from pricemesh.lab.extra import PACKAGES
from tests.running import CityProcess

COMMANDS = (["demo"], ["drive", "http://127.0.0.1:1"], ["simulate"], ["paper"], ["bench", "core"])


def path_without(modules: tuple[str, ...], folder: Path) -> str:
    """A PYTHONPATH under which no process can import these modules."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules |= dict.fromkeys({modules!r})\n")
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def pricemesh(*arguments: str, path: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pricemesh", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_of_the_lab_names_the_missing_extra_in_one_line(command: list[str], tmp_path: Path) -> None:
    run = pricemesh(*command, path=path_without(PACKAGES, tmp_path / "hidden"), folder=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    (line,) = run.stderr.splitlines()
    assert line == "error: this command needs greenlet, matplotlib: pip install 'pricemesh[lab]'"
    assert [each.name for each in tmp_path.iterdir()] == ["hidden"]


def test_help_and_serve_import_neither_the_lab_nor_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_without((*PACKAGES, "pricemesh.lab"), tmp_path / "hidden")
    run = pricemesh("--help", path=path, folder=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "simulate" in run.stdout
    monkeypatch.setenv("PYTHONPATH", path)
    city = CityProcess(tmp_path / "city", f"sqlite:///{tmp_path}/city.db")
    try:
        assert httpx.get(f"{city.url}/readyz").status_code == 200
    finally:
        city.stop()
