"""The same tests on SQLite and on a real Postgres; and what a run says at its end."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pricemesh.city.settings import Settings
from pricemesh.runtime import Runtime
from pricemesh.store.migration import migrate
from tests.compiler import COMPILER, HOW_TO_GET_A_COMPILER
from tests.dashboard.browser import CHROMIUM, HOW_TO_GET_IT
from tests.kubectl import HAS_SCHEMAS, HOW_TO_GET_KUBECTL, KUBECTL
from tests.node import HOW_TO_GET_NODE, NODE
from tests.postgres import Postgres
from tests.previous import HOW_TO_GET_THE_HISTORY, previous_commit
from tests.running import RunningCity, settings_for
from tests.systemd import ANALYZE, HOW_TO_GET_SYSTEMD

MIN_FREE_BYTES = 4 << 30
_numbers = count()


def _keep_temporary_files_in_memory() -> None:
    """Where there is plenty of it. The tests let processes die, not machines, so nothing needs a disk; and on
    a busy disk every commit waits for every other one."""
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK):
        return
    if shutil.disk_usage(memory).free >= MIN_FREE_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = str(memory)


_keep_temporary_files_in_memory()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """An empty database, schema in place."""
    url = postgres.new_database(f"city{next(_numbers)}")
    migrate(url, "head", "lisbon")
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind, schema in place."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/city.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def start(database_url: str) -> Iterator[Callable[..., RunningCity]]:
    """Start a city on the database with some settings; several one after another if need be."""
    running: list[RunningCity] = []

    def start_(runtime: Runtime | None = None, **sections: Any) -> RunningCity:
        for city in running:
            city.stop()
        running.clear()
        settings: Settings = settings_for(database_url, **sections)
        running.append(RunningCity(settings, runtime=runtime))
        return running[0]

    yield start_
    for city in running:
        city.stop()


@pytest.fixture
def city(start: Callable[..., RunningCity]) -> RunningCity:
    return start()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if CHROMIUM is None:
        terminalreporter.write_line(HOW_TO_GET_IT, yellow=True, bold=True)
    if COMPILER is None:
        terminalreporter.write_line(HOW_TO_GET_A_COMPILER, yellow=True, bold=True)
    if KUBECTL is None or not HAS_SCHEMAS:
        terminalreporter.write_line(HOW_TO_GET_KUBECTL, yellow=True, bold=True)
    if NODE is None:
        terminalreporter.write_line(HOW_TO_GET_NODE, yellow=True, bold=True)
    if ANALYZE is None:
        terminalreporter.write_line(HOW_TO_GET_SYSTEMD, yellow=True, bold=True)
    if previous_commit() is None:
        terminalreporter.write_line(HOW_TO_GET_THE_HISTORY, yellow=True, bold=True)
