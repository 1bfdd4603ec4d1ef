"""A database that hangs holds up no answer: no price while a commit hangs, nothing while reads hang."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from pricemesh.runtime import Disk, Runtime
from pricemesh.store.migration import migrate
from tests.postgres import Postgres
from tests.running import CONTEXT, IMPATIENT, MAX_WAIT_SECONDS, RunningCity, settings_for, until

LONG_READS = 40  # more than any pool of threads that other requests might share has on a small machine
WAITING_FOR_A_LOCK = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")


class HangingDisk(Disk):
    """Every commit hangs between `hang` and `go_on`."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()
        self.hang, self.go_on = self._free.clear, self._free.set

    def before_commit(self) -> None:
        self._free.wait()


@pytest.fixture
def disk() -> Iterator[HangingDisk]:
    disk = HangingDisk()
    yield disk
    disk.go_on()


@pytest.mark.parametrize("fast_path", [True, False], ids=["fast path", "ASGI"])
def test_callers_are_answered_while_a_commit_hangs(
    tmp_path: Path, disk: HangingDisk, fast_path: bool
) -> None:
    settings = settings_for(f"sqlite:///{tmp_path}/city.db", server={"fast_path": fast_path}, **IMPATIENT)
    city = RunningCity(settings, runtime=Runtime(disk=disk))
    try:
        city.price()
        disk.hang()
        answers = [city.http.post("/price", json=CONTEXT) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [503] * 3
        assert {answer.headers["retry-after"] for answer in answers} == {"1"}
        kinds = [answer.json()["type"].rpartition(":")[2] for answer in answers]
        assert kinds == ["in-doubt", "overloaded", "overloaded"]
        until(lambda: city.http.get("/readyz").status_code == 503)
        assert city.http.get("/healthz").status_code == 200
        disk.go_on()
        until(lambda: city.http.post("/price", json=CONTEXT).status_code == 200)
        assert city.http.get("/readyz").status_code == 200
    finally:
        disk.go_on()
        city.stop()


def test_long_reads_that_hang_delay_neither_prices_nor_readiness(postgres: Postgres) -> None:
    """Pages of decisions read the table of feedback, which another program locks. Prices do not."""
    url = postgres.new_database(f"reads{time.time_ns()}")
    migrate(url, "head", "lisbon")
    city = RunningCity(settings_for(url, **IMPATIENT))
    engine = sa.create_engine(url)
    host, _, port = city.url.removeprefix("http://").partition(":")
    with ExitStack() as stack:
        stack.callback(city.stop)
        stack.callback(engine.dispose)
        city.price()
        readers = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=MAX_WAIT_SECONDS))
            for _ in range(LONG_READS)
        ]
        with engine.begin() as connection:
            connection.execute(sa.text("LOCK TABLE feedback IN ACCESS EXCLUSIVE MODE"))
            for reader in readers:
                reader.sendall(f"GET /decisions?arm=1 HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            until(lambda: connection.scalar(WAITING_FOR_A_LOCK) >= 2)
            for _ in range(3):
                assert city.http.get("/readyz").status_code == 200
                assert city.http.post("/price", json=CONTEXT).status_code == 200
        assert {reader.recv(12) for reader in readers} <= {b"HTTP/1.1 200", b"HTTP/1.1 503"}
        assert city.http.get("/decisions").status_code == 200
