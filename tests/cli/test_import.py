"""`pricemesh import` as a user runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_cli import pricemesh

CONFIG = """city = "lisbon"
[arms]
prices = [8.0, 9.0]
[features]
shared = [{{ name = "rain", min = 0, max = 1 }}]
[reward]
kind = "purchase"
[database]
url = "sqlite:///{folder}/city.db"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "lisbon.toml"
    file.write_text(CONFIG.format(folder=tmp_path))
    (tmp_path / "sales.csv").write_text(
        "rain;price;sold;time\n0.5;8;1;01.03.2026 12:00\n2;9;0;01.03.2026 13:00\n"
    )
    return file


def run(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return pricemesh("import", str(config.parent / "sales.csv"), "--config", str(config), *words)


def test_a_dry_run_shows_the_file_and_changes_nothing(config: Path) -> None:
    bad = config.parent / "bad.csv"
    shown = run(config, "--dry-run", "--bad-rows", str(bad))
    assert shown.returncode == 0, shown.stderr
    assert "2 rows, 1 of them can be imported, 1 cannot" in shown.stderr
    assert "rain: 0.5 to 2, declared 0 to 1; 1 rows outside" in shown.stderr
    assert "line 3, rain: 2 is outside [0, 1]" in shown.stderr
    assert not (config.parent / "city.db").exists()
    assert bad.read_text().splitlines()[1].startswith("3,rain,")


def test_one_bad_row_is_enough_that_nothing_is_imported_unless_it_is_to_be_skipped(config: Path) -> None:
    refused = run(config)
    assert refused.returncode == 2
    assert "1 rows cannot be imported, so nothing was" in refused.stderr
    assert not (config.parent / "city.db").exists()
    done = run(config, "--skip-bad-rows", "--name", "march", "--time-zone", "Europe/Lisbon")
    assert done.returncode == 0, done.stderr
    assert "imported 1 rows" in done.stderr
    again = run(config, "--skip-bad-rows")
    assert again.returncode == 0
    assert "this file was imported before, as 'march': nothing to do" in again.stderr
    out = pricemesh("export", "--config", str(config), "--out", "-", "--columns", "time,price,sold,reward")
    assert out.stdout.splitlines() == [
        "time,price,sold,reward",
        "2026-03-01T12:00:00.000000Z,8.0,1.0,8.0",
    ]
    forgotten = pricemesh("import", "--abandon", "--config", str(config))
    assert "no import was interrupted" in forgotten.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--time-zone", "Lisbon/Europe"], "--time-zone 'Lisbon/Europe' is not known"),
        (["--map", "rain"], "--map is COLUMN=NAME"),
        (["--map", "sold=units"], "the file has no column sold"),
    ],
)
def test_a_mistake_is_one_line(config: Path, words: list[str], message: str) -> None:
    refused = run(config, *words)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert message in refused.stderr


def test_a_command_without_a_file_says_so(config: Path) -> None:
    assert "name the file to import" in pricemesh("import", "--config", str(config)).stderr


def test_what_init_proposes_can_be_done_as_it_is_printed(config: Path) -> None:
    folder = config.parent
    words = ("--map", "rain=wet", "--out", str(folder / "city.toml"))
    made = pricemesh("init", str(folder / "sales.csv"), *words)
    assert made.returncode == 0, made.stderr
    (step,) = (line for line in made.stderr.splitlines() if "pricemesh import" in line)
    command = f"{sys.executable} -m {step.strip()}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 rows, 2 of them can be imported, 0 cannot" in done.stderr


def test_an_import_that_is_killed_goes_on_by_the_same_command(config: Path) -> None:
    """Killed after its first commit of rows."""
    rows = "".join(f"0.5,{8 + i % 2},{i % 2},h{i}\n" for i in range(5000))
    file = config.parent / "sales.csv"
    file.write_text("rain,price,sold,decision_id\n" + rows)
    script = (
        "import os, signal, sys\n"
        "from pricemesh.history import importing\n"
        "before = importing.stage\n"
        "def stage(*arguments):\n"
        "    before(*arguments)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "importing.stage = stage\n"
        f"sys.argv = ['pricemesh', 'import', {str(file)!r}, '--config', {str(config)!r}]\n"
        "from pricemesh.cli import main\n"
        "main()\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert killed.returncode == -9
    out = pricemesh("export", "--config", str(config), "--out", "-", "--columns", "number")
    assert out.stdout == "number\n"
    done = run(config)
    assert done.returncode == 0, done.stderr
    assert "imported 5,000 rows; left out 0" in done.stderr
    out = pricemesh("export", "--config", str(config), "--out", "-", "--columns", "decision_id")
    assert out.stdout.split()[1:] == [f"h{i}" for i in range(5000)]
