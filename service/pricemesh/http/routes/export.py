"""`GET /export`: decisions as a file, streamed. Pages are read and encoded in the lane of long reads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from pricemesh.city.pricing import Pricing
from pricemesh.errors import InvalidParameter, Overloaded, StorageUnavailable, UnreadableBody
from pricemesh.history.export import Export, Selection
from pricemesh.history.times import option_time
from pricemesh.history.writing import MEDIA_TYPES, Format
from pricemesh.http.body import wait_for_disconnect
from pricemesh.http.routes.bodies import problems
from pricemesh.runtime import cancel_task

log = logging.getLogger("pricemesh.requests")

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]
MAX_EXPORTS = 2  # at once
RETRY_SECONDS = 10.0  # for a caller that finds as many under way
PAGE_ROWS = 50  # a millisecond of work, for which a price may have to wait
PAUSE_FACTOR = 4.0  # a page is followed by a pause so many times as long: prices come first
MAX_SEND_SECONDS = 30.0  # for a page to leave; then the caller is disconnected

DESCRIPTION = """One row a decision, oldest first: what `pricemesh export` writes. It has the decisions that
were committed when it began. An answer that breaks off without its last chunk is not complete: ask again.
Two exports run at a time; large ones are faster by the command, beside the city."""
_FILES: dict[str, Any] = {
    "text/csv": {"schema": {"type": "string"}},
    MEDIA_TYPES[Format.PARQUET]: {"schema": {"type": "string", "format": "binary"}},
}


def export_routes(pricing: Pricing) -> APIRouter:
    router = APIRouter(tags=["audit"])
    slots = Slots(MAX_EXPORTS)

    @router.get(
        "/export",
        summary="Decisions as a CSV or Parquet file",
        description=DESCRIPTION,
        response_class=Response,
        responses=problems(
            {422: "A parameter is invalid.", 501: "Parquet needs the extra `data`, which is not installed."}
        )
        | {200: {"content": _FILES}},
    )
    async def export(
        format_: Annotated[Format, Query(alias="format")] = Format.CSV,
        since: Annotated[str | None, Query(description="Unix seconds or ISO 8601")] = None,
        until: Annotated[str | None, Query(description="Before this time")] = None,
        arm: Annotated[int | None, Query(ge=0, le=10_000)] = None,
        columns: Annotated[
            str | None,
            Query(description="With commas: columns, or default, features, estimates, radii, all"),
        ] = None,
    ) -> Response:
        selection = Selection(
            format_,
            columns.split(",") if columns else (),
            arm,
            _time("since", since),
            _time("until", until),
        )
        return ExportStream(pricing, selection, slots)

    return router


def _time(name: str, text: str | None) -> float | None:
    try:
        return None if text is None else option_time(text)
    except ValueError as fault:
        raise UnreadableBody([(name, str(fault))]) from None


class Slots:
    """How many exports may run at once."""

    def __init__(self, count: int) -> None:
        self._free = count

    @contextmanager
    def take(self) -> Iterator[None]:
        if not self._free:
            raise Overloaded(f"{MAX_EXPORTS} exports are under way: try again later", RETRY_SECONDS)
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


class ExportStream(Response):
    """Ends early, without the last chunk, when the caller leaves or reads too slowly, when its key is
    revoked, when the city stops or its database fails."""

    def __init__(self, pricing: Pricing, selection: Selection, slots: Slots) -> None:
        super().__init__()
        self._pricing = pricing
        self._selection = selection
        self._slots = slots

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        with self._slots.take():
            try:
                work = await self._pricing.read_many(self._begin)
            except InvalidParameter as fault:
                raise UnreadableBody([("", str(fault))]) from None
            await send({"type": "http.response.start", "status": 200, "headers": self._file_headers()})
            if scope.get("without_body"):
                await send({"type": "http.response.body", "body": b""})
                return
            still_admitted = scope.get("still_admitted", lambda: True)
            tasks = [
                asyncio.create_task(self._write(work, send, still_admitted)),
                asyncio.create_task(wait_for_disconnect(receive)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    await cancel_task(task)

    def _begin(self) -> Export:
        """In a thread: it may load pyarrow, and reads."""
        pricing = self._pricing
        work = Export(pricing.settings, pricing.database.reader, self._selection, PAGE_ROWS)
        work.begin()
        return work

    def _file_headers(self) -> list[tuple[bytes, bytes]]:
        format_ = self._selection.format
        name = f"{self._pricing.settings.city}.{format_}"
        return [
            (b"content-type", MEDIA_TYPES[format_].encode()),
            (b"content-disposition", f'attachment; filename="{name}"'.encode()),
            (b"cache-control", b"no-store"),
        ]

    async def _write(self, work: Export, send: Send, still_admitted: Callable[[], bool]) -> None:
        pricing, monotonic = self._pricing, self._pricing.runtime.monotonic
        try:
            while still_admitted() and not pricing.draining:
                began_at = monotonic()
                piece = await pricing.read_many(work.next)
                if piece is None:
                    await send({"type": "http.response.body", "body": b""})
                    return
                pause_seconds = PAUSE_FACTOR * (monotonic() - began_at)
                if piece:
                    async with asyncio.timeout(MAX_SEND_SECONDS):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(pause_seconds)
            log.warning("an export ended early: the key was revoked, or the city stops")
        except TimeoutError:
            log.warning("disconnected a reader of /export that did not keep up")
        except StorageUnavailable as fault:
            log.warning("an export ended early", extra={"fault": str(fault)})
