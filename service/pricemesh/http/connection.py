"""HTTP/1.1 on one connection: order, keep-alive and time limits. What a request means is not known here.

Requests are answered in the order they came. Each is a turn: a `FastExchange` for traffic, an `AsgiTurn` for
everything else, or a `RefusalTurn` for bytes that are no HTTP. uvicorn accepts connections and makes one
`Connection` for each.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from pricemesh.http.asgi import Application
from pricemesh.http.asgi_turn import AsgiTurn
from pricemesh.http.fast_path import FastExchange
from pricemesh.http.parsing import RequestParser, Unparsable
from pricemesh.http.refusal_turn import RefusalTurn
from pricemesh.http.stages import ANSWER, LATE_STAGES, Stage, StageClock
from pricemesh.http.turn import Turn

MAX_PARSED_BYTES = 16_384  # at once: bounds how many pipelined requests become objects
LINGER_SECONDS = 2.0  # for a caller who is still sending to read the answer that ends the connection
MAX_STALL_SECONDS = 10.0  # for a caller who does not read its answers
MAX_STOP_SECONDS = 1.0  # for the last answers to leave, when the server stops
SHUTTING_DOWN = "this city is shutting down, and the request was not complete: nothing was changed"


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
        self._parser = RequestParser(self)
        self._current: Turn | None = None  # whose answer is due
        self._queue: deque[Turn] = deque()  # pipelined behind it
        self._advancing = False
        self._reading: Turn | None = None  # whose body is being read
        self._broken_turn: Turn | None = None  # whose body is malformed
        self._unparsed = b""  # waits until the queue is empty
        self._parsing_is_due = False  # of these bytes
        self._discarding = False  # bytes that still arrive are thrown away, up to the size of a body
        self._discarded_bytes = 0
        self._half_closed = False  # the caller sends nothing more
        self._closing = False
        self._stopping = False  # the server is
        self._admitted = False  # as one of limits.connections
        self._clock = StageClock(self.application.limits, self.loop.time)
        self._timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    # What the event loop and the server call

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.flow = FlowControl(self.transport)
        self._admitted = self.application.connections.enter()
        if not self._admitted:
            self._refuse_connection()
            return
        self.server_state.connections.add(self)  # type: ignore[arg-type]
        self._set_timer(self._clock.seconds_to_next_look(), self._check_time)

    def _refuse_connection(self) -> None:
        """The server does not wait for it when it stops."""
        self._discarding = True
        self.transport.write(self.application.connections.refuse())
        self._close(at_once=not self.application.connections.may_linger)

    def data_received(self, data: bytes | memoryview) -> None:
        if self._discarding:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > self.application.max_body_bytes:
                self.transport.abort()
            return
        if self._unparsed:
            self._unparsed += data
            return
        while data and not self._discarding:
            piece, data = data, b""
            if len(piece) > MAX_PARSED_BYTES:  # cut without copies of the rest
                piece, data = memoryview(piece)[:MAX_PARSED_BYTES], memoryview(piece)[MAX_PARSED_BYTES:]
            try:
                if again := self._parser.parse(piece):
                    data = again + data
            except Unparsable as fault:
                self._refuse_rest(fault)
            if self._queue:
                self._advance()
                turn = self._current
                waits = turn is not None and not (turn.reads_at_once and turn is self._reading)
                if data and waits and not self._discarding:
                    self._parse_later(bytes(data))
                    return
        if self._current is None and not self._queue and not self._closing:
            self._wait_for_bytes()

    def _parse_later(self, data: bytes) -> None:
        """Once the requests before it have seen their bodies so far: a fault in these bytes must not change
        their answers."""
        self._unparsed = data
        self.flow.pause_reading()
        self.resume_reading()

    def _parse_rest(self) -> None:
        self._parsing_is_due = False
        data, self._unparsed = self._unparsed, b""
        self.data_received(data)
        if not self._closing:
            self.resume_reading()

    def eof_received(self) -> bool:
        """A caller that has sent all its requests may close its side and still gets the answers."""
        self._drop_incomplete()
        if not self._unparsed and (self._current is None or not self._current.complete):
            return False
        self._half_closed = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.server_state.connections.discard(self)
        self.application.connections.leave(admitted=self._admitted)
        self._discarding = self._closing = True
        self._unparsed = b""
        for timer in (self._timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._stall_timer = None
        self.flow.resume_writing()
        turn, self._current = self._current, None
        self._reading = self._broken_turn = None
        self._queue.clear()
        self._parser.close()
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
        if self._queue or self.flow.write_paused or self._parsing_is_due:
            return
        if self._unparsed:
            self._parsing_is_due = True
            self.loop.call_soon(self._parse_rest)
        else:
            self.flow.resume_reading()

    def shutdown(self) -> None:
        """The server stops: answer what was received completely, wait for no body, then close."""
        self._stopping = True
        self._drop_incomplete()
        if self._current is None:
            self.transport.close()
        elif self._current.complete:
            (self._queue[-1] if self._queue else self._current).keep_alive = False
            return
        else:
            self._refuse_rest(Unparsable(503, "shutting-down", SHUTTING_DOWN))
        self._set_timer(MAX_STOP_SECONDS, self.transport.abort)

    def _drop_incomplete(self) -> None:
        if self._reading in self._queue:
            self._queue.remove(self._reading)  # type: ignore[arg-type]  # never to be complete
            self._reading = None

    # What the parser calls
    def begin_request(self, parser: RequestParser) -> None:
        if self._closing:
            return
        call = self._calls.get(parser.url)
        turn: Turn
        if call is not None and parser.method == b"POST":
            turn = FastExchange(self, call, parser)
        else:
            turn = AsgiTurn(self, parser)
        turn.keep_alive = parser.keep_alive
        self._reading = turn
        self._queue.append(turn)

    def feed_request(self, chunk: bytes) -> None:
        turn = self._reading
        if turn is None:
            return
        if turn.started:
            self._clock.body_bytes += len(chunk)
            turn.feed(chunk)
        else:
            turn.early_chunks.append(chunk)

    def end_request(self) -> None:
        turn, self._reading = self._reading, None
        if turn is None:
            return
        turn.complete = True
        if turn.started:
            if turn is self._current:
                self._clock.stage = ANSWER
            turn.end()

    # Turns

    def _advance(self) -> None:
        """Start the turns that wait, as far as answers are there at once. Not recursive: a turn that is
        answered as it starts calls this again."""
        if self._advancing:
            return
        self._advancing = True
        while self._queue and self._current is None and not self.flow.write_paused and not self._closing:
            turn = self._current = self._queue.popleft()
            self._clock.stage = ANSWER
            if not turn.complete:
                self._clock.enter(Stage.BODY)
            turn.start()
            for chunk in turn.early_chunks:
                turn.feed(chunk)
            turn.early_chunks.clear()
            if turn.complete:
                turn.end()
            elif turn is self._broken_turn:
                self.loop.call_soon(self._abandon_broken_turn)
        self._advancing = False
        if self._queue:
            self.flow.pause_reading()
        elif self.flow.read_paused and not self._closing:
            self.resume_reading()

    def finish(self, turn: Turn, *, close: bool) -> None:
        """A turn has its answer, and all of it is written."""
        if turn is not self._current:
            return
        self._current = None
        self.server_state.total_requests += 1
        if close or not turn.keep_alive:
            self._close()
        elif self._queue:
            self._advance()
        else:
            if self.flow.read_paused:
                self.resume_reading()
            self._wait_for_bytes()

    def _refuse_rest(self, fault: Unparsable) -> None:
        """Answer bytes that cannot be read with a refusal, in its turn, and read nothing more."""
        if self._closing:
            return
        self._discarding = True
        turn, self._reading = self._reading, None
        if turn is not None and not turn.answered:
            self._broken_turn = turn
            if turn is self._current:
                self.loop.call_soon(self._abandon_broken_turn)
        self._queue.append(RefusalTurn(self, *fault.problem))

    def _abandon_broken_turn(self) -> None:
        """Its body will never be complete. Its task has run by now: a caller that is refused for its headers
        gets that answer, however soon the fault came after them."""
        turn, self._broken_turn = self._broken_turn, None
        if turn is None or turn is not self._current:
            return
        self._current = None
        turn.abandon()
        if turn.answering:
            self.transport.close()
        else:
            self._advance()

    # The end

    def _close(self, *, at_once: bool = False) -> None:
        """After the last answer. A caller who is still sending gets a moment to read it: closed at once, the
        connection would be reset under the answer."""
        self._closing = True
        self._queue.clear()
        self._unparsed = b""
        sends_nothing = self._half_closed or not (self._discarding or self._reading is not None)
        if sends_nothing or self._stopping or at_once:
            self.transport.close()
            self._set_timer(MAX_STOP_SECONDS if self._stopping else MAX_STALL_SECONDS, self.transport.abort)
            return
        self._discarding = True
        self._reading = None
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._set_timer(LINGER_SECONDS, self.transport.abort)

    # Time limits

    def _wait_for_bytes(self) -> None:
        if self._half_closed and not self._unparsed:
            self._close()
        elif self._reading is not None:
            self._clock.enter(Stage.BODY)
        elif self._parser.in_headers:
            self._clock.enter(Stage.HEADERS)
        else:
            self._clock.wait_for_request()

    def _check_time(self) -> None:
        """Now and then: a timer for every request costs as much as reading its headers."""
        self._timer = None
        if self._closing:
            return
        seconds = self._clock.seconds_to_next_look(may_send=not self.flow.read_paused)
        if seconds > 0:
            self._set_timer(seconds, self._check_time)
        else:
            self._close_late()

    def _close_late(self) -> None:
        """The caller did not send in time. It is told so, if it waits for an answer."""
        stage, fault = self._clock.stage, self._clock.fault
        if stage in LATE_STAGES:
            self.application.admission.metrics.late_connections[stage] += 1
        if fault is None or (stage is Stage.BODY and self._current is None):
            self.transport.abort()  # does not wait for a caller that does not read
        else:
            self._refuse_rest(fault)
            self._advance()

    def _set_timer(self, seconds: float, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, action)
