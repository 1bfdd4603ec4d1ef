"""Letters start to count in the learner here, and only when some city has learned something since."""

import asyncio

from pricemesh.city.pricing import Pricing
from pricemesh.gossip.node import Node
from pricemesh.gossip.peers import Counts

Progress = dict[str, tuple[int, float]]  # by origin: epoch and number of lessons


class Absorber:
    def __init__(self, pricing: Pricing, node: Node, counts: Counts) -> None:
        self._pricing = pricing
        self._node = node
        self._counts = counts
        self._last: Progress = {}  # when letters were last absorbed
        self._learners = 0  # that have taken another's place
        self._absorbing = asyncio.Lock()

    def restore(self) -> None:
        """After a restart, let the letters count as they did before."""
        if self._pricing.restore_peers(self._node.summaries):
            self._last = self._progress()

    def forget(self) -> None:
        """Absorb all letters at the next tick: another learner serves now, which may lack the newest."""
        self._last = {}
        self._learners += 1

    async def absorb(self, *, always: bool = False) -> bool:
        """Whether there was anything to absorb. Versions do not tell: Net-SGD-UCB's mixing raises them, and
        an idle mesh would never come to rest."""
        async with self._absorbing:
            progress, learners = self._progress(), self._learners
            if not self._pricing.learner.fields or (progress == self._last and not always):
                return False
            await self._pricing.absorb(self._node.summaries)
            if learners == self._learners:
                self._last = progress
            self._counts["absorbed", ""] += 1
            return True

    def _progress(self) -> Progress:
        layout = self._pricing.learner.layout
        return {
            origin: (letter.summary.epoch, float(layout.part("count", letter.summary.numbers).sum()))
            for origin, letter in self._node.letters.items()
            if origin != self._node.origin
        }
