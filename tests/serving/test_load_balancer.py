"""Replicas behind HAProxy, with the configuration that `deploy/` has: a caller sees none of what happens to
them."""

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import httpx
import pytest

from pricemesh.lab.demo import free_ports
from tests.running import CONTEXT, until
from tests.serving.fleet import REPLICAS, Fleet, check_rows

HAPROXY = shutil.which("haproxy")
CONFIGURATION = Path(__file__).parents[2] / "deploy" / "haproxy"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HAPROXY is None, reason="there is no haproxy: apt-get install haproxy"),
]


@pytest.fixture
def address(fleet: Fleet, tmp_path: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    text = (CONFIGURATION / "loopback.cfg").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    for i in range(REPLICAS):
        text = text.replace(f"127.0.0.1:{8001 + i}", f"127.0.0.1:{fleet.ports[i]}")
    (tmp_path / "replicas.cfg").write_text(text)
    assert HAPROXY is not None
    files = [CONFIGURATION / "haproxy.cfg", tmp_path / "replicas.cfg"]
    process = subprocess.Popen([HAPROXY, *(argument for file in files for argument in ("-f", str(file)))])
    url = f"http://127.0.0.1:{port}"

    def is_up() -> bool:
        try:
            return httpx.get(f"{url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    until(is_up)
    yield url
    process.terminate()
    process.wait()


class Callers:
    """They send each call once: the load balancer is to repeat what fails."""

    def __init__(self, fleet: Fleet, address: str) -> None:
        self._fleet, self._address = fleet, address
        self.failed: list[str] = []
        self.calls = 0
        self._threads = [threading.Thread(target=self._drive, args=(place,)) for place in range(3)]
        for thread in self._threads:
            thread.start()

    def _drive(self, place: int) -> None:
        rng, count = Random(place), 0
        with httpx.Client(base_url=self._address, timeout=20.0) as http:
            while not self._fleet.done.is_set():
                count += 1
                id_, reward = f"{place}-{count}", float(rng.randrange(2))
                price = self._call(http, "/price", CONTEXT | {"decision_id": id_})
                told = self._call(http, "/feedback", {"decision_id": id_, "reward": reward})
                if price is not None and told is not None:
                    self._fleet.priced[id_] = price.json()["arm"]
                    self._fleet.told[id_] = reward, told.json()["version"]

    def _call(self, http: httpx.Client, path: str, body: dict[str, object]) -> httpx.Response | None:
        self.calls += 1
        try:
            answer = http.post(path, json=body)
        except httpx.TransportError as fault:
            self.failed.append(f"{path}: {fault!r}")
            return None
        if answer.status_code != 200:
            self.failed.append(f"{path}: {answer.status_code} {answer.text}")
            return None
        return answer

    def stop(self) -> None:
        self._fleet.done.set()
        for thread in self._threads:
            thread.join()


def test_a_rolling_restart_fails_no_call(fleet: Fleet, address: str) -> None:
    callers = Callers(fleet, address)
    for _ in range(2):
        for i in range(REPLICAS):
            before = len(fleet.told)
            until(lambda before=before: len(fleet.told) > before + 20)  # type: ignore[misc]
            fleet.replicas[i].stop()
            fleet.replicas[i] = fleet.start(i)
    callers.stop()
    assert callers.failed == []
    check_rows(fleet)


def test_publishers_that_are_killed_fail_no_price_and_are_replaced(fleet: Fleet, address: str) -> None:
    callers = Callers(fleet, address)
    seconds = []
    for _ in range(20):
        (publisher,) = until_one(fleet)
        fleet.replicas[publisher].kill()
        began_at = time.monotonic()
        until(lambda publisher=publisher: set(fleet.publishers()) - {publisher})  # type: ignore[misc]
        seconds.append(time.monotonic() - began_at)
        fleet.replicas[publisher] = fleet.start(publisher)
    callers.stop()
    print(f"{callers.calls} calls; a publisher again after {min(seconds):.2f} to {max(seconds):.2f} s")
    assert callers.failed == []
    check_rows(fleet)


def until_one(fleet: Fleet) -> list[int]:
    until(lambda: len(fleet.publishers()) == 1)
    return fleet.publishers()
