"""How long a connection may wait for its caller's bytes, by what it waits for. Knows no sockets, no timers.

A body has `limits.body_seconds`, and as long again whenever it came at `MIN_BODY_BYTES_PER_SECOND` meanwhile:
a long body on a slow line takes the time it needs, and a byte now and then does not hold the connection.
"""

from collections.abc import Callable
from enum import StrEnum

from pricemesh.city.operating_settings import LimitSettings
from pricemesh.http.parsing import Unparsable

MIN_BODY_BYTES_PER_SECOND = 4096


class Stage(StrEnum):
    FIRST_REQUEST = "first request"
    HEADERS = "headers"
    BODY = "body"
    NEXT_REQUEST = "next request"
    ANSWER = "answer"  # of the city: the caller has sent its part


# Names of their own: Python 3.11 finds a member of an enumeration slowly, and every price passes here.
ANSWER, NEXT_REQUEST = Stage.ANSWER, Stage.NEXT_REQUEST
LATE_STAGES = (Stage.FIRST_REQUEST, Stage.HEADERS, Stage.BODY)  # whose end was due; others may end any time


SECONDS_BETWEEN_LOOKS = 5.0


class StageClock:
    """`stage` may be set to ANSWER directly, which costs a price nothing."""

    __slots__ = ("_limits", "_since", "_time", "body_bytes", "stage")

    def __init__(self, limits: LimitSettings, time: Callable[[], float]) -> None:
        self._limits = limits
        self._time = time
        self._since = time()
        self.stage = Stage.FIRST_REQUEST
        self.body_bytes = 0  # since the stage began

    def enter(self, stage: Stage) -> None:
        """Begin a stage, unless it has begun: bytes that do not end a stage do not prolong it."""
        if stage is not self.stage:
            self.stage = stage
            self._since = self._time()
            self.body_bytes = 0

    def wait_for_request(self) -> None:
        if self.stage is ANSWER:
            self.stage = NEXT_REQUEST
            self._since = self._time()
        elif self.stage is not Stage.FIRST_REQUEST:
            self.enter(NEXT_REQUEST)

    def seconds_to_next_look(self, *, may_send: bool = True) -> float:
        """At whether the caller is late; 0 or less where it is."""
        return min(self.seconds_left, SECONDS_BETWEEN_LOOKS) if may_send else SECONDS_BETWEEN_LOOKS

    @property
    def seconds_left(self) -> float:
        """0 or less where the caller is late. A body that comes fast enough begins its time anew."""
        if self.stage is Stage.ANSWER:
            return self._limits.idle_seconds
        seconds_left = self._limit_seconds - (self._time() - self._since)
        if seconds_left <= 0 and self._body_is_on_its_way:
            self._since = self._time()
            self.body_bytes = 0
            return self._limit_seconds
        return seconds_left

    @property
    def _body_is_on_its_way(self) -> bool:
        min_bytes = MIN_BODY_BYTES_PER_SECOND * (self._time() - self._since)
        return self.stage is Stage.BODY and self.body_bytes >= min_bytes

    @property
    def _limit_seconds(self) -> float:
        if self.stage is Stage.NEXT_REQUEST:
            return self._limits.idle_seconds
        if self.stage is Stage.BODY:
            return self._limits.body_seconds
        return self._limits.header_seconds

    @property
    def fault(self) -> Unparsable | None:
        """What a late caller is told; None where it has not begun to ask."""
        limits = self._limits
        if self.stage is Stage.HEADERS:
            detail = f"the headers must arrive within {limits.header_seconds:g} s (limits.header_seconds)"
        elif self.stage is Stage.BODY:
            detail = (
                f"the body must arrive within {limits.body_seconds:g} s (limits.body_seconds), or at "
                f"{MIN_BODY_BYTES_PER_SECOND} bytes a second"
            )
        else:
            return None
        return Unparsable(408, "request-timeout", detail)
