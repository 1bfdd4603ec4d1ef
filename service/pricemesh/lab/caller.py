"""A lean HTTP/1.1 client for load: keep-alive connections to one city.

A general HTTP client uses several times the CPU of the service, and a measurement would show the client.
"""

import asyncio
from collections import deque
from typing import cast
from urllib.parse import urlsplit

import httptools

from pricemesh.city.addresses import checked_address
from pricemesh.errors import PricemeshError

MAX_CONNECTIONS = 512


class CallFailed(PricemeshError):
    """There is no answer: the connection was refused, broke or timed out."""


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.usable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as fault:
            self._fail(str(fault))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "the connection was closed")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status, body = self._parser.get_status_code(), b"".join(self._body)
        self.usable = self.usable and self._parser.should_keep_alive()
        self._parser = httptools.HttpResponseParser(self)
        self._body = []
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((status, body))

    async def call(self, request: bytes) -> tuple[int, bytes]:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        if not self.usable:
            raise CallFailed("the connection was closed")
        self._transport.write(request)
        return await self._answer

    def _fail(self, reason: str) -> None:
        self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(CallFailed(reason))

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.close()


class Caller:
    """Calls to one address, at most MAX_CONNECTIONS at a time."""

    def __init__(self, url: str, key: str | None = None, timeout_seconds: float = 10.0) -> None:
        try:
            self.url = checked_address(url)
        except ValueError as fault:
            raise CallFailed(str(fault)) from None
        parts = urlsplit(self.url)
        self._host, self._tls = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        self._head = f"Host: {parts.netloc}\r\nContent-Type: application/json\r\n{authorization}"
        self._timeout_seconds = timeout_seconds
        self._idle: deque[_Connection] = deque()
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)

    async def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer. Raises CallFailed if there is none."""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        async with self._slots:
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    connection = await self._connection()
                    try:
                        return await connection.call(head.encode() + body)
                    except BaseException:
                        connection.close()
                        raise
                    finally:
                        if connection.usable:
                            self._idle.append(connection)
            except TimeoutError:
                raise CallFailed(f"no answer within {self._timeout_seconds:g} s") from None
            except OSError as fault:
                raise CallFailed(fault.strerror or str(fault)) from None

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        loop = asyncio.get_running_loop()
        _, fresh = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls or None)
        return fresh

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
