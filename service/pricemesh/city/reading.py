"""Reads from the database in threads of their own: bounded in number and in time.

Long reads have another lane than short ones, so they delay no look-up of one decision, no price and no check
of readiness. A thread that waits for a disk cannot be interrupted: its read counts until it ends.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from pricemesh.errors import Overloaded, StorageCause, StorageUnavailable
from pricemesh.runtime import Runtime, Worker

MAX_READS = 16  # of a lane, with those that wait for a thread


class ReadLane:
    def __init__(self, runtime: Runtime, name: str, threads: int, max_seconds: float) -> None:
        self._new_pool = partial(runtime.pool, name, threads)
        self._pool: Worker | None = None  # its threads start with the first read
        self._name = name
        self._max_seconds = max_seconds
        self._count = 0

    async def run(self, read: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What `read` returns. StorageUnavailable when that takes too long, or when too many wait."""
        if self._count >= MAX_READS:
            raise Overloaded(f"{self._count} {self._name} are under way or wait: try again in a moment", 1.0)
        self._count += 1
        if self._pool is None:
            self._pool = self._new_pool()
        future = self._pool.run(partial(read, *arguments, **named))
        future.add_done_callback(self._leave)
        with no_answer_is_a_fault(self._max_seconds):
            async with asyncio.timeout(self._max_seconds):
                return await asyncio.shield(future)

    def _leave(self, future: "asyncio.Future[Any]") -> None:
        self._count -= 1
        drop(future)

    async def close(self) -> None:
        """End the threads; one that hangs is left to the end of the process."""
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._max_seconds):
                    await pool.close()


@contextmanager
def no_answer_is_a_fault(seconds: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        text = f"the database has not answered within {seconds:g} s"
        raise StorageUnavailable(text, StorageCause.TIMEOUT) from None


def drop(answer: "asyncio.Future[Any]") -> None:
    """Look at the fault of an answer that came too late: asyncio logs one that nobody looked at."""
    if not answer.cancelled():
        answer.exception()
