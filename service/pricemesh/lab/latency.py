"""Latencies counted in buckets of equal ratio: any number of them in a few kilobytes, accurate to 1 %."""

from collections.abc import Iterator
from math import ceil, log10

import numpy as np

MIN_SECONDS, DECADES, PER_DECADE = 1e-6, 9, 231  # 231 buckets a decade: neighbours differ by 1 %
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


class Latencies:
    def __init__(self) -> None:
        self._counts = np.zeros(DECADES * PER_DECADE + 1, dtype=np.int64)
        self.count = 0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        bucket = int(log10(max(seconds, MIN_SECONDS) / MIN_SECONDS) * PER_DECADE + 0.5)
        self._counts[min(bucket, len(self._counts) - 1)] += 1
        self.count += 1
        self.longest = max(self.longest, seconds)

    def merge(self, other: "Latencies") -> None:
        self._counts += other._counts
        self.count += other.count
        self.longest = max(self.longest, other.longest)

    def at(self, share: float) -> float:
        """The quantile in seconds, accurate to 1 %; 0 when there are no latencies."""
        if not self.count:
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self._counts), max(1, ceil(share * self.count))))
        return min(float(MIN_SECONDS * 10 ** (bucket / PER_DECADE)), self.longest)

    def milliseconds(self) -> dict[str, float]:
        """The usual percentiles, and the maximum."""
        percentiles = {name: 1e3 * self.at(share) for name, share in PERCENTILES.items()}
        return percentiles | {"max": 1e3 * self.longest}

    def curve(self) -> Iterator[tuple[float, float]]:
        """Pairs of 1 / (1 - share) and seconds, up to the share that the number of calls can resolve."""
        beyond = 1.0
        while beyond <= max(self.count, 1):
            yield beyond, self.at(1.0 - 1.0 / beyond)
            beyond *= 10 ** (1 / 20)
