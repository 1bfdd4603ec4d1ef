"""Cities that gossip over real HTTP: what their tests share."""

import secrets as entropy
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import httpx

from pricemesh.core.summary import Summary
from pricemesh.gossip.letter import Seal
from pricemesh.gossip.message import Message
from pricemesh.gossip.signing import HEADER, Keyring
from tests.running import RunningCity

SECRETS = ("k1:" + "s" * 40,)
NAMES = ("faro", "lisbon", "porto")

Start = Callable[..., list[RunningCity]]


def context(rng: Random) -> dict[str, dict[str, float]]:
    return {
        "shared": {"demand": rng.random(), "rain": rng.random(), "event": rng.random()},
        "local": {"tourists": rng.random(), "strike": rng.random()},
    }


def teach(city: RunningCity, lessons: int, seed: int = 0) -> None:
    rng = Random(f"{city.pricing.settings.city}-{seed}")
    for start in range(0, lessons, 5):
        asked = {"requests": [context(rng) for _ in range(min(5, lessons - start))]}
        made = city.http.post("/price/batch", json=asked).json()["decisions"]
        items = [{"decision_id": each["decision_id"], "reward": rng.gauss(each["arm"], 0.3)} for each in made]
        assert city.http.post("/feedback/batch", json={"items": items}).status_code == 200


def tick(cities: list[RunningCity]) -> None:
    for phase in ("exchange", "absorb"):
        for city in cities:
            city.tick(phase)


def letters_of(city: RunningCity) -> dict[str, bytes]:
    return {origin: letter.wire for origin, letter in city.app.gossip.node.letters.items()}


def keyring(secrets: Sequence[str]) -> Keyring:
    return Keyring("liar", secrets, entropy.token_bytes, time.monotonic)


def signature_of(body: bytes, receiver: str, secrets: Sequence[str] = SECRETS) -> dict[str, str]:
    """The header of a request that a member of the mesh sends to this city now."""
    return {HEADER: keyring(secrets).sign(body, time.time(), receiver)}


def liar_letter(city: RunningCity, origin: str, version: int, numbers: Any, *, epoch: int = 1) -> bytes:
    summary = Summary.of(origin, epoch, version, city.app.gossip.node.fingerprint, numbers)
    return Seal(b"liar".ljust(32, b".")).close(summary).wire


def tell(city: RunningCity, *letters: bytes, secrets: tuple[str, ...] = SECRETS) -> httpx.Response:
    message = Message("liar", city.app.gossip.node.fingerprint, {}, letters=letters, state=bytes(16))
    body = message.to_bytes()
    signature = signature_of(body, city.pricing.settings.city, secrets)
    return city.http.post("/gossip", content=body, headers=signature)
