"""A peer that holds the mesh's secret and lies: forged, damaged, repeated and absurd letters and messages."""

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

import numpy as np

from pricemesh.core.summary import Summary
from pricemesh.gossip.letter import Letter, Seal
from pricemesh.gossip.message import Message, state_of
from pricemesh.gossip.signing import HEADER, Keyring

NAME = "mallory"


class Target(NamedTuple):
    """What a liar knows of the city that it writes to."""

    fingerprint: bytes
    summary_size: int  # numbers
    letters: Mapping[str, Letter]  # of honest cities, as the target or another city has them


class Liar:
    def __init__(self, address: str, rng: Random) -> None:
        self.address = address
        self._rng = rng
        self._seal = Seal(rng.randbytes(32))
        self._version = 0

    def message(self, target: Target) -> tuple[bytes, str]:
        """The bytes of a message, and what the lie is."""
        lies: list[Callable[[Target], list[bytes]]] = [self._absurd_numbers, self._junk, self._no_lessons]
        if target.letters:
            lies += [self._foreign_name, self._broken_seal, self._relayed]
        lie = self._rng.choice(lies)
        wires = lie(target)
        digest = {NAME: (1, self._version)}
        state = state_of(target.fingerprint, digest)
        message = Message(NAME, target.fingerprint, digest, tuple(wires), state=state)
        return message.to_bytes(), lie.__name__.strip("_")

    def headers(self, secrets: tuple[str, ...], body: bytes, now: float, receiver: str) -> dict[str, str]:
        keyring = Keyring(NAME, secrets, self._rng.randbytes, lambda: now)
        return {HEADER: keyring.sign(body, now, receiver)}

    # Lies: the letters of a message

    def _letter(self, origin: str, version: int, target: Target, numbers: np.ndarray) -> bytes:
        return self._seal.close(Summary.of(origin, 1, version, target.fingerprint, numbers)).wire

    def _absurd_numbers(self, target: Target) -> list[bytes]:
        self._version += 1
        values = np.full(target.summary_size, self._rng.choice((1e300, -5.0, 7.5, float("nan"))))
        return [self._letter(NAME, self._version, target, values)]

    def _no_lessons(self, target: Target) -> list[bytes]:
        """An honest letter of a city that has learned nothing."""
        return [self._letter(NAME, 0, target, np.zeros(target.summary_size))]

    def _junk(self, _target: Target) -> list[bytes]:
        return [self._rng.randbytes(self._rng.randrange(300)) for _ in range(12)]

    def _foreign_name(self, target: Target) -> list[bytes]:
        """Another city's letter under a key of the liar's own."""
        origin = self._rng.choice(sorted(target.letters))
        version = target.letters[origin].summary.version + 5
        return [self._letter(origin, version, target, np.zeros(target.summary_size))]

    def _broken_seal(self, target: Target) -> list[bytes]:
        wire = bytearray(target.letters[self._rng.choice(sorted(target.letters))].wire)
        wire[self._rng.randrange(42, len(wire))] ^= 1 << self._rng.randrange(8)
        return [bytes(wire)]

    def _relayed(self, target: Target) -> list[bytes]:
        """True letters, perhaps older than those that the target has."""
        return [target.letters[origin].wire for origin in sorted(target.letters)]
