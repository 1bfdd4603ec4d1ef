"""Token buckets in a bounded table."""

import pytest

from pricemesh.city.rate_limiter import RateLimiter
from pricemesh.errors import TooFast


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_full_table_gives_nobody_new_calls_and_takes_nobodys_bucket() -> None:
    limiter = RateLimiter(2.0, Clock(), max_callers=3)
    for _ in range(2):
        limiter.take("busy")
    for i in range(2):
        limiter.take(f"stranger{i}")
    for i in range(2):
        limiter.take(f"newcomer{i}")  # these share one bucket
    for name in ("busy", "newcomer2"):
        with pytest.raises(TooFast):
            limiter.take(name)
    limiter.take("stranger0")
    assert len(limiter) == 4


def test_buckets_that_have_filled_up_make_room() -> None:
    clock = Clock()
    limiter = RateLimiter(2.0, clock, max_callers=3)
    for i in range(300):
        clock.now += 0.5
        limiter.take(f"caller{i}")
        limiter.take(f"caller{i}")
        with pytest.raises(TooFast):
            limiter.take(f"caller{i}")
        assert len(limiter) <= 4


def test_a_slow_rate_is_kept_after_a_refusal() -> None:
    clock = Clock()
    limiter = RateLimiter(0.5, clock)
    limiter.take("a")
    clock.now = 1.0
    with pytest.raises(TooFast) as refused:
        limiter.take("a")
    assert refused.value.retry_after_seconds == 1.0
    clock.now = 2.0
    limiter.take("a")
