"""Letters: summaries sealed by their origin, so that whoever relays one can neither change nor invent it.

A city's key pair is made once and kept in its database. The first key a city is heard under is the one it
is known by; an operator who drops the city forgets the key too.
"""

from dataclasses import dataclass
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pricemesh.core.summary import Summary
from pricemesh.errors import BadSummary
from pricemesh.gossip.signing import SKEW_SECONDS

_KEY, _SIGNATURE = 32, 64


@dataclass(frozen=True)
class Letter:
    summary: Summary
    key: bytes
    signature: bytes

    @property
    def origin(self) -> str:
        return self.summary.origin

    @property
    def edition(self) -> tuple[int, int]:
        return (self.summary.epoch, self.summary.version)

    @property
    def order(self) -> tuple[int, int, bytes, bytes]:
        return self.summary.order

    @cached_property
    def wire(self) -> bytes:
        return self.summary.to_bytes() + self.key + self.signature

    @classmethod
    def read(cls, wire: bytes) -> "Letter":
        body, seal = wire[: -_KEY - _SIGNATURE], wire[-_KEY - _SIGNATURE :]
        if len(seal) < _KEY + _SIGNATURE:
            raise BadSummary("a letter is a summary, a key and a signature")
        return cls(Summary.from_bytes(body), seal[:_KEY], seal[_KEY:])

    def verify(self) -> None:
        """Whether it was sealed with the key it names."""
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(self.signature, self.summary.to_bytes())
        except InvalidSignature:
            raise BadSummary("its seal is broken: changed on the way, or never its origin's") from None
        except ValueError:
            raise BadSummary("its key is none") from None


class Seal:
    """A city's own key pair."""

    def __init__(self, seed: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.key = self._private.public_key().public_bytes_raw()

    def close(self, summary: Summary) -> Letter:
        return Letter(summary, self.key, self.sign(summary.to_bytes()))

    def sign(self, message: bytes) -> bytes:
        return self._private.sign(message)


class Leave:
    """A city's word that it goes: the time, signed with its own key, so that nobody can send it away."""

    SIZE = 8 + _SIGNATURE

    @staticmethod
    def _message(city: str, at: int) -> bytes:
        return f"{city} leaves at {at}".encode()

    @classmethod
    def sign(cls, seal: Seal, city: str, now: float) -> bytes:
        return int(now).to_bytes(8, "big") + seal.sign(cls._message(city, int(now)))

    @classmethod
    def holds(cls, leave: bytes, letter: Letter, now: float) -> bool:
        at = int.from_bytes(leave[:8], "big")
        if abs(now - at) > SKEW_SECONDS:
            return False
        try:
            key = Ed25519PublicKey.from_public_bytes(letter.key)
            key.verify(leave[8:], cls._message(letter.origin, at))
        except (InvalidSignature, ValueError):
            return False
        return True
