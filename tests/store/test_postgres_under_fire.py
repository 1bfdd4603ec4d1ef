"""Postgres is killed, drops its connections and is stopped under load: nothing acknowledged is lost, and
prices come back with it.

Run by `make soak`. The times are printed, not asserted.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from pricemesh.store.migration import migrate
from tests.postgres import Postgres
from tests.running import IMPATIENT, CityProcess
from tests.store.test_crash import Answers, check

CALLERS = 4
RETRY_SECONDS = 0.02
MAX_OUTAGE_SECONDS = 60
STOPPED_SECONDS = 20
PRICES_BEFORE_A_BLOW = 100


class Fire:
    """Callers that repeat every call until it succeeds, and what they saw."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.answers = Answers()
        self.kinds: Counter[str] = Counter()  # of refusals
        self.slowest_seconds: dict[str, float] = {}  # by path
        self._priced = threading.Condition()
        self._prices = 0
        self._last_price_at = 0.0  # monotonic
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(i,)) for i in range(CALLERS)]
        self._threads.append(threading.Thread(target=self._watch))

    def __enter__(self) -> "Fire":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _call(self, caller: int) -> None:
        rng = Random(caller)
        with httpx.Client(base_url=self._url, timeout=30) as http:
            number = 0
            while not self._stop.is_set():
                number += 1
                id_ = f"c{caller}-{number}"
                body = {
                    "shared": {"demand": rng.random(), "rain": rng.random(), "event": 0.0},
                    "local": {"tourists": rng.random(), "strike": 0.0},
                }
                self._ask(http, "/price", body)  # nobody can ask for this one again
                if self._repeat(http, "/price", body | {"decision_id": id_}) is None:
                    return
                reward = rng.gauss(0, 1)
                receipt = self._repeat(http, "/feedback", {"decision_id": id_, "reward": reward})
                if receipt is None:
                    return
                self.answers.feedback[id_] = (reward, receipt["version"])

    def _repeat(self, http: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Until it succeeds; None at the end of the test."""
        while True:
            if (answer := self._ask(http, path, body)) is not None:
                return answer
            if self._stop.wait(RETRY_SECONDS):
                return None

    def _ask(self, http: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        response = self._timed(path, lambda: http.post(path, json=body))
        answer: dict[str, Any] = response.json()
        if response.status_code != 200:
            assert response.status_code == 503, response.text
            self.kinds[answer["type"].removeprefix("urn:pricemesh:problem:")] += 1
            return None
        if path == "/price":
            self.answers.decisions[answer["decision_id"]] = answer["arm"]
            with self._priced:
                self._prices += 1
                self._last_price_at = time.monotonic()
                self._priced.notify_all()
        return answer

    def _timed(self, path: str, call: Callable[[], httpx.Response]) -> httpx.Response:
        started = time.monotonic()
        response = call()
        seconds = time.monotonic() - started
        self.slowest_seconds[path] = max(self.slowest_seconds.get(path, 0.0), seconds)
        return response

    def _watch(self) -> None:
        """Readiness and a read, all the time."""
        with httpx.Client(base_url=self._url, timeout=30) as http:
            while not self._stop.wait(RETRY_SECONDS):
                self._timed("/readyz", lambda: http.get("/readyz"))
                self._timed("/state", lambda: http.get("/state"))

    def burn(self) -> None:
        """Until there were some more prices."""
        with self._priced:
            enough = self._prices + PRICES_BEFORE_A_BLOW
            assert self._priced.wait_for(lambda: self._prices >= enough, MAX_OUTAGE_SECONDS)

    def seconds_until_a_price(self, since: float) -> float:
        with self._priced:
            assert self._priced.wait_for(lambda: self._last_price_at > since, MAX_OUTAGE_SECONDS)
            return self._last_price_at - since


@pytest.fixture
def server() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.resume()
    server.stop()


def kill(server: Postgres) -> None:
    server.kill()
    server.start()


def stop(server: Postgres) -> None:
    server.pause()
    threading.Event().wait(STOPPED_SECONDS)
    server.resume()


@pytest.mark.slow
def test_nothing_is_lost_and_prices_come_back_with_the_server(server: Postgres, tmp_path: Path) -> None:
    url = server.new_database("fire")
    migrate(url, "head", "lisbon")
    city = CityProcess(tmp_path, url, **IMPATIENT)
    blows = {
        "killed": (10, kill),
        "connections severed": (50, Postgres.end_connections),
        f"stopped for {STOPPED_SECONDS} s": (1, stop),
    }
    with Fire(city.url) as fire:
        for name, (count, strike) in blows.items():
            outages = []
            for _ in range(count):
                fire.burn()
                strike(server)
                outages.append(fire.seconds_until_a_price(time.monotonic()))
            slowest = ", ".join(f"{path} {seconds:.2f} s" for path, seconds in fire.slowest_seconds.items())
            print(f"{name} × {count}: prices back {max(outages):.3f} s after it at most; slowest: {slowest}")
    answers = fire.answers
    check(city.url, url, answers, "probe")
    print(
        f"acknowledged: {len(answers.decisions)} decisions, {len(answers.feedback)} feedback, 0 lost; "
        f"503 by kind: {dict(fire.kinds)}"
    )
    assert city.stop() == 0
