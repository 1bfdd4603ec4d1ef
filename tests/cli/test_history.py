"""`pricemesh export` as a user runs it."""

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
import tomli_w

from tests.cli.test_cli import pricemesh
from tests.running import CONFIG, CONTEXT, CityProcess, RunningCity, settings_for


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The file of a city that has made 1,000 decisions, and is stopped."""
    url = f"sqlite:///{tmp_path}/city.db"
    city = RunningCity(settings_for(url))
    city.http.post("/price/batch", json={"requests": [CONTEXT] * 1000}).raise_for_status()
    city.stop()
    file = tmp_path / "lisbon.toml"
    file.write_text(tomli_w.dumps({**CONFIG, "database": {"url": url}}))
    return file


def test_a_file_is_written_by_its_name_or_by_the_format(config: Path) -> None:
    parquet, table = config.with_name("out.parquet"), config.with_name("out.data")
    run = pricemesh("export", "--config", str(config), "--out", str(parquet))
    assert run.returncode == 0, run.stderr
    assert "wrote 1,000 decisions" in run.stderr
    assert run.stdout == ""
    assert pq.read_table(parquet).num_rows == 1000
    table.write_text("before")
    words = ("--since", "2020-01-01", "--columns", "price,features")
    run = pricemesh("export", "--config", str(config), "--out", str(table), "--format", "csv", *words)
    assert run.returncode == 0, run.stderr
    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert (len(rows), list(rows[0])) == (1000, ["price", "demand", "rain", "event", "tourists", "strike"])
    assert sorted(path.name for path in config.parent.iterdir() if path.name.startswith(".")) == []


def test_csv_goes_to_standard_output_and_nothing_else_does(config: Path) -> None:
    run = pricemesh("export", "--config", str(config), "--out", "-", "--columns", "arm,price")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0] == "arm,price"
    assert len(run.stdout.splitlines()) == 1001


def test_a_reader_that_has_enough_is_no_traceback(config: Path) -> None:
    command = [sys.executable, "-m", "pricemesh", "export", "--config", str(config), "--out", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "-", "--format", "parquet"], "--out - is for CSV"),
        (["--out", "x.data"], "give --format csv or parquet for x.data"),
        (["--out", "x.csv", "--format", "xlsx"], "--format is csv or parquet, not 'xlsx'"),
        (["--out", "x.csv", "--since", "March"], "--since must be Unix seconds or ISO 8601"),
        (["--out", "x.csv", "--columns", "snow"], "there is no column 'snow'"),
        (["--out", "x.csv", "--arm", "9"], "there is no arm 9"),
        (["--out", "nowhere/x.csv"], "cannot write nowhere/x.csv"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(config: Path, words: list[str], message: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pricemesh", "export", "--config", str(config), *words],
        capture_output=True,
        text=True,
        cwd=config.parent,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2
    assert run.stderr.startswith("error: ")
    assert message in run.stderr
    assert not (config.parent / "x.csv").exists()


def test_an_export_that_is_interrupted_leaves_the_file_as_it_was(config: Path) -> None:
    """It waits for its standard input before the first page."""
    target = config.with_name("out.csv")
    target.write_text("before")
    script = (
        "import os, sys\n"
        "from pricemesh.history import export\n"
        "before = export.Export.next\n"
        "def next_(self):\n"
        "    print('begun', flush=True)\n"
        "    sys.stdin.read()\n"
        "    return before(self)\n"
        "export.Export.next = next_\n"
        f"sys.argv = ['pricemesh', 'export', '--config', {str(config)!r}, '--out', {str(target)!r}]\n"
        "from pricemesh.cli import main\n"
        "main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        assert any(name.endswith(".part") for name in os.listdir(config.parent))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) != 0
    assert target.read_text() == "before"
    assert not any(name.endswith(".part") for name in os.listdir(config.parent))


def test_a_city_goes_on_while_another_process_exports_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/city.db"
    city = CityProcess(tmp_path / "city", url)
    file = tmp_path / "lisbon.toml"
    file.write_text(tomli_w.dumps({**CONFIG, "database": {"url": url}}))
    with httpx.Client(base_url=city.url, timeout=20) as http:
        for count in (1, 2):
            http.post("/price", json=CONTEXT).raise_for_status()
            run = pricemesh("export", "--config", str(file), "--out", "-", "--columns", "number")
            assert run.returncode == 0, run.stderr
            assert run.stdout.split() == ["number", *map(str, range(1, count + 1))]
        assert http.get("/readyz").status_code == 200
    assert city.stop() == 0
    assert not (tmp_path / "city.db-wal").exists()
