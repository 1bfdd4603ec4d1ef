"""`GET /events`: the live feed as server-sent events, and a way out for readers who do not read."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import Response

from pricemesh.dashboard.feed import Feed, Reader, cancelled

log = logging.getLogger("pricemesh.requests")

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx: pass on what comes when it comes
]


class EventStream(Response):
    """Ends after so many frames, when the reader leaves, or when the city stops. A reader that is dropped
    is cut off in the middle: whatever is sent to it waits, and so would a proper end."""

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
            writing = asyncio.create_task(self._write(reader, send))
            watched = [
                writing,
                asyncio.create_task(_left(receive)),
                asyncio.create_task(reader.dropped.wait()),
            ]
            try:
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                if reader.dropped.is_set() and not writing.done():
                    log.warning("dropped a reader of events that did not keep up")
            finally:
                for task in watched:
                    await cancelled(task)

    async def _write(self, reader: Reader, send: Send) -> None:
        await send(_more(b"retry: 2000\n\n"))
        left = None if self._frames is None else self._frames + 1  # the history comes first
        while left is None or left > 0:
            event = await reader.events.get()
            if event is None:
                break
            await send(_more(event))
            left = None if left is None else left - 1
        await send({"type": "http.response.body", "body": b""})


def _more(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
