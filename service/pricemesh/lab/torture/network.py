"""The network between callers and cities: HTTP over connections in memory, late, lost, doubled or cut.

A request is bytes that arrive at a city's real `Connection` in pieces; its answer is parsed from the bytes
that the connection writes. Delays are drawn for each request, so requests overtake one another.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol

import httptools

from pricemesh.http.connection import Connection
from pricemesh.lab.torture.virtual_loop import Process, VirtualLoop
from pricemesh.runtime import Reply, ReplyTooLarge

MIN_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.0005, 0.03
OUTSIDE = Context()  # of no process: what is under way to a caller arrives whoever dies


class Listener(Protocol):
    """A process that takes connections."""

    @property
    def process(self) -> Process | None: ...

    def connection(self) -> Connection: ...


class Host(Protocol):
    """What is behind an address."""

    address: str

    def accept(self) -> Listener | None:
        """The process that takes the next connection; None where nobody listens."""
        ...


@dataclass
class Links:
    """What is wrong with the network now. Rates are probabilities for each request."""

    loss: float = 0.0
    duplication: float = 0.0
    slowness: float = 0.0  # a request or an answer takes up to `MAX_SLOW_SECONDS`
    cuts: set[tuple[str, str]] = field(default_factory=set)  # from, to

    def mend(self) -> None:
        self.loss = self.duplication = self.slowness = 0.0
        self.cuts.clear()


MAX_SLOW_SECONDS = 3.0
OnAnswer = Callable[[Reply | None], None]  # None: no answer, and nobody knows what happened


class Network:
    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self.loop = loop
        self._rng = rng
        self.links = Links()
        self.hosts: dict[str, Host] = {}  # by address
        self.observers: list[Callable[[str, bytes, Reply | None], None]] = []  # of gossip

    def delay(self) -> float:
        if self._rng.random() < self.links.slowness:
            return self._rng.uniform(0.1, MAX_SLOW_SECONDS)
        return self._rng.uniform(MIN_DELAY_SECONDS, MAX_DELAY_SECONDS)

    def request(
        self, sender: str, receiver: str, data: bytes, timeout_seconds: float, on_answer: OnAnswer
    ) -> None:
        """Send one request. `on_answer` is called once: with the answer, or with None after the timeout or
        when the connection is refused or reset."""
        call = _Call(self, sender, receiver, on_answer)
        self.loop.call_later(timeout_seconds, call.end, None, context=OUTSIDE)
        if self._arrives(sender, receiver):
            pieces = self._pieces(data)
            self.loop.call_later(self.delay(), call.arrive, pieces, context=OUTSIDE)

    def _arrives(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) not in self.links.cuts and self._rng.random() >= self.links.loss

    def _pieces(self, data: bytes) -> list[bytes]:
        """Mostly whole, at times cut in two."""
        if self._rng.random() < 0.8:
            return [data]
        cut = self._rng.randrange(1, len(data))
        return [data[:cut], data[cut:]]

    def duplicates(self) -> bool:
        return self._rng.random() < self.links.duplication


class _Call:
    """One connection with one request on it."""

    def __init__(self, network: Network, sender: str, receiver: str, on_answer: OnAnswer) -> None:
        self._network = network
        self._sender, self._receiver = sender, receiver
        self._on_answer: OnAnswer | None = on_answer
        self._connection: Connection | None = None
        self._process: Process | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = b""

    # The caller's side

    def end(self, reply: Reply | None) -> None:
        """The caller has its answer, or gives up; either way it leaves."""
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is None:
            return
        if self._process is not None:
            self._network.loop.call_soon(self._leave, context=self._process.context)
        on_answer(reply)

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.connection_lost(None)

    # The city's side

    def arrive(self, pieces: list[bytes]) -> None:
        host = self._network.hosts.get(self._receiver)
        listener = host.accept() if host is not None else None
        process = listener.process if listener is not None else None
        if listener is None or process is None or not process.is_alive:
            self.end(None)
            return
        self._process = process
        loop = self._network.loop
        loop.call_soon(self._connect, listener, context=process.context)
        for number, piece in enumerate(pieces):
            loop.call_later(number * MIN_DELAY_SECONDS, self._receive, piece, context=process.context)

    def _connect(self, listener: Listener) -> None:
        self._connection = listener.connection()
        self._connection.connection_made(_CityEnd(self))

    def _receive(self, piece: bytes) -> None:
        if self._connection is not None:
            self._connection.data_received(piece)

    def write(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def close(self) -> None:
        """By the city. What it has written arrives first."""
        self._network.loop.call_soon(self._leave)
        self._network.loop.call_later(MAX_DELAY_SECONDS + MAX_SLOW_SECONDS, self.end, None, context=OUTSIDE)

    # What the parser calls

    def on_status(self, _reason: bytes) -> None: ...

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status == 100:
            return
        reply = Reply(status, self._headers, self._body)
        if self._network._arrives(self._receiver, self._sender):
            self._network.loop.call_later(self._network.delay(), self.end, reply, context=OUTSIDE)


class _CityEnd(asyncio.Transport):
    """A connection as the city sees it."""

    def __init__(self, call: _Call) -> None:
        super().__init__()
        self._call = call
        self._is_closing = False

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._call.write(bytes(data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._call.close()

    abort = close

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._call._sender, 1) if name in ("peername", "sockname") else default


class PeerTransport:
    """How a city's gossip client reaches its peers."""

    def __init__(self, network: Network, address: str) -> None:
        self._network = network
        self._address = address

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_seconds: float, max_bytes: int
    ) -> Reply:
        network = self._network
        receiver, _, path = url.removeprefix("http://").partition("/")
        data = http_request("POST", f"/{path}", body, {"host": receiver, **headers})
        address = f"http://{receiver}"
        future: asyncio.Future[Reply | None] = network.loop.create_future()

        def answer(reply: Reply | None) -> None:
            self._observe(address, data, reply)
            if not future.done():
                future.set_result(reply)

        network.request(self._address, address, data, timeout_seconds, answer)
        if network.duplicates():
            again = partial(self._observe, address, data)
            network.request(self._address, address, data, timeout_seconds, again)
        reply = await future
        if reply is None:
            raise TimeoutError(f"no answer from {address}")
        if len(reply.body) > max_bytes:
            raise ReplyTooLarge(f"{url} answers with more than {max_bytes} bytes")
        return reply

    def _observe(self, address: str, data: bytes, reply: Reply | None) -> None:
        for observe in self._network.observers:
            observe(address, data, reply)

    async def close(self) -> None: ...


def http_request(method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"{method} {path} HTTP/1.1\r\n{lines}content-length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body
