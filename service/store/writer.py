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
        self._waiting: list[tuple[Sequence[Operation], asyncio.Future[list[Any]]]] = []
        self.waiting = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="writer")

    def submit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Any]]:
        """Done once all operations are committed, in one transaction; fails if none was."""
        if self._closing:
            raise StorageUnavailable("the service is shutting down")
        if self.waiting + len(operations) > MOST_WAITING:
            raise StorageUnavailable("too much is waiting to be written; try again in a moment")
        done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((operations, done))
        self.waiting += len(operations)
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
                group = self._take()
                operations = [operation for some, _ in group for operation in some]
                started = perf_counter()
                try:
                    outcome = await loop.run_in_executor(self._thread, self._database.commit, operations)
                except Exception as fault:
                    for _, done in group:
                        if not done.done():
                            done.set_exception(_as_ours(fault))
                    continue
                finally:
                    self.waiting -= len(operations)
                self._observed(len(operations), perf_counter() - started)
                self._committed(operations, outcome)
                start = 0
                for some, done in group:
                    if not done.done():
                        done.set_result(outcome.results[start : start + len(some)])
                    start += len(some)
            if self._closing:
                return

    def _take(self) -> list[tuple[Sequence[Operation], asyncio.Future[list[Any]]]]:
        size, count = 0, 0
        for operations, _ in self._waiting:
            size += len(operations)
            count += 1
            if size >= MOST_IN_A_COMMIT:
                break
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group


def _as_ours(fault: Exception) -> Exception:
    return fault if isinstance(fault, StorageUnavailable) else StorageUnavailable(str(fault))
