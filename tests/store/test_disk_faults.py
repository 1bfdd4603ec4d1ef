"""Every n-th write or sync of a SQLite database fails: what was acknowledged is there, and the file is whole.

A few n in `make test`, 1 to 200 in `make soak`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compiler import COMPILER, HOW_TO_GET_A_COMPILER

SOURCE = Path(__file__).with_name("disk_faults.c")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    if COMPILER is None:
        pytest.skip(HOW_TO_GET_A_COMPILER)
    library = tmp_path / "disk_faults.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


@pytest.mark.parametrize(("last", "step"), [(51, 10), pytest.param(200, 1, marks=pytest.mark.slow)])
def test_a_disk_whose_every_nth_call_fails_loses_nothing_and_damages_nothing(
    library: Path, tmp_path: Path, last: int, step: int
) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.store.disk_fault_load", str(tmp_path), str(last), str(step)],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    figures = json.loads(run.stdout)
    print(f"n = 1 to {last} by {step}, EIO, ENOSPC and short writes: {figures}")
    assert figures["calls that failed"] >= 6 * len(range(1, last + 1, step))
    assert figures["feedback acknowledged"] > 0
    assert figures["decisions in doubt"] > 0
