"""A turn of a connection that an ASGI application answers, by uvicorn's own request-response cycle."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from pricemesh.http.parsing import RequestParser

if TYPE_CHECKING:
    from pricemesh.http.connection import Connection


class Cycle(RequestResponseCycle):
    """A request that is complete is read even if its caller has left by then, as the fast path reads it."""

    body_read = False

    async def receive(self) -> Any:
        if self.disconnected and not self.body_read and not self.more_body:
            self.body_read = True
            return {"type": "http.request", "body": bytes(self.body), "more_body": False}
        message = await super().receive()
        self.body_read = True
        return message


def _target(url: bytes) -> dict[str, Any]:
    parts = httptools.parse_url(url)
    path = parts.path.decode("ascii")
    return {
        "path": unquote(path) if "%" in path else path,
        "raw_path": parts.path,
        "query_string": parts.query or b"",
    }


class _TurnFlow:
    """Flow control as the cycle sees it: it may not resume reading while requests wait for their turn."""

    def __init__(self, connection: "Connection") -> None:
        self._flow = connection.flow
        self.resume_reading = connection.resume_reading
        self.drain = self._flow.drain

    @property
    def write_paused(self) -> bool:
        return self._flow.write_paused


class AsgiTurn:
    reads_at_once = False

    def __init__(self, connection: "Connection", parser: RequestParser) -> None:
        self._connection = connection
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": parser.http_version,
            "method": parser.method.decode("ascii"),
            "server": get_local_addr(connection.transport),
            "client": get_remote_addr(connection.transport),
            "scheme": "https" if is_ssl(connection.transport) else "http",
            "root_path": "",
            **_target(parser.url),
            "headers": parser.headers,
            "state": connection.app_state.copy(),
        }
        self._expects_continue = parser.expects_continue
        self._cycle: Cycle | None = None
        self._keep_alive = True
        self._close = False
        self.early_chunks: list[bytes] = []
        self.complete = self.started = False

    @property
    def answered(self) -> bool:
        return self._cycle is not None and self._cycle.response_complete

    @property
    def answering(self) -> bool:
        return self._cycle is not None and self._cycle.response_started

    @property
    def keep_alive(self) -> bool:
        return self._keep_alive if self._cycle is None else self._cycle.keep_alive

    @keep_alive.setter
    def keep_alive(self, value: bool) -> None:
        self._keep_alive = value
        if self._cycle is not None:
            self._cycle.keep_alive = value

    def start(self) -> None:
        self.started = True
        connection = self._connection
        application: Any = connection.application
        self._cycle = Cycle(
            scope=self._scope,  # type: ignore[arg-type]
            transport=self,  # type: ignore[arg-type]
            flow=_TurnFlow(connection),  # type: ignore[arg-type]
            logger=logging.getLogger("uvicorn.error"),
            access_logger=logging.getLogger("uvicorn.access"),
            access_log=False,
            default_headers=connection.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self._expects_continue,
            keep_alive=self._keep_alive,
            on_response=self._finish,
        )
        task = connection.loop.create_task(self._cycle.run_asgi(application))
        connection.server_state.tasks.add(task)
        task.add_done_callback(self._release)

    def _release(self, task: "asyncio.Task[None]") -> None:
        """Leave no cycle of references."""
        self._connection.server_state.tasks.discard(task)
        if self._cycle is not None:
            self._cycle.transport = self._cycle.flow = None  # type: ignore[assignment]

    def feed(self, chunk: bytes) -> None:
        cycle = self._cycle
        if cycle is None or cycle.response_complete:
            return
        cycle.body += chunk
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self._connection.flow.pause_reading()
        cycle.message_event.set()

    def end(self) -> None:
        if self._cycle is not None:
            self._cycle.more_body = False
            self._cycle.message_event.set()

    def abandon(self) -> None:
        if self._cycle is not None:
            self._cycle.disconnected = not self._cycle.response_complete
            self._cycle.message_event.set()

    def _finish(self) -> None:
        self._connection.finish(self, close=self._close)

    # What the cycle sees of the transport

    def write(self, data: bytes) -> None:
        self._connection.transport.write(data)

    def is_closing(self) -> bool:
        return self._connection.transport.is_closing()

    def close(self) -> None:
        """After a complete response the connection closes in its own way; one that broke off is cut."""
        if self.answered:
            self._close = True
        else:
            self._connection.transport.close()
