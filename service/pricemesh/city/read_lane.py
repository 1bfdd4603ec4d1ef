"""Reads that may take long have threads of their own, and a bound on how many wait for one: they delay no
price, no look-up of one decision and no check of readiness."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from pricemesh.errors import Overloaded
from pricemesh.runtime import Runtime

LONG_READS_AT_A_TIME = 2
MAX_LONG_READS = 16  # with those that wait


class ReadLane:
    def __init__(self, runtime: Runtime) -> None:
        self._pool = runtime.pool("long reads", LONG_READS_AT_A_TIME)
        self._count = 0

    async def run(self, read: Callable[..., Any], **parameters: Any) -> Any:
        if self._count >= MAX_LONG_READS:
            raise Overloaded(f"{self._count} long reads are under way or wait: try again in a moment", 1.0)
        self._count += 1
        future = self._pool.run(partial(read, **parameters))
        future.add_done_callback(self._leave)
        # A caller that leaves does not end the read: it is counted until its thread is free.
        return await asyncio.shield(future)

    def _leave(self, future: "asyncio.Future[Any]") -> None:
        self._count -= 1
        if not future.cancelled():
            future.exception()  # its caller may have left

    async def close(self) -> None:
        await self._pool.close()
