"""The last five minutes of a city, second by second: decisions by arm, feedback learned, rewards, versions.

Made from differences of counts that the city keeps anyway. Deciding a price does no work for it.
"""

from collections import deque
from typing import Any

import numpy as np

from pricemesh.city.pricing import Pricing
from pricemesh.gossip.mesh import Gossip

MAX_SECONDS = 300
VERSIONS_EVERY = 5  # seconds


class History:
    def __init__(self, pricing: Pricing, gossip: Gossip) -> None:
        self._pricing = pricing
        self._gossip = gossip
        self._decisions = list(pricing.live.decision_counts)
        self._lessons = self._rewards = 0.0
        self.length = 0  # seconds recorded since the start, also those no longer held
        self._seconds: deque[dict[str, Any]] = deque(maxlen=MAX_SECONDS)
        self._versions: dict[str, deque[tuple[float, int]]] = {}

    def start(self) -> None:
        """Count from here: what a restart loaded was not learned in the first second."""
        self._lessons, self._rewards = self._totals()

    def record(self, now: float) -> None:
        """Add the second that ends now."""
        decisions = list(self._pricing.live.decision_counts)
        lessons, rewards = self._totals()
        pairs = enumerate(zip(decisions, self._decisions, strict=True))
        self._seconds.append(
            {
                "at": round(now, 3),
                "decisions": [[arm, count - before] for arm, (count, before) in pairs if count > before],
                "learned": int(lessons - self._lessons),
                "reward": rewards - self._rewards,
            }
        )
        self._decisions, self._lessons, self._rewards = decisions, lessons, rewards
        if self.length % VERSIONS_EVERY == 0:
            self._record_versions(now)
        self.length += 1

    def since(self, start: int) -> list[dict[str, Any]]:
        """The seconds from number `start` on, as far as they are still held."""
        count = min(self.length - start, len(self._seconds))
        return list(self._seconds)[len(self._seconds) - count :]

    @property
    def versions(self) -> dict[str, list[tuple[float, int]]]:
        """(time, version) pairs by city, this one included."""
        return {origin: list(points) for origin, points in self._versions.items()}

    def _totals(self) -> tuple[float, float]:
        return float(np.sum(self._pricing.live.lesson_counts)), float(np.sum(self._pricing.live.reward_sums))

    def _record_versions(self, now: float) -> None:
        versions = {origin: letter.summary.version for origin, letter in self._gossip.node.letters.items()}
        versions[self._gossip.city] = self._pricing.version
        max_points = MAX_SECONDS // VERSIONS_EVERY
        self._versions = {origin: self._versions.get(origin, deque(maxlen=max_points)) for origin in versions}
        for origin, version in versions.items():
            self._versions[origin].append((round(now, 3), version))
