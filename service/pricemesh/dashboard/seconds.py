"""What happened in a city, second by second: decisions by arm, lessons, rewards, the versions held.

Made from counts that the use cases keep anyway, looked at once a second: a price does nothing for it.
"""

from collections import deque
from typing import Any

import numpy as np

from pricemesh.city.pricing import Pricing
from pricemesh.gossip.mesh import Gossip

SECONDS_KEPT = 300
VERSIONS_EVERY = 5  # looks


class Seconds:
    def __init__(self, pricing: Pricing, gossip: Gossip) -> None:
        self._pricing = pricing
        self._gossip = gossip
        self._decided = list(pricing.decided)
        self._lessons = self._rewards = 0.0
        self.looks = 0
        self._kept: deque[dict[str, Any]] = deque(maxlen=SECONDS_KEPT)
        self._versions: dict[str, deque[tuple[float, int]]] = {}

    def begin(self) -> None:
        """From what the learner holds now: what was learned before the start was not learned in a second."""
        self._lessons, self._rewards = self._totals()

    def look(self, now: float) -> None:
        decided = list(self._pricing.decided)
        lessons, rewards = self._totals()
        counts = [
            [arm, n - was] for arm, (n, was) in enumerate(zip(decided, self._decided, strict=True)) if n > was
        ]
        self._kept.append(
            {
                "at": round(now, 3),
                "decisions": counts,
                "learned": int(lessons - self._lessons),
                "reward": rewards - self._rewards,
            }
        )
        self._decided, self._lessons, self._rewards = decided, lessons, rewards
        if self.looks % VERSIONS_EVERY == 0:
            self._look_at_versions(now)
        self.looks += 1

    def since(self, look: int) -> list[dict[str, Any]]:
        """Those of this look and later, as far as they are kept."""
        wanted = min(self.looks - look, len(self._kept))
        return list(self._kept)[len(self._kept) - wanted :]

    @property
    def versions(self) -> dict[str, list[tuple[float, int]]]:
        """By city, this one too: when which version was held."""
        return {origin: list(seen) for origin, seen in self._versions.items()}

    def _totals(self) -> tuple[float, float]:
        return float(np.sum(self._pricing.learned)), float(np.sum(self._pricing.reward_sums))

    def _look_at_versions(self, now: float) -> None:
        held = {origin: letter.summary.version for origin, letter in self._gossip.node.letters.items()}
        held[self._gossip.city] = self._pricing.version
        self._versions = {
            origin: self._versions.get(origin, deque(maxlen=SECONDS_KEPT // VERSIONS_EVERY))
            for origin in held
        }
        for origin, version in held.items():
            self._versions[origin].append((round(now, 3), version))
