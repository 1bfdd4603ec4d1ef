"""Whether the wall clock can be believed: it is compared with the monotonic clock, which never steps.

A step (NTP, an operator, a machine that slept) must not close feedback windows, because a default reward is
for ever: docs/decisions/0012. Both clocks come from outside.
"""

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

log = logging.getLogger("pricemesh")

MAX_DRIFT = 0.001  # of a clock that is slewed, in seconds per second; NTP stays below half of it
READ_SECONDS = 1.0  # between two looks at the clock, so that a jump is logged soon


class Reading(NamedTuple):
    now: float  # Unix seconds by the wall clock
    earliest: float  # the same, or by the time believed before a jump where that is earlier
    is_steady: bool


class SteadyClock:
    """Steady until the wall clock steps by more than `max_step_seconds`, and again once it has kept its new
    time for `steady_seconds`. It looks at the clocks only when it is read."""

    def __init__(
        self,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        *,
        max_step_seconds: float,
        steady_seconds: float,
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._max_step_seconds = max_step_seconds
        self._steady_seconds = steady_seconds
        self._offset_at = monotonic()
        self._offset = clock() - self._offset_at  # of the wall clock from the monotonic one
        self._believed_offset = self._offset  # the one before the jump, while the clock is not steady
        self._is_steady = True
        self._is_logged = False  # that it is not steady
        self._catch_up_time = -inf  # on the wall clock
        self._catch_up_deadline = inf  # on the monotonic clock
        self.steps = 0  # since the start
        self.reason: str | None = None  # why it is not steady

    def resume(self, newest_row_at: float, max_hold_seconds: float) -> None:
        """Continue a database whose newest row has this time. Nothing here can tell whether the clock stepped
        while no process ran, so a start counts as a step. A clock that is behind the newest row must catch
        up; after `max_hold_seconds` of this process every older decision has had its whole window."""
        now, elapsed = self._clock(), self._monotonic()
        self._offset, self._offset_at = now - elapsed, elapsed
        self._believed_offset = newest_row_at - elapsed
        self._is_steady = False
        self.reason = f"the city started less than {self._steady_seconds:g} s ago"
        behind_seconds = newest_row_at - now
        if behind_seconds <= self._max_step_seconds:
            return
        self._catch_up_time = newest_row_at - self._max_step_seconds
        self._catch_up_deadline = elapsed + max_hold_seconds
        self._is_logged = True
        self.reason = f"the city started with a clock {behind_seconds:.0f} s behind its newest row"
        log.warning(
            "the clock is behind the newest row of the database: no feedback window closes until it has "
            "caught up; set the clock",
            extra={"behind_seconds": round(behind_seconds, 3), "max_hold_seconds": max_hold_seconds},
        )

    def read(self) -> Reading:
        before = self._monotonic()
        now = self._clock()
        elapsed = self._monotonic()
        offset = now - elapsed
        step = offset - self._offset
        age_seconds = elapsed - self._offset_at
        # This process may have waited between two of these lines.
        if abs(step) > self._max_step_seconds + MAX_DRIFT * age_seconds + (elapsed - before):
            self._jump(step, offset, elapsed)
        elif age_seconds >= self._steady_seconds:
            if self._is_steady:
                self._offset, self._offset_at = offset, elapsed  # follow slow drift
            elif now >= self._catch_up_time or elapsed >= self._catch_up_deadline:
                self._believe(offset, elapsed)
        earliest = now if self._is_steady else min(now, self._believed_offset + elapsed)
        return Reading(now, earliest, self._is_steady)

    def as_dict(self) -> dict[str, Any]:
        """What `/state` shows."""
        return {"steady": self.read().is_steady, "reason": self.reason, "steps": self.steps}

    def _jump(self, step: float, offset: float, elapsed: float) -> None:
        if self._is_steady:
            self._believed_offset = self._offset
        self._offset, self._offset_at = offset, elapsed
        self._is_steady = False
        self.steps += 1
        self.reason = f"the clock jumped by {step:+.1f} s"
        if not self._is_logged:
            self._is_logged = True
            log.warning(
                "the clock jumped: no feedback window closes until it is steady",
                extra={"step_seconds": round(step, 3), "steady_seconds": self._steady_seconds},
            )

    def _believe(self, offset: float, elapsed: float) -> None:
        if self._is_logged:
            change = offset - self._believed_offset
            log.warning(
                "the clock is steady again: feedback windows close by its present time",
                extra={"change_seconds": round(change, 3)},
            )
        self._offset, self._offset_at, self._believed_offset = offset, elapsed, offset
        self._is_steady, self._is_logged, self.reason = True, False, None
        self._catch_up_time, self._catch_up_deadline = -inf, inf


async def watch(clock: SteadyClock) -> None:
    """Read the clock for ever: a jump is logged also while nobody asks for the time."""
    while True:
        clock.read()
        await asyncio.sleep(READ_SECONDS)
