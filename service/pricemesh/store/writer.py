"""The one writer: operations that wait together are committed together, and answered after the commit."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from pricemesh.errors import PricemeshError, StorageUnavailable
from pricemesh.store.commands import Command
from pricemesh.store.database import CommitResult, Database

MOST_WAITING = 20_000
MOST_IN_A_COMMIT = 4_000
# A commit costs this process nearly the same for one row and for many. So whoever was just answered or
# stands at the socket may come along: it looks there so often before the next one, which takes a quarter off
# the work of a busy city.
LOOKS = 2

log = logging.getLogger("pricemesh")
Done = Callable[[Any], None]  # called with a result, or with the fault there was instead


class Submitted(Protocol):
    """An operation, or what `ready` will make one of."""

    @property
    def size(self) -> int: ...


class _Group(NamedTuple):
    operations: list[Command]
    waiting: list[Done]
    size: int
    outcome: asyncio.Future[tuple[CommitResult | Exception, float]]  # with the seconds it took


class Writer:
    """Owns the thread that writes. `ready` makes operations of what waits, or faults, when their turn has
    come. `committed` is called on the event loop with every operation and its result, in order, after
    their commit and before anyone is answered."""

    def __init__(
        self,
        database: Database,
        ready: Callable[[Sequence[Any]], Sequence[Command | PricemeshError]],
        committed: Callable[[Sequence[Command], CommitResult], None],
        observed: Callable[[int, float], None],
    ) -> None:
        self._database = database
        self._ready = ready
        self._committed = committed
        self._observed = observed
        self._waiting: list[tuple[Submitted, Done]] = []
        self.waiting = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._groups: SimpleQueue[_Group | None] = SimpleQueue()
        self._thread = Thread(target=self._write, name="writer", daemon=True)
        self._thread.start()
        self._task = self._loop.create_task(self._run(), name="writer")

    def submit(self, operation: Submitted) -> asyncio.Future[Any]:
        """Its result, once it is committed, or why it was not."""
        done: asyncio.Future[Any] = self._loop.create_future()
        self.put(operation, lambda result: _settle(done, result))
        return done

    def put(self, operation: Submitted, done: Done) -> None:
        """The same for whoever would rather be called."""
        if self._closing:
            raise StorageUnavailable("the service is shutting down")
        size = operation.size
        if self.waiting + size > MOST_WAITING:
            raise StorageUnavailable("too much is waiting to be written; try again in a moment")
        self._waiting.append((operation, done))
        self.waiting += size
        if len(self._waiting) == 1:
            self._wake.set()

    async def close(self) -> None:
        """Commit what waits, then end the thread."""
        self._closing = True
        self._wake.set()
        await self._task
        self._groups.put(None)
        await asyncio.to_thread(self._thread.join)

    async def _run(self) -> None:
        group: _Group | None = None
        while group or self._waiting or not self._closing:
            if group is None:
                await self._wake.wait()
                self._wake.clear()
                group = self._begin()
                continue
            done, (outcome, seconds), group = group, await group.outcome, None
            for told, result in zip(done.waiting, self._results(done, outcome, seconds), strict=True):
                _tell(told, result)
            for _ in range(LOOKS):
                await asyncio.sleep(0)
            group = self._begin()

    def _results(self, group: _Group, outcome: CommitResult | Exception, seconds: float) -> Sequence[Any]:
        """Of each operation, once the learner knows what was committed."""
        self.waiting -= group.size
        if not isinstance(outcome, CommitResult):
            return [_as_ours(outcome)] * len(group.operations)
        self._observed(group.size, seconds)
        try:
            self._committed(group.operations, outcome)
        except Exception:  # a fault of our own: what is durable is durable, and the writer must go on
            log.exception("unforeseen, after a commit")
        return outcome.results

    def _begin(self) -> _Group | None:
        """Send what waits to the thread; None if nothing is left to be written."""
        if not self._waiting:
            return None
        taken, size = self._take()
        operations: list[Command] = []
        waiting: list[Done] = []
        for (asked, done), made in zip(taken, self._made_ready(taken), strict=True):
            if isinstance(made, Exception):
                size -= asked.size
                self.waiting -= asked.size
                _tell(done, made)
            else:
                operations.append(made)
                waiting.append(done)
        if not operations:
            self._wake.set()
            return None
        group = _Group(operations, waiting, size, self._loop.create_future())
        self._groups.put(group)
        return group

    def _made_ready(self, taken: list[tuple[Submitted, Done]]) -> Sequence[Command | Exception]:
        try:
            return self._ready([asked for asked, _ in taken])
        except Exception as fault:  # of our own: the writer must go on
            return [fault] * len(taken)

    def _take(self) -> tuple[list[tuple[Submitted, Done]], int]:
        """What goes into the next commit, and how much that is."""
        if self.waiting < MOST_IN_A_COMMIT:
            whole, self._waiting = self._waiting, []
            return whole, sum(operation.size for operation, _ in whole)
        size, count = 0, 0
        for operation, _ in self._waiting:
            size += operation.size
            count += 1
            if size >= MOST_IN_A_COMMIT:
                break
        some, self._waiting = self._waiting[:count], self._waiting[count:]
        return some, size

    def _write(self) -> None:
        """The thread: it is woken once for a group, and wakes the loop once."""
        while (group := self._groups.get()) is not None:
            started = perf_counter()
            outcome: CommitResult | Exception
            try:
                outcome = self._database.commit(group.operations)
            except Exception as fault:
                outcome = fault
            self._loop.call_soon_threadsafe(group.outcome.set_result, (outcome, perf_counter() - started))


def _as_ours(fault: Exception) -> StorageUnavailable:
    return fault if isinstance(fault, StorageUnavailable) else StorageUnavailable(str(fault))


def _tell(done: Done, result: Any) -> None:
    try:
        done(result)
    except Exception:  # the others of the group are waiting
        log.exception("unforeseen")


def _settle(done: asyncio.Future[Any], result: Any) -> None:
    if done.done():
        return
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)
