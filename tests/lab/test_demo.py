"""`pricemesh demo` as a user runs it: a table at the end, and no process or file left over."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEMO = [sys.executable, "-m", "pricemesh", "demo", "--cities", "2", "--rate", "20", "--plot", "out.png"]


def left_behind(folder: Path) -> list[str]:
    """Processes that work in a folder of this demo."""
    processes = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                at = os.readlink(process / "cwd")
            except OSError:
                continue
            if at.startswith(str(folder)) and "pricemesh-demo" in at:
                processes.append(process.name)
    return processes


@pytest.mark.parametrize("ending", ["by itself", "Ctrl-C"])
def test_the_demo_ends_with_its_table_and_picture(tmp_path: Path, ending: str) -> None:
    seconds = "3" if ending == "by itself" else "60"
    process = subprocess.Popen(
        [*DEMO, "--seconds", seconds],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if ending == "Ctrl-C":
        assert process.stderr is not None
        while "watch" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(3)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    for word in ("lisbon", "porto", "together", "ratio", "p99 ms", "wrote out.png"):
        assert word in out, out
    if ending == "by itself":
        assert re.search(r"watch: http://127.0.0.1:\d+", err)
        assert "/mesh" in err
    assert (tmp_path / "out.png").stat().st_size > 10_000
    assert left_behind(tmp_path) == []
    assert list(tmp_path.glob("pricemesh-demo-*")) == []


def test_a_killed_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*DEMO, "--seconds", "60"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for_cities(tmp_path, 4)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while left_behind(tmp_path):
        assert time.monotonic() < deadline, left_behind(tmp_path)
        time.sleep(0.1)


def wait_for_cities(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 40
    while len(left_behind(folder)) < count:
        assert time.monotonic() < deadline, "the cities did not start"
        time.sleep(0.1)


def test_a_wrong_option_is_refused_with_the_remedy(tmp_path: Path) -> None:
    for options, message in ((["--cities", "1"], "from 2 to 8"), (["--policy", "disjoint"], "try netpool")):
        run = subprocess.run([*DEMO[:4], *options], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert run.returncode == 2
        assert message in run.stderr
