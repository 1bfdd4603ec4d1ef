"""A token bucket per caller: so many calls a second, with a second's worth at once."""

from collections.abc import Callable

from pricemesh.errors import TooFast

MAX_CALLERS = 100_000


class RateLimiter:
    def __init__(self, rate_per_second: float, monotonic: Callable[[], float]) -> None:
        self._rate = rate_per_second
        self._monotonic = monotonic
        self._buckets: dict[str, tuple[float, float]] = {}  # id: (tokens left, when)

    def take(self, id_: str) -> None:
        """Count a call of this caller; TooFast says when it may call again."""
        burst = max(1.0, self._rate)
        now = self._monotonic()
        if len(self._buckets) > MAX_CALLERS and id_ not in self._buckets:
            self._buckets.clear()
        tokens, then = self._buckets.get(id_, (burst, now))
        tokens = min(burst, tokens + (now - then) * self._rate)
        if tokens < 1.0:
            self._buckets[id_] = (tokens, now)
            raise TooFast((1.0 - tokens) / self._rate)
        self._buckets[id_] = (tokens - 1.0, now)
