"""`GET /events`: the live feed as server-sent events. Knows ASGI, and nothing of what a frame holds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import Response

from pricemesh.dashboard.feed import EventReader, Feed
from pricemesh.http.body import wait_for_disconnect
from pricemesh.runtime import cancel_task

log = logging.getLogger("pricemesh.requests")

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx: pass every event on at once
]


class EventStream(Response):
    """Ends after a number of frames, when the reader leaves, when its key is revoked, or when the city stops.

    A reader that does not keep up is disconnected without a final chunk: `send` to it blocks.
    """

    def __init__(self, feed: Feed, frames: int | None) -> None:
        super().__init__()
        self._feed = feed
        self._frames = frames

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        async with self._feed.reader() as reader:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if scope.get("without_body"):
                await send({"type": "http.response.body", "body": b""})
                return
            still_admitted = scope.get("still_admitted", lambda: True)
            writing = asyncio.create_task(self._write(reader, send, still_admitted))
            tasks = [
                writing,
                asyncio.create_task(wait_for_disconnect(receive)),
                asyncio.create_task(reader.overflow.wait()),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if reader.overflow.is_set() and not writing.done():
                    log.warning("disconnected a reader of /events that did not keep up")
            finally:
                for task in tasks:
                    await cancel_task(task)

    async def _write(self, reader: EventReader, send: Send, still_admitted: Callable[[], bool]) -> None:
        await send(_chunk(b"retry: 2000\n\n"))
        remaining = None if self._frames is None else self._frames + 1  # the history comes first
        while remaining is None or remaining > 0:
            event = await reader.events.get()
            if event is None or not still_admitted():
                break
            await send(_chunk(event))
            remaining = None if remaining is None else remaining - 1
        await send({"type": "http.response.body", "body": b""})


def _chunk(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}
