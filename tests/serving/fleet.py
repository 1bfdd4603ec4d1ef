"""Replicas on fixed ports, callers that go on to another one when a call fails, and what must be stored."""

import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import httpx
import sqlalchemy as sa

from pricemesh.serving.supervisor import reserve_port
from tests.running import CONTEXT, IMPATIENT, MAX_WAIT_SECONDS, CityProcess

REPLICAS = 3
SECTIONS = {**IMPATIENT, "database": {**IMPATIENT["database"], "replicas": True}}


class Fleet:
    """Replicas on fixed ports, and callers that go on to another one when a call fails."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self._folder = url, folder
        self._reserved = [reserve_port("127.0.0.1", 0) for _ in range(REPLICAS)]
        self.ports = [each.getsockname()[1] for each in self._reserved]
        self.replicas = [self.start(i) for i in range(REPLICAS)]
        self.priced: dict[str, int] = {}  # acknowledged: arm by id
        self.told: dict[str, tuple[float, int]] = {}  # acknowledged: reward and version by id
        self.done = threading.Event()

    def start(self, i: int) -> CityProcess:
        return CityProcess(self._folder / str(i), self.url, self.ports[i], share_port=True, **SECTIONS)

    def kill_and_restart(self, i: int) -> None:
        self.replicas[i].kill()
        self.replicas[i] = self.start(i)

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
        self.done.set()  # callers of a test that failed end, too
        for replica in self.replicas:
            replica.stop()
        for each in self._reserved:
            each.close()


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
