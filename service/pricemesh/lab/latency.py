"""Latencies counted in buckets of equal ratio: any number of them in a few kilobytes, each within 1 %."""

from collections.abc import Iterator
from math import ceil, log10

import numpy as np

SHORTEST, DECADES, PER_DECADE = 1e-6, 9, 231  # 231 a decade: neighbours differ by 1 %
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


class Latencies:
    def __init__(self) -> None:
        self._counts = np.zeros(DECADES * PER_DECADE + 1, dtype=np.int64)
        self.count = 0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        place = int(log10(max(seconds, SHORTEST) / SHORTEST) * PER_DECADE + 0.5)
        self._counts[min(place, len(self._counts) - 1)] += 1
        self.count += 1
        self.longest = max(self.longest, seconds)

    def merge(self, other: "Latencies") -> None:
        self._counts += other._counts
        self.count += other.count
        self.longest = max(self.longest, other.longest)

    def at(self, share: float) -> float:
        """Seconds that this share of all did not exceed, within 1 %; 0 when there are none."""
        if not self.count:
            return 0.0
        place = int(np.searchsorted(np.cumsum(self._counts), max(1, ceil(share * self.count))))
        return min(float(SHORTEST * 10 ** (place / PER_DECADE)), self.longest)

    def milliseconds(self) -> dict[str, float]:
        """At the percentiles people ask for."""
        named = {name: 1e3 * self.at(share) for name, share in PERCENTILES.items()}
        return named | {"max": 1e3 * self.longest}

    def curve(self) -> Iterator[tuple[float, float]]:
        """(1 / (1 - share), seconds), as far as so many calls can tell."""
        beyond = 1.0
        while beyond <= max(self.count, 1):
            yield beyond, self.at(1.0 - 1.0 / beyond)
            beyond *= 10 ** (1 / 20)
