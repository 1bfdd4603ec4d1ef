"""The arithmetic of ratios by hand, and the command as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pricemesh.lab.bench.http import ASGI, SQLITE, fast_path_against_asgi
from pricemesh.lab.bench.instructions import self_costs
from pricemesh.lab.bench.load import Load
from pricemesh.lab.bench.ratios import Suite, microseconds, ratio, spread
from pricemesh.lab.bench.report import as_json, table
from pricemesh.lab.bench.stations import split_costs
from pricemesh.lab.bench.stopwatch import race


def bench(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pricemesh", "bench", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **env},
    )


def test_a_ratio_is_taken_repetition_by_repetition() -> None:
    result = ratio("ours", [6.0, 2.0, 9.0], "theirs", [2.0, 1.0, 1.0])
    assert result.values == (2.0, 3.0, 9.0)  # and not the ratio of the medians, 6
    assert (result.median, result.low, result.high) == (3.0, 2.0, 9.0)
    assert ratio("a batch", [5.0], "one", [2.0], factor=100.0).median == 250.0
    assert spread([6.0, 2.0, 9.0], [2.0, 1.0, 1.0]) == ("3.00", "2.00–9.00")


def test_the_fast_path_is_compared_with_asgi_by_cpu_of_a_call() -> None:
    def loads(*cpu_seconds: float) -> list[Load]:
        return [Load(1000.0, 1000, 0.001, 0.002, each) for each in cpu_seconds]

    result = fast_path_against_asgi(
        {(SQLITE, "price"): loads(50e-6, 40e-6), (ASGI, "price"): loads(75e-6, 80e-6)}
    )
    assert result.values == pytest.approx((1.5, 2.0))
    assert result.what.startswith("fast path against ASGI")
    assert result.figure == "77.5 µs by ASGI, 45 µs by the fast path"


def test_with_many_repetitions_the_spread_is_of_the_middle_half() -> None:
    result = ratio("ours", [float(n) for n in range(1, 9)], "one", [1.0] * 8)
    assert (result.low, result.median, result.high) == (3.0, 4.5, 6.0)


def test_short_times_are_in_microseconds_and_longer_ones_in_milliseconds() -> None:
    assert microseconds([2e-6, 1e-6, 4e-6]) == "2 µs"
    assert microseconds([0.0125]) == "12.5 ms"


def test_contenders_are_timed_in_turn_equally_often() -> None:
    calls: list[str] = []
    contenders = {name: lambda name=name: calls.append(name) for name in ("a", "b")}
    times = race(contenders, repetitions=3, slice_seconds=0.0)
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 3, "b": 3}
    assert calls[4:] == ["a", "a", "b", "b"] * 3  # once untimed, once timed


def test_json_has_every_ratio_with_all_its_repetitions() -> None:
    suite = Suite("core", "a title", [ratio("x", [2.0, 4.0], "y", [1.0, 1.0], target="≥ 1")], ["left out"])
    (record,) = as_json([suite])["suites"]
    assert record["notes"] == ["left out"]
    assert record["ratios"][0] | {"measured": ""} == {
        "what": "x",
        "against": "y",
        "measured": "",
        "ratio": 3.0,
        "low": 2.0,
        "high": 4.0,
        "values": (2.0, 4.0),
        "wanted": "≥ 1",
    }
    assert table(suite).row_count == 1


def test_the_command_prints_tables_and_writes_json_and_a_picture(tmp_path: Path) -> None:
    run = bench("core", "gossip", "--quick", "--out", str(tmp_path))
    assert run.returncode == 0, run.stderr
    assert "bytes of a letter, K=10 c=10" in run.stdout
    written = json.loads((tmp_path / "bench.json").read_text())
    assert [suite["suite"] for suite in written["suites"]] == ["core", "gossip"]
    whats = {one["what"]: one for suite in written["suites"] for one in suite["ratios"]}
    # 10 arms of 10 * 11 / 2 + 10 + 2 numbers of 8 bytes, and what a letter has besides
    assert whats["bytes of a letter, K=10 c=10"]["ratio"] == 5504 / (8 * 10 * 67)
    assert all(one["low"] <= one["ratio"] <= one["high"] for one in whats.values())
    assert (tmp_path / "bench.png").read_bytes()[:4] == b"\x89PNG"


def test_a_missing_program_is_named_and_the_other_suites_run(tmp_path: Path) -> None:
    run = bench("http", "instructions", "--quick", "--json", "-", "--out", str(tmp_path), PATH=str(tmp_path))
    assert run.returncode == 0, run.stderr
    assert "apt-get install wrk" in run.stderr
    assert "apt-get install valgrind" in run.stderr
    assert [suite["ratios"] for suite in json.loads(run.stdout)["suites"]] == [[], []]


def test_instructions_count_for_the_library_that_executes_them_not_for_its_callers() -> None:
    """A function of the interpreter's calls one of SQLite's, which takes 500 of the 512 below it."""
    dump = """
ob=(1) /usr/lib/libpython3.11.so.1.0
fn=(1) call
10 7
cob=(2) /usr/lib/libsqlite3.so.0
cfn=(2) step
calls=3 20
+1 500
+2 5

ob=(2)
fn=(2) step
20 400
* 100
"""
    assert self_costs(dump) == {"the interpreter": 12, "SQLite": 500}


def test_the_cost_of_a_station_excludes_the_stations_that_run_before_it() -> None:
    price = {"parsing": [1.0], "score and choose": [2.0], "rows": [5.0], "insert and commit": [15.0]}
    assert split_costs("/price", price) == {
        "parsing": [1.0],
        "score and choose": [2.0],
        "rows": [3.0],
        "insert and commit": [10.0],
    }


def test_an_unknown_suite_is_refused_with_a_list_of_the_suites() -> None:
    run = bench("speed")
    assert run.returncode == 2
    assert "recovery" in run.stderr
