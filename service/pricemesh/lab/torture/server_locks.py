"""Locks of the simulated server: who has one, and who waits for it, in order."""

import sqlite3
from collections import deque
from typing import Any, Protocol

from pricemesh.lab.torture.network import OUTSIDE
from pricemesh.lab.torture.threads import Wake, current_thread
from pricemesh.lab.torture.virtual_loop import VirtualLoop


class ServerError(sqlite3.OperationalError):
    """An error that the server reports: the transaction is rolled back, the session stays."""

    def __init__(self, sqlstate: str, text: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


class Holder(Protocol):
    is_open: bool

    def limit_seconds(self, name: str) -> float | None: ...


class Lock:
    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.holder: Any = None
        self.sharers: set[Any] = set()  # sessions that have it together, and nobody alone
        self._queue: deque[tuple[Holder, Wake]] = deque()

    def try_acquire(self, session: Holder) -> bool:
        if self.holder is None and not self.sharers - {session}:
            self.holder = session
        return self.holder is session

    def try_share(self, session: Holder) -> bool:
        if self.holder is None:
            self.sharers.add(session)
        return session in self.sharers

    def acquire(self, session: Holder) -> None:
        """In a thread of the server, which waits; ServerError after the session's limit."""
        if self.try_acquire(session):
            return
        limit_seconds = session.limit_seconds("lock_timeout")

        def queue(wake: Wake) -> None:
            self._queue.append((session, wake))
            if limit_seconds is not None:
                fault = ServerError("55P03", "canceling statement due to lock timeout")
                self._loop.call_later(limit_seconds, wake, None, fault, context=OUTSIDE)

        thread = current_thread()
        assert thread is not None
        thread.wait(queue)

    def release(self, session: Holder) -> None:
        self.sharers.discard(session)
        if self.holder is not session:
            return
        self.holder = None
        while self._queue:
            other, wake = self._queue.popleft()
            if other.is_open and not wake.is_used:
                self.holder = other
                self._loop.call_soon(self._hand_over, other, wake, context=OUTSIDE)
                return

    def _hand_over(self, session: Holder, wake: Wake) -> None:
        """Unless the session has ended, or its wait, in the same moment."""
        if session.is_open and not wake.is_used:
            wake()
        else:
            self.release(session)
