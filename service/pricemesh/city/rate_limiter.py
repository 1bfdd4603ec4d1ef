"""A token bucket per caller: so many calls a second, with a second's worth at once.

A batch is let in like a single call and pays for its size afterwards, in debt if need be: so a batch larger
than the bucket is possible, and its caller gets nothing else until the debt is paid.
"""

from collections.abc import Callable

from pricemesh.errors import TooFast

MAX_CALLERS = 100_000
_OTHERS = ""  # the bucket that callers share while the table is full


class RateLimiter:
    """The table is bounded. A bucket that has filled up again says the same as none, so it makes room; while
    none has, callers that are not in the table share one bucket, and those in it keep theirs."""

    def __init__(
        self, rate_per_second: float, monotonic: Callable[[], float], max_callers: int = MAX_CALLERS
    ) -> None:
        self._rate = rate_per_second
        self._burst = max(1.0, rate_per_second)
        self._monotonic = monotonic
        self._max_callers = max_callers
        self._buckets: dict[str, tuple[float, float]] = {}  # id: (tokens left, when), the latest last

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, id_: str) -> None:
        """Count a call of this caller; TooFast says when it may call again."""
        self._take(id_, 1, min_tokens=1.0)

    def charge(self, id_: str, calls: int) -> None:
        """Count more calls of a caller after `take`. TooFast where another of its batches has used up the
        bucket since then."""
        self._take(id_, calls, min_tokens=0.0)

    def _take(self, id_: str, calls: int, *, min_tokens: float) -> None:
        now = self._monotonic()
        bucket = self._buckets.pop(id_, None)
        if bucket is None and len(self._buckets) >= self._max_callers and not self._make_room(now):
            id_ = _OTHERS
            bucket = self._buckets.pop(id_, None)
        tokens, then = bucket or (self._burst, now)
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        self._buckets[id_] = (tokens if tokens < min_tokens else tokens - calls, now)
        if tokens < min_tokens:
            raise TooFast((1.0 - tokens) / self._rate)

    def _make_room(self, now: float) -> bool:
        """Whether the bucket that was used longest ago is full again, and so could be removed."""
        id_, (tokens, then) = next(iter(self._buckets.items()))
        if tokens + (now - then) * self._rate < self._burst:
            return False
        del self._buckets[id_]
        return True
