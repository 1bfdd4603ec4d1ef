"""Letters: summaries sealed by their origin, so that a city that relays one can neither change nor invent it.

Pure: no socket, no clock. A city's key pair is made once and is stored in its database. Other cities know a
city by the first key they receive from it, until an operator names another.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pricemesh.city.addresses import CITY_NAME
from pricemesh.core.summary import Order, Summary
from pricemesh.errors import BadSummary
from pricemesh.gossip.signing import SKEW_SECONDS

KEY_BYTES, SIGNATURE_BYTES = 32, 64
NAME = re.compile(CITY_NAME)


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
    def order(self) -> Order:
        return self.summary.order

    @cached_property
    def wire(self) -> bytes:
        """As it travels and as it is stored."""
        return self.summary.to_bytes() + self.key + self.signature

    @classmethod
    def read(cls, wire: bytes) -> "Letter":
        end = len(wire) - KEY_BYTES - SIGNATURE_BYTES
        if end < 0:
            raise BadSummary("a letter is a summary, a key and a signature; these are too few bytes")
        key, signature = wire[end : end + KEY_BYTES], wire[end + KEY_BYTES :]
        return cls(Summary.from_bytes(wire[:end]), key, signature)

    def verify(self) -> None:
        """Check that it was sealed with the key it names."""
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(self.signature, self.summary.to_bytes())
        except InvalidSignature:
            raise BadSummary("its seal is broken: a relay changed it, or its origin never wrote it") from None
        except ValueError:
            raise BadSummary("its key is not an Ed25519 public key") from None


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
    """A city's notice that it leaves: the time, signed with its own key, so no other city can give it."""

    SIZE = 8 + SIGNATURE_BYTES

    @staticmethod
    def _message(city: str, at: int) -> bytes:
        return f"{city} leaves at {at}".encode()

    @classmethod
    def sign(cls, seal: Seal, city: str, now: float) -> bytes:
        return int(now).to_bytes(8, "big") + seal.sign(cls._message(city, int(now)))

    @classmethod
    def is_valid(cls, leave: bytes, letter: Letter, now: float) -> bool:
        """Whether the origin of `letter` signed this notice, just now."""
        at = int.from_bytes(leave[:8], "big")
        if abs(now - at) > SKEW_SECONDS:
            return False
        try:
            key = Ed25519PublicKey.from_public_bytes(letter.key)
            key.verify(leave[8:], cls._message(letter.origin, at))
        except (InvalidSignature, ValueError):
            return False
        return True


def read_letter(wire: bytes) -> Letter:
    """A letter whose origin is a city's name, so that it may be kept, shown and logged."""
    letter = Letter.read(wire)
    if not NAME.fullmatch(letter.origin):
        raise BadSummary(f"{letter.origin!r:.50} is not a city's name")
    return letter


def is_newer(wire: bytes, stored: bytes) -> bool:
    """Whether a letter is to replace the one that is stored. A key that an operator trusts now may begin
    anew."""
    letter = read_letter(wire)
    try:
        other = read_letter(stored)
    except BadSummary:  # of a format that is read no more
        return True
    return letter.key != other.key or letter.order > other.order
