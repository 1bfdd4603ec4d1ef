"""Replicas that stand still (SIGSTOP), also in the middle of a transaction: the others go on."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from tests.running import CONTEXT, IMPATIENT, CityProcess, until
from tests.serving.fleet import REPLICAS, Fleet, check_rows

STOP_SECONDS = 30.0
REPLICA: dict[str, Any] = {**IMPATIENT, "database": {**IMPATIENT["database"], "replicas": True}}
# The one to be stopped waits for a lock of the test for as long as the test needs to see it wait.
PATIENT_REPLICA: dict[str, Any] = {
    "database": {"timeout_seconds": 30.0, "replicas": True},
    "limits": {"max_wait_seconds": 60.0},
}
_WAITING = sa.text(
    "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
_STATE = sa.text("SELECT state FROM pg_stat_activity WHERE pid = :pid")


class Transaction(NamedTuple):
    """One of several statements: what its last one before COMMIT waits for, and how it is begun."""

    name: str
    lock: str
    sections: dict[str, Any]
    pin: bool = False


TRANSACTIONS = [
    Transaction("pin", "SELECT * FROM shared_log FOR UPDATE", {}, pin=True),
    Transaction(
        "window",
        "SELECT * FROM city FOR UPDATE",
        {
            "feedback": {"window_seconds": 1.0, "default_reward": 0.0},
            "clock": {"steady_seconds": 0.0},
        },
    ),
]


@contextmanager
def stopped(city: CityProcess) -> Iterator[None]:
    os.kill(city.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(city.pid, signal.SIGCONT)


def ask(city: CityProcess, path: str, body: dict[str, object]) -> bool:
    try:
        return httpx.post(f"{city.url}{path}", json=body, timeout=10.0).status_code == 200
    except httpx.TransportError:
        return False


def waiting_session(connection: Connection) -> int:
    found: list[int] = []

    def is_there() -> bool:
        found[:] = connection.scalars(_WAITING).all()
        connection.rollback()
        return bool(found)

    until(is_there)
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("transaction", TRANSACTIONS, ids=lambda it: it.name)
def test_feedback_goes_on_where_another_replica_is_stopped_in_mid_transaction(
    postgres_url: str, tmp_path: Path, transaction: Transaction
) -> None:
    """The test has the lock that the last statement before COMMIT waits for. It stops the replica while this
    waits, then gives the lock back: the transaction stays open, with the row that feedback needs."""
    first = CityProcess(tmp_path / "first", postgres_url, **PATIENT_REPLICA, **transaction.sections)
    second = CityProcess(tmp_path / "second", postgres_url, **REPLICA)
    pinning = threading.Thread(target=ask, args=(first, "/admin/pin", {"price": 11.0, "reason": "test"}))
    engine = sa.create_engine(postgres_url)
    try:
        with engine.connect() as observer, engine.connect() as blocker:
            blocker.execute(sa.text(transaction.lock))
            assert ask(second, "/price", {**CONTEXT, "decision_id": "early"})
            if transaction.pin:
                pinning.start()
            pid = waiting_session(observer)
            with stopped(first):
                began_at = time.monotonic()
                blocker.rollback()
                until(lambda: state_of(observer, pid) == "idle in transaction")
                assert ask(second, "/price", {**CONTEXT, "decision_id": "late"})
                feedback = {"decision_id": "late", "reward": 1.0}
                until(lambda: ask(second, "/feedback", feedback))
                print(f"{transaction.name}: feedback {time.monotonic() - began_at:.2f} s after the stop")
                until(lambda: state_of(observer, pid) is None)  # the server has ended it
        until(lambda: ask(first, "/feedback", feedback))
        until(lambda: len({read_version(city.url) for city in (first, second)}) == 1)
        if transaction.pin:
            pinning.join()
    finally:
        engine.dispose()
        for city in (first, second):
            city.kill()


def state_of(connection: Connection, pid: int) -> str | None:
    state: str | None = connection.scalar(_STATE, {"pid": pid})
    connection.rollback()
    return state


def read_version(url: str) -> int:
    version: int = httpx.get(f"{url}/state").json()["version"]
    return version


@pytest.mark.slow
def test_a_publisher_stopped_for_half_a_minute_holds_nobody_up(fleet: Fleet) -> None:
    (publisher,) = fleet.publishers()
    others = [i for i in range(REPLICAS) if i != publisher]
    slowest, count = 0.0, 0
    with httpx.Client(timeout=5.0) as http:

        def trade(place: int) -> None:
            nonlocal slowest, count
            address, id_ = f"http://127.0.0.1:{fleet.ports[place]}", f"d{count}"
            asked_at, count = time.monotonic(), count + 1
            price = http.post(f"{address}/price", json={**CONTEXT, "decision_id": id_})
            told = http.post(f"{address}/feedback", json={"decision_id": id_, "reward": 1.0})
            assert (price.status_code, told.status_code) == (200, 200), told.text
            slowest = max(slowest, time.monotonic() - asked_at)
            fleet.priced[id_], fleet.told[id_] = price.json()["arm"], (1.0, told.json()["version"])

        for i in range(REPLICAS):
            trade(i)
        with stopped(fleet.replicas[publisher]):
            began_at = time.monotonic()
            while time.monotonic() < began_at + STOP_SECONDS:
                for i in others:
                    trade(i)
            assert len(fleet.publishers()) == 1
        print(f"{count} prices with feedback; one took {slowest:.3f} s at most")
        until(lambda: len(fleet.publishers()) == 1 and publisher not in fleet.publishers())
        trade(publisher)
    newest = check_rows(fleet)
    assert newest == count
    until(lambda: [state["version"] for state in fleet.states()] == [newest] * REPLICAS)
