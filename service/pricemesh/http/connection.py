"""HTTP/1.1 on one connection: parsing, order, keep-alive and limits. What a request means is not known here.

Requests are answered in the order they came. Each is a turn: a `FastExchange` for traffic, an `AsgiTurn` for
everything else, or a `RefusalTurn` for bytes that are no HTTP. uvicorn accepts connections and makes one
`Connection` for each.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from pricemesh.http.asgi import Application
from pricemesh.http.asgi_turn import AsgiTurn
from pricemesh.http.fast_path import FastExchange
from pricemesh.http.parsing import head_without_upgrade, new_parser
from pricemesh.http.refusal_turn import RefusalTurn
from pricemesh.http.turn import Turn

MAX_HEADER_BYTES = 65_536  # of headers, trailers and chunk lines: they arrive before authentication
MAX_PARSED_BYTES = 16_384  # at once: bounds how many pipelined requests become objects
LINGER_SECONDS = 2.0  # for a caller who is still sending to read the answer that ends the connection
MAX_STALL_SECONDS = 10.0  # for a caller who does not read its answers


class Connection(asyncio.Protocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.application: Application = config.app  # type: ignore[assignment]
        self.config = config
        self.server_state = server_state
        self.app_state = app_state
        self.loop = _loop or asyncio.get_event_loop()
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.flow: FlowControl = None  # type: ignore[assignment]
        self._calls = self.application.fast_calls
        self._parser = new_parser(self)
        self._current: Turn | None = None  # whose answer is due
        self._queue: deque[Turn] = deque()  # pipelined behind it
        self._advancing = False
        self._reading: Turn | None = None  # whose body is being read
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._length: int | None = 0
        self._expects_continue = False
        self._in_headers = False
        self._made_progress = False  # since bytes were last parsed, a request began or its body grew
        self._overhead_bytes = 0  # since then
        self._unparsed = b""  # waits until the queue is empty
        self._discarding = False  # bytes that still arrive are thrown away, up to the size of a body
        self._discarded_bytes = 0
        self._half_closed = False  # the caller sends nothing more
        self._closing = False
        self._idle_since = inf
        self._timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    # What the event loop and the server call

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.flow = FlowControl(self.transport)
        self.server_state.connections.add(self)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > self.application.max_body_bytes:
                self.transport.abort()
            return
        self._idle_since = inf
        if self._unparsed:
            self._unparsed += data
            return
        while data and not self._discarding:
            if self._queue:
                self._unparsed = data
                return
            rest = self._parse(data[:MAX_PARSED_BYTES])
            data = rest + data[MAX_PARSED_BYTES:]
        if self._current is None and not self._closing:
            self._become_idle()

    def _parse_rest(self) -> None:
        data, self._unparsed = self._unparsed, b""
        self.data_received(data)
        if not self._unparsed and not self._queue and not self._closing:
            self.flow.resume_reading()

    def eof_received(self) -> bool:
        """A caller that has sent all its requests may close its side and still gets the answers."""
        if self._reading in self._queue:
            self._queue.remove(self._reading)  # type: ignore[arg-type]  # never to be complete
            self._reading = None
        if self._current is None or not self._current.complete:
            return False
        self._half_closed = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.server_state.connections.discard(self)
        self._discarding = self._closing = True
        self._unparsed = b""
        for timer in (self._timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._stall_timer = None
        self.flow.resume_writing()
        turn, self._current, self._reading = self._current, None, None
        self._queue.clear()
        self._parser = None  # type: ignore[assignment]  # it refers to this object: leave no cycle
        if turn is not None:
            turn.abandon()

    def pause_writing(self) -> None:
        self.flow.pause_writing()
        self.flow.pause_reading()
        self._stall_timer = self.loop.call_later(MAX_STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self.flow.resume_writing()
        self._advance()
        self.resume_reading()

    def resume_reading(self) -> None:
        """Unless requests wait for their turn, or the caller does not read its answers."""
        if self._queue or self.flow.write_paused:
            return
        if self._unparsed:
            self.loop.call_soon(self._parse_rest)
        else:
            self.flow.resume_reading()

    def shutdown(self) -> None:
        """The server stops: answer what was received completely, then close."""
        if self._current is None or not self._current.complete:
            self.transport.close()
        else:
            (self._queue[-1] if self._queue else self._current).keep_alive = False

    # Bytes to requests

    def _parse(self, data: bytes) -> bytes:
        """What is still to be parsed after this."""
        self._made_progress = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            return self._without_upgrade(data[offer.args[0] :])
        except httptools.HttpParserError:
            self._refuse_rest(400, "malformed-request", "these bytes are not an HTTP/1.1 request")
            return b""
        self._overhead_bytes = 0 if self._made_progress else self._overhead_bytes + len(data)
        if self._overhead_bytes > MAX_HEADER_BYTES:
            limit = f"the headers of a request have at most {MAX_HEADER_BYTES} bytes"
            self._refuse_rest(431, "headers-too-large", limit)
        return b""

    def _without_upgrade(self, rest: bytes) -> bytes:
        """An offered upgrade is not taken up: the request is parsed again without the offer, and then its
        body, which the parser leaves out of a request that it takes for an upgrade."""
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse_rest(405, "method-not-allowed", "this is a city, not a proxy")
            return b""
        head = head_without_upgrade(self._parser, self._url, self._headers)
        self._parser = new_parser(self)
        return head + rest

    def on_message_begin(self) -> None:
        self._in_headers = self._made_progress = True
        self._url = b""
        self._headers = []
        self._length = 0
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_headers:  # a trailer: read, and not believed
            return
        name = name.lower()
        if name == b"content-length":
            self._length = int(value)
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise ValueError(
                    "a transfer encoding that is not known here"
                )  # the parser reports a bad request
            self._length = None
        elif name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_headers = False
        parser = self._parser
        if self._closing or parser.should_upgrade():
            return
        keep_alive = parser.should_keep_alive() and parser.get_http_version() != "1.0"
        call = self._calls.get(self._url)
        turn: Turn
        if call is not None and parser.get_method() == b"POST":
            turn = FastExchange(self, call, self._url, self._headers, self._length)
        else:
            turn = AsgiTurn(self, parser, self._url, self._headers)
        turn.keep_alive = keep_alive
        self._reading = turn
        self._enqueue(turn)

    def on_body(self, body: bytes) -> None:
        self._made_progress = True
        turn = self._reading
        if turn is None:
            return
        if turn.started:
            turn.feed(body)
        else:
            turn.early_chunks.append(body)

    def on_message_complete(self) -> None:
        turn, self._reading = self._reading, None
        if turn is None:
            return
        turn.complete = True
        if turn.started:
            turn.end()

    @property
    def expects_continue(self) -> bool:
        """Of the request whose headers were read last."""
        return self._expects_continue and self._parser.get_http_version() != "1.0"

    # Turns

    def _enqueue(self, turn: Turn) -> None:
        if self._current is None and not self._queue and not self.flow.write_paused:
            self._current = turn
            turn.start()
        else:
            self.flow.pause_reading()
            self._queue.append(turn)
            self._advance()

    def _advance(self) -> None:
        """Start the turns that wait, as far as answers are there at once. Not recursive: a turn that is
        answered as it starts calls this again."""
        if self._advancing:
            return
        self._advancing = True
        while self._queue and self._current is None and not self.flow.write_paused and not self._closing:
            turn = self._current = self._queue.popleft()
            turn.start()
            for chunk in turn.early_chunks:
                turn.feed(chunk)
            turn.early_chunks.clear()
            if turn.complete:
                turn.end()
        self._advancing = False
        if not self._closing:
            self.resume_reading()

    def finish(self, turn: Turn, *, close: bool) -> None:
        """A turn has its answer, and all of it is written."""
        if turn is not self._current:
            return
        self._current = None
        self.server_state.total_requests += 1
        if close or not turn.keep_alive or (self._half_closed and not self._queue):
            self._close()
        elif self._queue:
            self._advance()
        else:
            self.resume_reading()
            self._become_idle()

    def _refuse_rest(self, status: int, kind: str, detail: str) -> None:
        """Answer bytes that cannot be read with a refusal, in its turn, and read nothing more."""
        if self._closing:
            return
        self._discarding = True
        turn, self._reading = self._reading, None
        if turn is not None and not turn.answered:  # its body will never be complete
            if turn is self._current:
                self._current = None
                turn.abandon()
                if turn.answering:
                    self.transport.close()
                    return
            else:
                self._queue.remove(turn)
        self._enqueue(RefusalTurn(self, status, kind, detail))

    # The end

    def _close(self) -> None:
        """After the last answer. A caller who is still sending gets a moment to read it: closed at once, the
        connection would be reset under the answer."""
        self._closing = True
        self._queue.clear()
        self._unparsed = b""
        if not (self._discarding or self._reading is not None) or self._half_closed:
            self.transport.close()
            self._set_timer(MAX_STALL_SECONDS, self.transport.abort)
            return
        self._discarding = True
        self._reading = None
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._set_timer(LINGER_SECONDS, self.transport.abort)

    def _become_idle(self) -> None:
        """An idle connection is looked at now and then: a timer for every request costs as much as reading
        its headers."""
        self._idle_since = self.loop.time()
        if self._timer is None:
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        self._timer = None
        if self._closing:
            return
        now = self.loop.time()
        idle_seconds = now - min(self._idle_since, now)
        if idle_seconds >= self.config.timeout_keep_alive:
            self.transport.abort()  # does not wait for a caller that does not read
        else:
            self._set_timer(self.config.timeout_keep_alive - idle_seconds, self._close_if_idle)

    def _set_timer(self, seconds: float, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, action)
