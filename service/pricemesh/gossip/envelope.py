"""What two cities send each other in one exchange, as bytes.

magic, flags, sender | 16 bytes that name all the sender holds |
if flagged: fingerprint and digest (origin, epoch, version of every letter held) |
if flagged: the address the sender is reached at | if flagged: addresses it knows | letters
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag

from pricemesh.errors import UnreadableBody
from pricemesh.gossip.letters import Leave

MAGIC = b"PMG1"
Edition = tuple[int, int]  # epoch and version
Digest = Mapping[str, Edition]
UNWANTED: Edition = (0, 0)  # in a digest: do not send letters of this origin


class Flag(IntFlag):
    DIGEST = 1
    ADDRESS = 2
    BOOK = 4
    LEAVING = 8
    DISCOVERS = 16


@dataclass(frozen=True)
class Message:
    sender: str
    state: bytes  # names everything the sender holds: equal states have nothing to exchange
    fingerprint: bytes = b""
    digest: Digest | None = None
    address: str = ""
    book: tuple[str, ...] = ()
    leave: bytes = b""  # the sender's word that it goes
    discovers: bool = False  # the sender would like to know addresses
    letters: tuple[bytes, ...] = ()

    def to_bytes(self) -> bytes:
        flags = Flag(0)
        flags |= Flag.DIGEST if self.digest is not None else 0
        flags |= Flag.ADDRESS if self.address else 0
        flags |= Flag.BOOK if self.book else 0
        flags |= Flag.LEAVING if self.leave else 0
        flags |= Flag.DISCOVERS if self.discovers else 0
        out = [MAGIC, bytes((flags,)), _text(self.sender), self.state]
        if self.digest is not None:
            out += [self.fingerprint, _number(len(self.digest))]
            for origin, (epoch, version) in self.digest.items():
                out += [_text(origin), _number(epoch), _number(version)]
        if self.address:
            out.append(_text(self.address))
        if self.book:
            out += [_number(len(self.book)), *map(_text, self.book)]
        out.append(self.leave)
        for letter in self.letters:
            out += [_number(len(letter)), letter]
        return b"".join(out)

    @classmethod
    def from_bytes(cls, data: bytes, most: int = 10_000) -> "Message":
        """At most so many entries of each kind: whoever sends more is not heard to the end."""
        reader = _Reader(data)
        if reader.take(4) != MAGIC:
            raise reader.fault("not gossip of this format")
        flags = Flag(reader.take(1)[0])
        sender, state = reader.text(), reader.take(16)
        fingerprint, digest = b"", None
        if Flag.DIGEST in flags:
            fingerprint = reader.take(16)
            entries = range(reader.count(most))
            digest = {reader.text(): (reader.number(), reader.number()) for _ in entries}
        address = reader.text() if Flag.ADDRESS in flags else ""
        book = tuple(reader.text() for _ in range(reader.count(most))) if Flag.BOOK in flags else ()
        leave = reader.take(Leave.SIZE) if Flag.LEAVING in flags else b""
        letters: list[bytes] = []
        while not reader.done:
            if len(letters) >= most:
                raise reader.fault(f"more than {most} letters")
            letters.append(reader.take(reader.number()))
        discovers = Flag.DISCOVERS in flags
        return cls(sender, state, fingerprint, digest, address, book, leave, discovers, tuple(letters))


def state_of(fingerprint: bytes, digest: Digest) -> bytes:
    held = "\n".join(f"{origin} {epoch} {version}" for origin, (epoch, version) in sorted(digest.items()))
    return hashlib.sha256(fingerprint + held.encode()).digest()[:16]


def _number(value: int) -> bytes:
    """Seven bits a byte, least first; the high bit says that more follow."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _number(len(encoded)) + encoded


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise self.fault("it ends too soon")
        self._at += count
        return taken

    def number(self) -> int:
        value = 0
        for shift in range(0, 63, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.fault("a number without end")

    def count(self, most: int) -> int:
        count = self.number()
        if count > most:
            raise self.fault(f"{count} entries where {most} are heard")
        return count

    def text(self) -> str:
        length = self.number()
        if length > 300:
            raise self.fault("a name that long is none")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise self.fault("a name that is not UTF-8") from None

    def fault(self, said: str) -> UnreadableBody:
        return UnreadableBody([("", f"{said} (at byte {self._at} of {len(self._data)})")])
