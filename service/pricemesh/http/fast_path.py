"""The fast path: traffic goes from the HTTP parser to the city and back, with no ASGI between.

For one price, ASGI's scope, task and messages cost more than deciding it. This adapter frames what an
`Exchange` delivers and does nothing else; `server.fast_path = false` switches it off.
"""

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from pricemesh.http.exchange import Answer, Exchange
from pricemesh.http.parsing import RequestParser
from pricemesh.http.traffic import TrafficCall

if TYPE_CHECKING:
    from pricemesh.http.connection import Connection

_OK = (
    STATUS_LINE[200] + b"content-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b\r\n%b"
)
_CLOSE = b"connection: close\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class FastExchange(Exchange):
    """A turn of a connection."""

    answering = False  # an answer is written in one piece
    reads_at_once = True
    __slots__ = ("_connection", "complete", "early_chunks", "keep_alive", "started")

    def __init__(
        self,
        connection: "Connection",
        call: TrafficCall,
        parser: RequestParser,
    ) -> None:
        application = connection.application
        context = application.admission.context("POST", parser.url.decode(), parser.headers)
        super().__init__(
            application.admission,
            context,
            call,
            parser.length,
            parser.expects_continue,
            application.max_body_bytes,
        )
        self._connection: Connection | None = connection
        self.early_chunks: list[bytes] = []
        self.complete = self.started = False
        self.keep_alive = True

    def start(self) -> None:
        self.started = True
        self.begin()
        if self._expects_continue and self._connection is not None and not self.answered:
            self._connection.transport.write(CONTINUE)

    def abandon(self) -> None:
        self._connection = None
        super().abandon()

    def deliver(self, answer: Answer) -> None:
        """A refusal may be known as soon as the request is read. Written there and then, it would let the
        caller send again before the event loop goes on: uvloop reads all sockets that are ready before it
        looks at timers and commits, so a thousand refused callers could keep it from them for seconds."""
        if answer.status == 200 or self._connection is None:
            self._write(answer)
        else:
            self._connection.loop.call_soon(self._write, answer)

    def _write(self, answer: Answer) -> None:
        connection, self._connection = self._connection, None  # leaves no cycle
        if connection is None:
            return
        close = answer.close or not self.keep_alive
        connection.transport.write(framed(answer, self.context.request_id, close=close))
        connection.finish(self, close=close)


def framed(answer: Answer, request_id: bytes, *, close: bool) -> bytes:
    last = _CLOSE if close else b""
    if answer.status == 200:
        return _OK % (len(answer.body), request_id, last, answer.body)
    headers = (
        (b"content-type", answer.content_type),
        (b"content-length", b"%d" % len(answer.body)),
        (b"x-request-id", request_id),
        *answer.headers,
    )
    lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    return STATUS_LINE[answer.status] + lines + last + b"\r\n" + answer.body
