"""A peer that holds the mesh's secret and lies: forged, damaged, repeated and absurd letters and messages."""

from collections.abc import Mapping
from random import Random

import numpy as np

from pricemesh.core.summary import Summary
from pricemesh.gossip.letter import Letter, Seal
from pricemesh.gossip.message import Message, state_of
from pricemesh.gossip.signing import HEADER, Keyring

NAME = "mallory"


class Liar:
    def __init__(self, address: str, rng: Random) -> None:
        self.address = address
        self._rng = rng
        self._seal = Seal(rng.randbytes(32))
        self._version = 0

    def message(
        self, fingerprint: bytes, numbers: int, letters: Mapping[str, Letter]
    ) -> tuple[bytes, str]:
        """The bytes of a message to a city, and what the lie is. `numbers` is the size of a summary,
        `letters` are those of the honest cities."""
        lies = [self._absurd_numbers, self._junk, self._honest_zeroes]
        if letters:
            lies += [self._foreign_name, self._broken_seal, self._relayed]
        lie = self._rng.choice(lies)
        wires = lie(fingerprint, numbers, letters)
        state = state_of(fingerprint, {NAME: (1, self._version)})
        message = Message(NAME, fingerprint, {NAME: (1, self._version)}, tuple(wires), state=state)
        return message.to_bytes(), lie.__name__.strip("_")

    def headers(self, secrets: tuple[str, ...], body: bytes, now: float) -> dict[str, str]:
        keyring = Keyring(secrets, self._rng.randbytes)
        return {HEADER: keyring.sign(body, now)}

    # Lies: the letters of a message

    def _letter(self, origin: str, version: int, fingerprint: bytes, numbers: np.ndarray) -> bytes:
        return self._seal.close(Summary.of(origin, 1, version, fingerprint, numbers)).wire

    def _absurd_numbers(self, fingerprint: bytes, numbers: int, _letters: Mapping[str, Letter]) -> list[bytes]:
        self._version += 1
        values = np.full(numbers, self._rng.choice((1e300, -5.0, 7.5, float("nan"))))
        return [self._letter(NAME, self._version, fingerprint, values)]

    def _honest_zeroes(self, fingerprint: bytes, numbers: int, _letters: Mapping[str, Letter]) -> list[bytes]:
        return [self._letter(NAME, 0, fingerprint, np.zeros(numbers))]

    def _junk(self, _fingerprint: bytes, _numbers: int, _letters: Mapping[str, Letter]) -> list[bytes]:
        return [self._rng.randbytes(self._rng.randrange(300)) for _ in range(12)]

    def _foreign_name(self, fingerprint: bytes, numbers: int, letters: Mapping[str, Letter]) -> list[bytes]:
        """Another city's letter under a key of the liar's own."""
        origin = self._rng.choice(sorted(letters))
        version = letters[origin].summary.version + 5
        return [self._letter(origin, version, fingerprint, np.zeros(numbers))]

    def _broken_seal(self, _fingerprint: bytes, _numbers: int, letters: Mapping[str, Letter]) -> list[bytes]:
        wire = bytearray(letters[self._rng.choice(sorted(letters))].wire)
        wire[self._rng.randrange(42, len(wire))] ^= 1 << self._rng.randrange(8)
        return [bytes(wire)]

    def _relayed(self, _fingerprint: bytes, _numbers: int, letters: Mapping[str, Letter]) -> list[bytes]:
        """True letters, perhaps older than those that the receiver has."""
        return [letters[origin].wire for origin in sorted(letters)]
