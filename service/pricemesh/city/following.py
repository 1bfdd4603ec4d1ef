"""When a replica looks at what others wrote: every FOLLOW_SECONDS, and when somebody waits for it."""

import asyncio
from collections.abc import Callable

from pricemesh.errors import StorageUnavailable
from pricemesh.store.commit_result import CommitResult

FOLLOW_SECONDS = 0.1
SHUTTING_DOWN = "this city is shutting down"

Look = Callable[[], CommitResult | None]


class Following:
    """Of one city's loop. `look` reads what others wrote; without it nobody else writes."""

    def __init__(self, look: Look | None, wake: Callable[[], None]) -> None:
        self._look = look
        self._wake = wake
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.interval_seconds = FOLLOW_SECONDS
        self.is_due = look is not None

    @property
    def look(self) -> Look:
        assert self._look is not None, "a city of one process"
        return self._look

    async def wait(self) -> None:
        """Returns when this replica knows all that was committed before the call."""
        if self._ended:
            raise StorageUnavailable(SHUTTING_DOWN)
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._set_due()
        await done

    def take(self) -> list[asyncio.Future[None]]:
        """Who waits for the look that begins now."""
        self.is_due = False
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, []
        return waiting

    def finish(self, waiting: list[asyncio.Future[None]], fault: StorageUnavailable | None) -> None:
        for done in waiting:
            if done.cancelled():
                continue
            if fault is None:
                done.set_result(None)
            else:
                done.set_exception(fault)
        if not self._ended and not self.is_due:
            self._timer = asyncio.get_running_loop().call_later(self.interval_seconds, self._set_due)

    def end(self) -> None:
        self._ended = True
        self.finish(self.take(), StorageUnavailable(SHUTTING_DOWN))

    def _set_due(self) -> None:
        if not self._ended:
            self.is_due = True
            self._wake()
