"""Bodies of requests as they arrive: how long they say they are, and how long they may be."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pricemesh.errors import BodyTooLarge, TooFast, UnreadableBody

# A body that follows a refusal is read and thrown away, so that the connection can be kept, up to this size.
MAX_DISCARDED_BYTES = 65_536
MIN_RESERVED_BYTES = 4096
INCOMPLETE = "the request ended before its body was complete"


class Body:
    """At most so many bytes."""

    __slots__ = ("_chunks", "_max_bytes", "_size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self._max_bytes:
            raise _too_large(self._max_bytes)
        self._chunks.append(chunk)

    def take(self) -> bytes:
        """The whole content; this object keeps none of it."""
        chunks, self._chunks = self._chunks, []
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def refuse_too_long(length: int | None, max_bytes: int) -> None:
    """Refuse a body that announces itself as too large before any of it is read."""
    if length is not None and length > max_bytes:
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body here has at most {max_bytes} bytes (limits.body_bytes)")


class BodyBudget:
    """At most so many bytes of bodies in memory at once, and half of them from one machine. A body counts
    with the length it announces from before it is read until its answer is made; a short one as 4 KiB, for
    everything else that a request takes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes_by_machine: Counter[str] = Counter()

    @property
    def used_bytes(self) -> int:
        return self._bytes_by_machine.total()

    @contextmanager
    def reserve(self, machine: str, length: int) -> Iterator[None]:
        """TooFast where there is no room."""
        length = max(length, MIN_RESERVED_BYTES)
        of_machine = self._bytes_by_machine[machine] + length
        if self.used_bytes + length > self._max_bytes or of_machine > self._max_bytes // 2:
            raise TooFast(1.0, "too many bytes of gossip at once")
        self._bytes_by_machine[machine] = of_machine
        try:
            yield
        finally:
            self._bytes_by_machine[machine] -= length
            if self._bytes_by_machine[machine] <= 0:
                del self._bytes_by_machine[machine]


def announced_length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """The length of a body as its headers announce it; None is a length that is not known before its end."""
    length = 0
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            length = int(value)
        elif name == b"transfer-encoding":
            return None
    return length


def expects_continue(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


def is_large(length: int | None) -> bool:
    """Whether an announced body is too long to be read for nothing."""
    return length is None or length > MAX_DISCARDED_BYTES


async def wait_for_disconnect(receive: Callable[[], Awaitable[Any]]) -> None:
    """Until the caller of an answer that lasts has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(scope: Any, receive: Callable[[], Awaitable[Any]], max_bytes: int) -> bytes:
    """The body of an ASGI request."""
    body = Body(max_bytes)
    refuse_too_long(announced_length(scope["headers"]), max_bytes)
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise UnreadableBody([("", INCOMPLETE)])
        body.add(message.get("body", b""))
        if not message.get("more_body"):
            return body.take()
