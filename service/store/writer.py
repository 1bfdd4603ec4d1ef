"""The one writer: operations that wait together are committed together, and answered after the commit."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

from service.errors import StorageUnavailable
from service.store.database import Committed, Database
from service.store.operations import Operation

MOST_WAITING = 20_000
MOST_IN_A_COMMIT = 4_000


class Writer:
    """Owns the thread that writes. `committed` is called on the event loop with every operation and its
    result, in order, after their commit and before anyone is answered."""

    def __init__(
        self,
        database: Database,
        committed: Callable[[Sequence[Operation], Committed], None],
        observed: Callable[[int, float], None],
    ) -> None:
        self._database = database
        self._committed = committed
        self._observed = observed
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._waiting: list[tuple[Operation, asyncio.Future[Any]]] = []
        self.waiting = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="writer")

    def submit(self, operation: Operation) -> asyncio.Future[Any]:
        """Its result, once it is committed, or why it was not."""
        if self._closing:
            raise StorageUnavailable("the service is shutting down")
        if self.waiting + operation.size > MOST_WAITING:
            raise StorageUnavailable("too much is waiting to be written; try again in a moment")
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((operation, done))
        self.waiting += operation.size
        self._wake.set()
        return done

    async def close(self) -> None:
        """Commit what waits, then end the thread."""
        self._closing = True
        self._wake.set()
        await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                group, size = self._take()
                operations = [operation for operation, _ in group]
                started = perf_counter()
                try:
                    outcome = await loop.run_in_executor(self._thread, self._database.commit, operations)
                except Exception as fault:
                    for _, done in group:
                        _fail(done, fault)
                    continue
                finally:
                    self.waiting -= size
                self._observed(size, perf_counter() - started)
                self._committed(operations, outcome)
                for (_, done), result in zip(group, outcome.results, strict=True):
                    if isinstance(result, Exception):
                        _fail(done, result)
                    elif not done.done():
                        done.set_result(result)
            if self._closing:
                return

    def _take(self) -> tuple[list[tuple[Operation, asyncio.Future[Any]]], int]:
        """What goes into the next commit, and how much that is."""
        size, count = 0, 0
        for operation, _ in self._waiting:
            size += operation.size
            count += 1
            if size >= MOST_IN_A_COMMIT:
                break
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group, size


def _fail(done: asyncio.Future[Any], fault: Exception) -> None:
    if not done.done():
        done.set_exception(fault if isinstance(fault, StorageUnavailable) else StorageUnavailable(str(fault)))
