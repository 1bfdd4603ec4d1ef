"""Hostile traffic leaves a city as large as it was: refusals, junk letters, invented names, aborted calls."""

import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import httpx
import numpy as np
import pytest

from pricemesh.core.summary import Summary
from pricemesh.gossip.letter import Seal
from pricemesh.gossip.message import Message, state_of
from pricemesh.gossip.signing import HEADER, Keyring
from pricemesh.http.keys import new_key, write_keys
from tests.http.test_refused_bodies import memory_kb
from tests.running import CONTEXT, CityProcess, settings_for

SECRET = "k1:" + "s" * 43
MAX_GROWTH = 1.2


class Attacker:
    """Holds the mesh's secret and no API key."""

    def __init__(self, city: CityProcess, rng: Random) -> None:
        self._host, _, port = city.url.removeprefix("http://").partition(":")
        self._port = int(port)
        self._rng = rng
        self._fingerprint = settings_for("sqlite:///unused.db").fingerprint
        self._seal = Seal(rng.randbytes(32))
        self.answers: Counter[str] = Counter()

    def attack(self) -> None:
        kinds: list[Callable[[], bytes]] = [
            self._without_key,
            self._unknown_path,
            self._aborted_body,
            self._unsigned_gossip,
            self._invented_city,
            self._junk_letters,
            self._no_http,
        ]
        data = self._rng.choice(kinds)()
        with suppress(OSError), socket.create_connection((self._host, self._port), timeout=10) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            self.answers[connection.recv(16)[9:12].decode("latin-1") or "closed"] += 1

    def _request(
        self, method: str, path: str, body: bytes, headers: dict[str, str], length: int = -1
    ) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        count = len(body) if length < 0 else length
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{lines}content-length: {count}\r\n\r\n"
        return head.encode("latin-1") + body

    def _text(self, longest: int) -> str:
        return self._rng.randbytes(self._rng.randrange(1, longest)).hex()

    def _without_key(self) -> bytes:
        headers = {"authorization": f"Bearer pm_{self._text(30)}", "x-request-id": self._text(200)}
        path = self._rng.choice(("/price", "/feedback/batch", "/state", "/admin/pin"))
        return self._request("POST", path, self._rng.randbytes(self._rng.randrange(4000)), headers)

    def _unknown_path(self) -> bytes:
        return self._request("GET", f"/{self._text(500)}?{self._text(500)}", b"", {})

    def _aborted_body(self) -> bytes:
        return self._request("POST", "/price", b"{" * self._rng.randrange(60_000), {}, length=3_000_000)

    def _unsigned_gossip(self) -> bytes:
        return self._request("POST", "/gossip", self._rng.randbytes(2000), {HEADER: self._text(300)})

    def _gossip(self, sender: str, wires: tuple[bytes, ...]) -> bytes:
        digest = {f"{self._text(40)}": (1, 5) for _ in range(20)}
        body = Message(
            sender, self._fingerprint, digest, wires, state=state_of(self._fingerprint, digest)
        ).to_bytes()
        keyring = Keyring(sender, [SECRET], self._rng.randbytes, time.monotonic)
        return self._request("POST", "/gossip", body, {HEADER: keyring.sign(body, time.time(), "lisbon")})

    def _invented_city(self) -> bytes:
        name = self._text(40)
        letter = self._seal.close(Summary.of(name, 1, 0, self._fingerprint, np.zeros(60)))
        return self._gossip(name, (letter.wire,))

    def _junk_letters(self) -> bytes:
        return self._gossip("mallory", tuple(self._rng.randbytes(300) for _ in range(12)))

    def _no_http(self) -> bytes:
        return self._rng.randbytes(self._rng.randrange(1, 3000))


def check(tmp_path: Path, *, warm_up: int, attacks: int) -> None:
    presented, key = new_key("price,read")
    write_keys(tmp_path / "keys.toml", {key.id: key})
    city = CityProcess(
        tmp_path,
        f"sqlite:///{tmp_path}/city.db",
        security={"api_keys_file": str(tmp_path / "keys.toml")},
        gossip={"secrets": [SECRET], "peers": ["http://127.0.0.1:1"]},
    )
    headers = {"authorization": f"Bearer {presented}"}
    try:
        attacker = Attacker(city, Random(5))
        for _ in range(warm_up):
            attacker.attack()
        sizes = {"before": memory_kb(city)}
        texts = {"before": len(httpx.get(f"{city.url}/state", headers=headers).content)}
        for _ in range(attacks):
            attacker.attack()
        sizes["after"] = memory_kb(city)
        texts["after"] = len(httpx.get(f"{city.url}/state", headers=headers).content)
        print(f"{attacks} attacks, answers {dict(attacker.answers)}; memory {sizes} kB; /state {texts} bytes")
        assert sizes["after"] <= MAX_GROWTH * sizes["before"]
        assert httpx.post(f"{city.url}/price", json=CONTEXT, headers=headers).status_code == 200
        assert attacker.answers["401"] > attacks // 20
    finally:
        city.stop()


def test_hostile_traffic_leaves_a_city_as_large_as_it_was(tmp_path: Path) -> None:
    check(tmp_path, warm_up=800, attacks=800)


@pytest.mark.slow
def test_an_hour_of_hostile_traffic_leaves_a_city_as_large_as_it_was(tmp_path: Path) -> None:
    """Thirty attacks a second for an hour."""
    check(tmp_path, warm_up=5_000, attacks=108_000)
