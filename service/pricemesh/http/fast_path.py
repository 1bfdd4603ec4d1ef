"""The fast lane: plain traffic goes from the HTTP parser to the use case and back, with no ASGI between.

For a price, ASGI's scope, task and messages cost more than deciding it. What is not plain (another method, a
body in chunks or too large, pipelining, a caller who does not read) takes uvicorn's own way through `Gate`,
as everything does that is no traffic; admission, validation and the answers' contents are the same code.
"""

import logging
from math import inf
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from pricemesh.errors import PricemeshError, UnreadableBody
from pricemesh.http.gate import Gate, Passage
from pricemesh.http.problems import refusal, unforeseen
from pricemesh.http.traffic import TrafficCall

log = logging.getLogger("pricemesh.requests")

MOST_HEADER_BYTES = 65_536
_NOT_PLAIN = frozenset((b"expect", b"transfer-encoding", b"upgrade"))
_DONE = (
    STATUS_LINE[200] + b"content-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b\r\n"
)
_LAST = b"connection: close\r\n"


class Protocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, to callers whose headers come to an end: nobody has shown a key yet."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        gate: Gate = self.config.app  # type: ignore[assignment]
        self.gate = gate
        self._calls = {path.encode(): call for path, call in gate.traffic.calls.items()}
        self._most_bytes = gate.traffic.most_bytes
        self._heading = False
        self._header_bytes = 0
        self._plain = True  # as far as the headers say
        self._length = b""
        self._idle_since = inf
        self._reading: Exchange | None = None  # what the body belongs to, in the fast lane

    def data_received(self, data: bytes) -> None:
        within = self._heading
        super().data_received(data)
        if within and self._heading:
            self._header_bytes += len(data)
            if self._header_bytes > MOST_HEADER_BYTES:
                self.transport.close()

    # A connection that idles is looked at now and then: a timer set and taken back with every request costs
    # as much as reading its headers.

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = inf

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_handler()

    def timeout_keep_alive_handler(self) -> None:
        """Close what has been idle for long enough, and look again when that can be."""
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        now = self.loop.time()
        since = min(self._idle_since, now)
        if now - since >= self.timeout_keep_alive:
            self.transport.close()
        else:
            wait = self.timeout_keep_alive - (now - since)
            self.timeout_keep_alive_task = self.loop.call_later(wait, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        if self._reading is not None:
            self._reading.refuse(UnreadableBody([("", "the caller left before the body was complete")]))
            self._reading = None

    # What the parser finds

    def on_message_begin(self) -> None:
        self._heading = True
        self._header_bytes = 0
        self._plain = True
        self._length = b""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-length":
            self._length = value
        elif name in _NOT_PLAIN:
            self._plain = False
            self.expect_100_continue = name == b"expect" and value.lower() == b"100-continue"
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._heading = False
        call = self._calls.get(self.url)
        if call is not None and self._is_plain():
            passage = self.gate.enter("POST", self.url.decode(), self.headers)
            self.cycle = self._reading = Exchange(self, passage, call)  # type: ignore[assignment]
            self._reading.admit()
            return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    def _is_plain(self) -> bool:
        parser = self.parser
        return (
            self._plain
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and self._length != b""
            and int(self._length) <= self._most_bytes
            and self._is_free()
            and not self.flow.write_paused
        )

    def _is_free(self) -> bool:
        under_way: Any = self.cycle
        return under_way is None or under_way.response_complete

    def on_body(self, body: bytes) -> None:
        if self._reading is None:
            super().on_body(body)
        else:
            self._reading.body += body

    def on_message_complete(self) -> None:
        if self._reading is None:
            super().on_message_complete()
        else:
            exchange, self._reading = self._reading, None
            exchange.begin()


class _Told:
    """Stands where uvicorn wakes a task of its own."""

    def set(self) -> None:
        pass


class Exchange:
    """One request in the fast lane and its answer; to uvicorn, the cycle that is under way."""

    __slots__ = (
        "_begun",
        "_call",
        "_passage",
        "_protocol",
        "body",
        "disconnected",
        "keep_alive",
        "response_complete",
    )
    message_event = _Told()

    def __init__(self, protocol: Protocol, passage: Passage, call: TrafficCall) -> None:
        self._protocol = protocol
        self._passage = passage
        self._call = call
        self._begun: Any = None
        self.body = b""
        self.disconnected = False
        self.response_complete = False
        self.keep_alive = protocol.parser.should_keep_alive()

    def admit(self) -> None:
        """Who may not call is told before the body is read."""
        try:
            self._protocol.gate.admit(self._passage)
        except PricemeshError as fault:
            self.refuse(fault)

    def begin(self) -> None:
        """The body is here."""
        if self.response_complete:
            return
        try:
            self._begun = self._call.begin(self._call.read(self.body), self.end)
            self.body = b""
        except PricemeshError as fault:
            self.refuse(fault)
        except Exception as fault:
            self._fail(fault)

    def end(self, result: Any) -> None:
        """Called with what came of it, once that is committed."""
        try:
            body = self._call.answer(self._begun, result)
        except PricemeshError as fault:
            self.refuse(fault)
        except Exception as fault:
            self._fail(fault)
        else:
            last = b"" if self.keep_alive else _LAST
            self._send(200, _DONE % (len(body), self._passage.request_id, last) + body)

    def refuse(self, fault: PricemeshError) -> None:
        self._respond(refusal(fault, self._passage.request_id.decode()))

    def _fail(self, fault: Exception) -> None:
        request_id = self._passage.request_id.decode()
        log.error("unforeseen", exc_info=fault, extra={"request_id": request_id})
        self._respond(unforeseen(request_id))

    def _respond(self, response: Any) -> None:
        headers = [*response.raw_headers, (b"x-request-id", self._passage.request_id)]
        head = b"".join(b"%b: %b\r\n" % pair for pair in headers)
        last = b"" if self.keep_alive else _LAST
        whole = STATUS_LINE[response.status_code] + head + last + b"\r\n" + response.body
        self._send(response.status_code, whole)

    def _send(self, status: int, answer: bytes) -> None:
        protocol = self._protocol
        self.response_complete = True
        if not self.disconnected:
            protocol.transport.write(answer)
            if not self.keep_alive:
                protocol.transport.close()
            protocol.on_response_complete()
        protocol.gate.leave(self._passage, self._passage.path, status)
