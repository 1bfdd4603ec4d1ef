"""`pricemesh serve --replicas N`: one parent, N processes on one port."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pricemesh.city.configuration import as_variables
from tests.postgres import Postgres
from tests.running import CONFIG, CONTEXT, MAX_WAIT_SECONDS, until


class Parent:
    """Configured by a file, or else by variables."""

    def __init__(
        self, folder: Path, database: dict[str, object], replicas: int, config: Path | None = None
    ) -> None:
        self._log = folder / "log.txt"
        options = ["--port", "0", "--replicas", str(replicas)]
        variables = as_variables({**CONFIG, "database": database})
        if config is not None:
            options, variables = [*options, "--config", str(config)], {}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pricemesh", "serve", *options],
                stderr=log,
                cwd=folder,
                env={**os.environ, **variables},
            )

    def lines(self, message: str) -> list[dict[str, object]]:
        lines = [line for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [line for line in map(json.loads, lines) if line["message"] == message]

    def wait_for(self, message: str, count: int) -> list[dict[str, object]]:
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while len(found := self.lines(message)) < count:
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            assert self.process.poll() is None, self._log.read_text()[-3000:]
            time.sleep(0.02)
        return found

    def children(self) -> set[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return {int(pid) for pid in path.read_text().split()}

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def parent(postgres_url: str, tmp_path: Path) -> Iterator[Parent]:
    parent = Parent(tmp_path, {"url": postgres_url}, 2)
    yield parent
    parent.process.kill()
    parent.process.wait()


def test_a_replica_that_dies_is_started_again_and_all_stop_with_the_parent(parent: Parent) -> None:
    address = parent.wait_for("replicas", 1)[0]["address"]
    parent.wait_for("serving", 2)
    before = parent.children()
    assert len(before) == 2
    assert httpx.post(f"{address}/price", json=CONTEXT).status_code == 200
    os.kill(min(before), signal.SIGKILL)
    parent.wait_for("serving", 3)
    assert parent.lines("a replica ended and is started again")[0]["code"] == -signal.SIGKILL
    assert len(parent.children() - before) == 1
    assert httpx.post(f"{address}/price", json=CONTEXT).status_code == 200
    parent.process.terminate()
    assert parent.process.wait(MAX_WAIT_SECONDS) == 0
    assert len(parent.lines("stopped")) == 2


def test_replicas_end_when_their_parent_is_killed(parent: Parent) -> None:
    parent.wait_for("serving", 2)
    parent.process.kill()
    until(lambda: len(parent.lines("stopped")) == 2)


def test_a_configuration_that_cannot_have_replicas_is_told_in_one_line(tmp_path: Path) -> None:
    parent = Parent(tmp_path, {"url": "sqlite:///city.db"}, 2)
    assert parent.process.wait(MAX_WAIT_SECONDS) == 2
    assert re.search("replicas need Postgres", parent.log)


def test_replicas_that_cannot_start_end_the_parent(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.new_database(f"parent{time.time_ns()}")  # without tables
    parent = Parent(tmp_path, {"url": url}, 2)
    assert parent.process.wait(MAX_WAIT_SECONDS) == 2
    assert "pricemesh migrate" in parent.log
