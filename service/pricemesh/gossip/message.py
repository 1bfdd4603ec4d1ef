"""The gossip message and its bytes. Pure: no socket, no clock, no keys.

On the wire: 4 bytes of magic, 16 bytes of state, then a msgpack array with the fields of `Body` in their
order; fields at the end that have their default value are left out. The limits are part of the types, so
msgspec refuses a message that is too long before it allocates anything for it.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from pricemesh.errors import IncompatibleMesh, UnreadableBody
from pricemesh.gossip.bounds import CityName, Count
from pricemesh.gossip.difference import Difference
from pricemesh.gossip.letter import Leave
from pricemesh.gossip.signing import FORMAT

MAGIC = b"PMG%d" % FORMAT
STATE_BYTES = 16
NO_STATE = bytes(STATE_BYTES)  # of a city that only introduces itself
FINGERPRINT_BYTES = 16
MAX_ENTRIES = 20_016  # of a digest, an address list or a bundle of letters, in the largest mesh
MAX_NAME_LENGTH = 300  # characters

Edition = tuple[int, int]  # epoch and version
Digest = Mapping[str, Edition]
UNWANTED: Edition = (0, 0)  # in a digest: do not send letters of this origin
ABSENT: Edition = (0, 1)  # in a digest with a base: there is no entry of this origin any more

Address = Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]


class Body(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What follows magic and state."""

    sender: CityName
    fingerprint: Annotated[bytes, Meta(max_length=FINGERPRINT_BYTES)] = b""  # empty without a digest
    digest: Annotated[dict[CityName, tuple[Count, Count]], Meta(max_length=MAX_ENTRIES)] | None = None
    letters: Annotated[tuple[bytes, ...], Meta(max_length=MAX_ENTRIES)] = ()  # whole
    differences: Annotated[tuple[Difference, ...], Meta(max_length=MAX_ENTRIES)] = ()  # in part
    whole: Annotated[tuple[CityName, ...], Meta(max_length=MAX_ENTRIES)] = ()  # that the sender asks for
    # A state that both cities know, where the digest has only what changed since; else empty.
    base: Annotated[bytes, Meta(max_length=STATE_BYTES)] = b""
    address: Address = ""  # where the sender is reached
    discovers: bool = False  # the sender asks for addresses
    addresses: Annotated[tuple[Address, ...], Meta(max_length=MAX_ENTRIES)] = ()  # that the sender knows
    leave: Annotated[bytes, Meta(max_length=Leave.SIZE)] = b""  # the sender's signed notice that it leaves


class Message(Body, frozen=True, kw_only=True):
    """`state` names all letters that the sender has: cities with equal states have nothing to exchange."""

    state: bytes

    def to_bytes(self) -> bytes:
        fields = [getattr(self, name) for name in Body.__struct_fields__]
        defaults = Body.__struct_defaults__
        while defaults and fields[-1] == defaults[-1]:
            fields, defaults = fields[:-1], defaults[:-1]
        return MAGIC + self.state + _encoder.encode(fields)

    @classmethod
    def from_bytes(cls, data: bytes, max_entries: int = MAX_ENTRIES) -> "Message":
        """UnreadableBody says which field is wrong; IncompatibleMesh, that the sender has another format."""
        _check_format(data[: len(MAGIC)])
        start = len(MAGIC) + STATE_BYTES
        if len(data) <= start:
            raise _unreadable(f"it ends after {len(data)} bytes")
        try:
            body = _decoder.decode(memoryview(data)[start:])
        except msgspec.ValidationError as fault:
            raise _unreadable(_explanation(fault)) from None
        except ValueError:  # also of a name that is not UTF-8
            raise _unreadable("it is damaged or cut short") from None
        _check(body, max_entries)
        return cls(*msgspec.structs.astuple(body), state=data[len(MAGIC) : start])


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Body)
_RULES = {
    "sender": "a city's name",
    "fingerprint": f"{FINGERPRINT_BYTES} bytes beside a digest, and empty without one",
    "digest": f"at most {MAX_ENTRIES} cities' names, each with its epoch and version",
    "letters": f"at most {MAX_ENTRIES} letters, each of them bytes",
    "differences": f"at most {MAX_ENTRIES} differences of letters",
    "whole": f"at most {MAX_ENTRIES} cities' names",
    "base": f"{STATE_BYTES} bytes beside a digest, or empty",
    "address": f"a text of at most {MAX_NAME_LENGTH} characters",
    "discovers": "true or false",
    "addresses": f"at most {MAX_ENTRIES} texts of at most {MAX_NAME_LENGTH} characters",
    "leave": f"{Leave.SIZE} bytes, or empty",
}


def state_of(fingerprint: bytes, digest: Digest) -> bytes:
    """The name of a set of letters: equal for equal sets, and for no others."""
    return state_of_sum(fingerprint, sum(number_of_entry(*entry) for entry in digest.items()))


def state_of_sum(fingerprint: bytes, entries: int) -> bytes:
    """The same, from the sum of its entries' numbers, which a city brings up to date entry by entry."""
    return hashlib.sha256(fingerprint + (entries % (1 << 256)).to_bytes(32, "big")).digest()[:STATE_BYTES]


def number_of_entry(origin: str, edition: Edition) -> int:
    epoch, version = edition
    return int.from_bytes(hashlib.sha256(f"{origin} {epoch} {version}".encode()).digest(), "big")


def _check_format(magic: bytes) -> None:
    if magic == MAGIC:
        return
    name, number = magic[:3], magic[3:]
    if name == MAGIC[:3] and number.isdigit():
        older = "sender" if int(number) < FORMAT else "receiver"
        raise IncompatibleMesh(
            f"this city speaks gossip format {FORMAT} and the sender format {int(number)}: "
            f"upgrade the {older}"
        )
    raise UnreadableBody([("", f"this is not gossip: a message begins with {MAGIC.decode()}")])


def _check(body: Body, max_entries: int) -> None:
    """What the types do not say."""
    for name, entries in (
        ("digest", body.digest or ()),
        ("letters", body.letters),
        ("differences", body.differences),
        ("whole", body.whole),
        ("addresses", body.addresses),
    ):
        if len(entries) > max_entries:
            raise _unreadable(f"{name} has {len(entries)} entries; this city reads at most {max_entries}")
    if len(body.fingerprint) != (0 if body.digest is None else FINGERPRINT_BYTES):
        raise _unreadable(f"fingerprint must be {_RULES['fingerprint']}")
    if len(body.base) not in ((0,) if body.digest is None else (0, STATE_BYTES)):
        raise _unreadable(f"base must be {_RULES['base']}")
    if len(body.leave) not in (0, Leave.SIZE):
        raise _unreadable(f"leave must be {_RULES['leave']}")


def _explanation(fault: msgspec.ValidationError) -> str:
    """In our words: which field is wrong and what it has to be. msgspec names a field by its position."""
    position = re.search(r"`\$\[(\d+)\]", str(fault))
    if position is None:
        return f"it must be an array of {', '.join(_RULES)}"
    name = Body.__struct_fields__[int(position[1])]
    return f"{name} must be {_RULES[name]}"


def _unreadable(explanation: str) -> UnreadableBody:
    return UnreadableBody([("", f"this gossip message cannot be read: {explanation}")])
