"""Replicas that are killed and stopped under load: nothing acknowledged is lost, nothing is learned twice."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest
import sqlalchemy as sa

from pricemesh.serving.supervisor import reserve_port
from pricemesh.store.migration import migrate
from tests.postgres import Postgres
from tests.running import CONTEXT, IMPATIENT, CityProcess, RunningCity, settings_for

REPLICAS = 3
MAX_WAIT_SECONDS = 60.0
SECTIONS = {**IMPATIENT, "database": {**IMPATIENT["database"], "replicas": True}}


class Fleet:
    """Replicas on fixed ports, and callers that go on to another one when a call fails."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self._folder = url, folder
        self._reserved = [reserve_port("127.0.0.1", 0) for _ in range(REPLICAS)]
        self.ports = [each.getsockname()[1] for each in self._reserved]
        self.replicas = [self._start(i) for i in range(REPLICAS)]
        self.priced: dict[str, int] = {}  # acknowledged: arm by id
        self.told: dict[str, tuple[float, int]] = {}  # acknowledged: reward and version by id
        self.done = threading.Event()

    def _start(self, i: int) -> CityProcess:
        return CityProcess(self._folder / str(i), self.url, self.ports[i], share_port=True, **SECTIONS)

    def kill_and_restart(self, i: int) -> None:
        self.replicas[i].kill()
        self.replicas[i] = self._start(i)

    def address(self, rng: Random) -> str:
        return f"http://127.0.0.1:{self.ports[rng.randrange(REPLICAS)]}"

    def drive(self, place: int) -> None:
        """Prices and feedback, some of them again at another replica; a call is repeated until it is
        answered."""
        rng, count = Random(place), 0
        with httpx.Client(timeout=5.0) as http:
            while not self.done.is_set():
                count += 1
                id_, reward = f"{place}-{count}", float(rng.randrange(2))
                price = self._call(http, rng, "/price", CONTEXT | {"decision_id": id_})
                told = self._call(http, rng, "/feedback", {"decision_id": id_, "reward": reward})
                if rng.random() < 0.2:
                    assert (
                        self._call(http, rng, "/price", CONTEXT | {"decision_id": id_})["arm"] == price["arm"]
                    )
                if rng.random() < 0.2:
                    again = self._call(http, rng, "/feedback", {"decision_id": id_, "reward": reward})
                    assert again["version"] == told["version"]
                self.priced[id_], self.told[id_] = price["arm"], (reward, told["version"])

    def _call(self, http: httpx.Client, rng: Random, path: str, body: dict[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while time.monotonic() < deadline:
            try:
                answer = http.post(self.address(rng) + path, json=body)
            except httpx.TransportError:
                continue
            if answer.status_code == 503:
                continue
            assert answer.status_code == 200, answer.text
            content: dict[str, Any] = answer.json()
            return content
        raise AssertionError(f"no replica answered {path}")

    def states(self) -> list[dict[str, Any]]:
        return [httpx.get(f"http://127.0.0.1:{port}/state").json() for port in self.ports]

    def publishers(self) -> list[int]:
        found = []
        for i, port in enumerate(self.ports):
            try:
                state = httpx.get(f"http://127.0.0.1:{port}/state", timeout=1.0).json()
            except httpx.TransportError:
                continue
            if state["replica"]["publisher"]:
                found.append(i)
        return found

    def stop(self) -> None:
        for replica in self.replicas:
            replica.stop()
        for each in self._reserved:
            each.close()


@pytest.fixture
def fleet(postgres: Postgres, tmp_path: Path) -> Iterator[Fleet]:
    url = postgres.new_database(f"fire{time.time_ns()}")
    migrate(url, "head", "lisbon")
    fleet = Fleet(url, tmp_path)
    with ExitStack() as stack:
        stack.callback(fleet.stop)
        yield fleet


def until(condition: Callable[[], Any]) -> float:
    began_at = time.monotonic()
    while not condition():
        assert time.monotonic() < began_at + MAX_WAIT_SECONDS
        time.sleep(0.02)
    return time.monotonic() - began_at


def check_rows(fleet: Fleet) -> int:
    """What was acknowledged is in the rows, versions are dense, each decision has one feedback at most; the
    newest version."""
    engine = sa.create_engine(fleet.url)
    with engine.connect() as connection:
        query = sa.text(
            "SELECT id, arm, reward, version FROM decisions JOIN feedback ON decision = decisions.number"
        )
        rows = {id_: (arm, reward, version) for id_, arm, reward, version in connection.execute(query)}
        versions = sorted(connection.scalars(sa.text("SELECT version FROM feedback")))
    engine.dispose()
    assert versions == list(range(1, len(versions) + 1))
    for id_, arm in fleet.priced.items():
        assert rows[id_] == (arm, *fleet.told[id_])
    return len(versions)


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_replicas_killed_under_load_lose_nothing(fleet: Fleet, kills: int) -> None:
    rng = Random(7)
    threads = [threading.Thread(target=fleet.drive, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(kills):
        before = len(fleet.told)
        until(lambda before=before: len(fleet.told) > before + 5)  # type: ignore[misc]
        fleet.kill_and_restart(rng.randrange(REPLICAS))
    fleet.done.set()
    for thread in threads:
        thread.join()
    newest = check_rows(fleet)
    until(lambda: [state["version"] for state in fleet.states()] == [newest] * REPLICAS)
    counts = [[arm["count"] for arm in state["arms"]] for state in fleet.states()]
    assert counts == [counts[0]] * REPLICAS
    for replica in fleet.replicas:
        replica.kill()
    single = RunningCity(settings_for(fleet.url))
    assert single.pricing.version == newest
    assert single.pricing.live.lesson_counts.tolist() == counts[0]
    learner = single.pricing.learner
    np.testing.assert_allclose(learner.state()["pending_count"], 0.0, atol=1e-9)
    single.stop()


def test_a_publisher_that_is_stopped_is_replaced_and_the_others_go_on(fleet: Fleet) -> None:
    (publisher,) = fleet.publishers()
    os.kill(fleet.replicas[publisher].pid, signal.SIGSTOP)
    began_at, slowest = time.monotonic(), 0.0
    try:
        others = [i for i in range(REPLICAS) if i != publisher]
        with httpx.Client(timeout=5.0) as http:
            for i in range(20):
                address = f"http://127.0.0.1:{fleet.ports[others[i % 2]]}"
                asked_at = time.monotonic()
                price = http.post(f"{address}/price", json=CONTEXT).json()
                told = {"decision_id": price["decision_id"], "reward": 1.0}
                assert http.post(f"{address}/feedback", json=told).status_code == 200
                slowest = max(slowest, time.monotonic() - asked_at)
        until(lambda: any(i in fleet.publishers() for i in others))
        print(f"a price with its feedback took {slowest:.3f} s at most")
        print(f"another published {time.monotonic() - began_at:.2f} s after the stop")
    finally:
        os.kill(fleet.replicas[publisher].pid, signal.SIGCONT)
    until(lambda: len(fleet.publishers()) == 1 and publisher not in fleet.publishers())
