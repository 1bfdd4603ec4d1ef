"""The loader of `make bench-overload`: a city serves its calls, and it counts each of them once."""

from collections import Counter
from pathlib import Path

import pytest
import uvloop

from benchmarks.open_loop import OpenLoop
from pricemesh.city.configuration import load_settings
from pricemesh.lab.bench.load import city_environment
from tests.running import RunningCity

CALLS_PER_SECOND, SECONDS = 400.0, 0.25


def answers_of(folder: Path, rows: int, **more: str) -> Counter[str]:
    variables = city_environment(f"sqlite:///{folder}/city.db") | more
    city = RunningCity(load_settings(None, variables))
    load = OpenLoop(int(city.url.rpartition(":")[2]), rows)

    async def run() -> None:
        await load.run_open(CALLS_PER_SECOND, SECONDS)
        await load.close()

    try:
        uvloop.run(run())
    finally:
        city.stop()
    return load.answers


@pytest.mark.parametrize("rows", [0, 3], ids=["single", "batches"])
def test_a_city_that_is_not_overloaded_serves_every_call(tmp_path: Path, rows: int) -> None:
    answers = answers_of(tmp_path, rows)
    assert set(answers) == {"200"}
    assert answers["200"] <= CALLS_PER_SECOND * SECONDS + 1


def test_a_call_whose_connection_is_refused_is_counted_once(tmp_path: Path) -> None:
    answers = answers_of(tmp_path, 0, PRICEMESH_LIMITS_CONNECTIONS="1")
    assert set(answers) <= {"200", "503", "cut off"}
    assert answers["200"] > 0
    assert answers.total() <= CALLS_PER_SECOND * SECONDS + 1
