"""Reads from the database in threads: a limited number at a time, and none makes its caller wait for ever.

A thread that waits for a disk cannot be interrupted. It keeps its slot until it ends, so that the threads of
the process are left for other work.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pricemesh.errors import StorageCause, StorageUnavailable
from pricemesh.runtime import Runtime

MAX_READS = 4  # of the threads that asyncio has: at least five


class Reads:
    def __init__(self, runtime: Runtime, max_seconds: float) -> None:
        self._in_thread = runtime.in_thread
        self._max_seconds = max_seconds
        self._slots = asyncio.Semaphore(MAX_READS)

    async def run(self, read: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What `read` returns. StorageUnavailable when that takes too long."""
        with no_answer_is_a_fault(self._max_seconds):
            async with asyncio.timeout(self._max_seconds):
                await self._slots.acquire()
                answer = asyncio.ensure_future(self._in_thread(read, *arguments, **named))
                answer.add_done_callback(self._release)
                return await asyncio.shield(answer)

    def _release(self, answer: "asyncio.Future[Any]") -> None:
        self._slots.release()
        drop(answer)


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
