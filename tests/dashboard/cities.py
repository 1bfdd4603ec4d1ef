"""Three cities as processes that gossip, with a few customers."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from pricemesh.lab.demo import free_ports
from tests.city.test_reshaping import reshape
from tests.running import CityProcess, settings_for

NAMES = ("lisbon", "porto", "faro")
GOSSIP = {"interval_seconds": 0.2, "timeout_seconds": 1.0}


def random_context(rng: random.Random) -> dict[str, Any]:
    return {
        "shared": {"demand": rng.random(), "rain": rng.random(), "event": rng.random()},
        "local": {"tourists": rng.random(), "strike": 0.0},
    }


class Mesh:
    def __init__(self, folder: Path, **sections: Any) -> None:
        self._folder = folder
        self._sections = sections
        self._sells = sections.get("reward", {}).get("kind") == "purchase"
        self._ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self._cities: dict[str, CityProcess] = {}
        self._http = httpx.Client(timeout=20)
        self._rng = random.Random(5)
        for name in NAMES:
            self.start(name)
        self.url = self.url_of("lisbon")

    def url_of(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    def start(self, name: str, **own: Any) -> None:
        peers = [self.url_of(other) for other in NAMES if other != name]
        self._cities[name] = CityProcess(
            self._folder / name,
            f"sqlite:///{self._folder}/{name}.db",
            self._ports[name],
            city=name,
            gossip=GOSSIP | {"peers": peers},
            guardrails={"floor": 8.5},
            **{**self._sections, **own},
        )

    def change_ladder(self, name: str, prices: list[float]) -> None:
        """Stop, reshape, start."""
        self._cities.pop(name).stop()
        url = f"sqlite:///{self._folder}/{name}.db"
        reshape(settings_for(url, city=name, arms={"prices": prices}, **self._sections), {}, {})
        self.start(name, arms={"prices": prices})

    def kill(self, name: str) -> None:
        self._cities.pop(name).kill()

    def learn(self, rounds: int) -> None:
        """Customers in every city; then wait until lisbon has all their letters."""
        for name in self._cities:
            for _ in range(rounds):
                self.decide(name)
        versions = {name: self.state(name)["version"] for name in NAMES[1:]}
        wait_until(lambda: {peer["origin"]: peer["version"] for peer in self.state()["peers"]} == versions)

    def decide(self, name: str = "lisbon", **more: Any) -> dict[str, Any]:
        """A decision and its feedback; in cities of purchases the customer buys more often at a low price."""
        decision = self.post("/price", random_context(self._rng) | more, name)
        luck = self._rng.random()
        amount = {"sold": int(luck < 4 / decision["price"])} if self._sells else {"reward": luck}
        self.post("/feedback", {"decision_id": decision["decision_id"], **amount}, name)
        return decision

    def post(self, path: str, body: Any, name: str = "lisbon") -> dict[str, Any]:
        answer = self._http.post(self.url_of(name) + path, json=body)
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()
        return content

    def delete(self, path: str) -> None:
        assert self._http.delete(self.url + path).status_code == 200

    def get(self, path: str, name: str = "lisbon") -> dict[str, Any]:
        content: dict[str, Any] = self._http.get(self.url_of(name) + path).json()
        return content

    def state(self, name: str = "lisbon") -> dict[str, Any]:
        return self.get("/state", name)

    def stop(self) -> None:
        self._http.close()
        for city in self._cities.values():
            city.ask_to_stop()
        for city in self._cities.values():
            city.stop()


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not true after {seconds:g} seconds"
        time.sleep(0.05)
