"""The turn of bytes that are no request: a problem document, and the end of the connection."""

from typing import TYPE_CHECKING

from pricemesh.http.exchange import as_answer
from pricemesh.http.fast_path import framed
from pricemesh.http.problems import problem

if TYPE_CHECKING:
    from pricemesh.http.connection import Connection


class RefusalTurn:
    keep_alive = answering = False
    complete = reads_at_once = True

    def __init__(self, connection: "Connection", status: int, kind: str, detail: str) -> None:
        self._connection = connection
        self._words = status, kind, detail
        self.started = self.answered = False
        self.early_chunks: list[bytes] = []

    def start(self) -> None:
        self.started = self.answered = True
        status, kind, detail = self._words
        connection = self._connection
        admission = connection.application.admission
        context = admission.context("", "", ())
        answer = as_answer(problem(status, kind, detail, context.request_id.decode()), close=True)
        connection.transport.write(framed(answer, context.request_id, close=True))
        admission.finish(context, "other", status, detail)
        connection.finish(self, close=True)

    def feed(self, chunk: bytes) -> None: ...

    def end(self) -> None: ...

    def abandon(self) -> None: ...
