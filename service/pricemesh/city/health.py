"""Whether the database takes commits; if not, why, and the probes that find out when it does again.

Lives on the event loop. A city that is not ready gets no traffic, so nothing but a probe would show that it
is well again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pricemesh.city.reading import drop, no_answer_is_a_fault
from pricemesh.errors import StepConflict, StorageCause, StorageUnavailable
from pricemesh.runtime import Runtime

PROBE_PAUSE_SECONDS = 0.5  # from the end of a probe to the next
MAX_COMMIT_SECONDS = 2.0  # a commit that takes longer hangs: nobody else is served meanwhile
CHECK_SECONDS = 1.5  # for the database to answer a readiness check
LOSSES = {
    StorageCause.TIMEOUT,
    StorageCause.CONNECTION_LOST,
    StorageCause.GONE,
    StorageCause.OTHER_TERMS,
}

log = logging.getLogger("pricemesh")


class Ticket(Protocol):
    def settle(self, result: Any) -> None: ...


class DatabaseHealth:
    def __init__(
        self,
        runtime: Runtime,
        *,
        check: Callable[[], str | None],
        submit_probe: Callable[[Ticket], None],
    ) -> None:
        """`check` reads from the database, in a thread, and returns its fault; `submit_probe` queues a commit
        that changes nothing."""
        self._in_thread = runtime.in_thread
        self._monotonic = runtime.monotonic
        self._check = check
        self._submit_probe = submit_probe
        self.fault: StorageUnavailable | None = None  # of the newest commit, unless it succeeded
        self.failures: Counter[StorageCause] = Counter()  # commits, since the start
        self.commit_began_at: float | None = None  # monotonic; of the commit under way
        self._lost_at = 0.0  # monotonic
        self._timer: asyncio.TimerHandle | None = None
        self._is_probing = False
        self._is_closed = False
        self._check_task: asyncio.Future[str | None] | None = None
        self._check_fault: str | None = None  # what the newest check found

    @property
    def is_lost(self) -> bool:
        return self.fault is not None

    @property
    def is_outdated(self) -> bool:
        """Whether the city was reshaped: this process can never commit again."""
        return self.fault is not None and self.fault.cause == StorageCause.OTHER_TERMS

    @property
    def is_ready(self) -> bool:
        """By what was seen last."""
        return self.fault is None and self._check_fault is None and not self._commit_hangs

    @property
    def _commit_hangs(self) -> bool:
        """A disk that hangs lets nobody know but in this way."""
        began_at = self.commit_began_at
        return began_at is not None and self._monotonic() - began_at > MAX_COMMIT_SECONDS

    # What the loop reports

    def commit_failed(self, fault: StorageUnavailable) -> None:
        if isinstance(fault, StepConflict):  # no fault of the database's
            return
        self.failures[fault.cause] += 1
        if fault.cause == StorageCause.REFUSED:  # the next commit may well succeed
            return
        if self.fault is None:
            self._lost_at = self._monotonic()
            log.warning(
                "the database is lost: nothing is committed until it is back",
                extra={"cause": fault.cause.value, "fault": str(fault)},
            )
        self.fault = fault
        # Callers that waited behind a commit that timed out are not to wait for a probe as well.
        self._probe_after(PROBE_PAUSE_SECONDS if fault.cause == StorageCause.TIMEOUT else 0.0)

    def read_failed(self, fault: StorageUnavailable) -> None:
        """A look-up on the writer's connection. What it says of a row is no fault of the database's."""
        if fault.cause in LOSSES:
            self.commit_failed(fault)

    def commit_succeeded(self, faults: Sequence[StorageUnavailable] = ()) -> None:
        """`faults` are those of single commands in a group that was committed one by one."""
        for fault in faults:
            self.commit_failed(fault)
        if self.fault is None or any(fault.cause != StorageCause.REFUSED for fault in faults):
            return
        log.warning(
            "the database is back: commits succeed again",
            extra={
                "cause": self.fault.cause.value,
                "lost_seconds": round(self._monotonic() - self._lost_at, 3),
            },
        )
        self.fault = None

    # Readiness

    async def check(self) -> str | None:
        """Why a commit would not succeed now. Answers within CHECK_SECONDS, whatever the database does; all
        who ask at the same time share one thread."""
        if self.fault is not None:
            return str(self.fault)
        if self._commit_hangs:
            return f"a commit has taken more than {MAX_COMMIT_SECONDS:g} s and has not ended"
        if self._check_task is None or self._check_task.done():
            self._check_task = asyncio.ensure_future(self._in_thread(self._check))
            self._check_task.add_done_callback(drop)
        try:
            with no_answer_is_a_fault(CHECK_SECONDS):
                async with asyncio.timeout(CHECK_SECONDS):
                    self._check_fault = await asyncio.shield(self._check_task)
        except StorageUnavailable as fault:
            self._check_fault = str(fault)
        if self._check_fault is not None:
            self._probe_after(PROBE_PAUSE_SECONDS)
        return self._check_fault

    # Probes

    def _probe_after(self, seconds: float) -> None:
        if self._timer is None and not self._is_probing and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._probe)

    def _probe(self) -> None:
        self._timer = None
        try:
            self._submit_probe(self)
            self._is_probing = True
        except StorageUnavailable:  # too much waits already
            self._probe_after(PROBE_PAUSE_SECONDS)

    def settle(self, result: Any) -> None:  # noqa: ARG002
        """A probe has ended; the loop has reported its commit."""
        self._is_probing = False
        if self.fault is not None:
            self._probe_after(PROBE_PAUSE_SECONDS)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
