"""A token bucket per caller: so many calls a second, with a second's worth at once.

A batch is let in like a single call and pays for its size afterwards, in debt if need be: so a batch larger
than the bucket is possible, and its caller gets nothing else until the debt is paid.
"""

from collections.abc import Callable

from pricemesh.errors import TooFast

MAX_CALLERS = 100_000


class RateLimiter:
    def __init__(self, rate_per_second: float, monotonic: Callable[[], float]) -> None:
        self._rate = rate_per_second
        self._burst = max(1.0, rate_per_second)
        self._monotonic = monotonic
        self._buckets: dict[str, tuple[float, float]] = {}  # id: (tokens left, when)

    def take(self, id_: str) -> None:
        """Count a call of this caller; TooFast says when it may call again."""
        self._take(id_, 1, min_tokens=1.0)

    def charge(self, id_: str, calls: int) -> None:
        """Count more calls of a caller after `take`. TooFast where another of its batches has used up the
        bucket since then."""
        self._take(id_, calls, min_tokens=0.0)

    def _take(self, id_: str, calls: int, *, min_tokens: float) -> None:
        now = self._monotonic()
        if len(self._buckets) > MAX_CALLERS and id_ not in self._buckets:
            self._buckets.clear()
        tokens, then = self._buckets.get(id_, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        if tokens < min_tokens:
            self._buckets[id_] = (tokens, now)
            raise TooFast((1.0 - tokens) / self._rate)
        self._buckets[id_] = (tokens - calls, now)
