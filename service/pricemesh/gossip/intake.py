"""What other cities send: checked, kept, and only then held; what is refused, and who is to blame."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pricemesh.city.pricing import Pricing
from pricemesh.core.summary import Summary
from pricemesh.errors import BadSummary
from pricemesh.gossip.node import Node, Refusal, Sifted
from pricemesh.store.commands import SaveLetters

log = logging.getLogger("pricemesh.gossip")


@dataclass
class Quarantine:
    reason: str
    since: float
    via: str  # who brought it


class Intake:
    def __init__(
        self, pricing: Pricing, counts: Counter[tuple[str, str]], clock: Callable[[], float]
    ) -> None:
        settings = pricing.settings
        self._pricing = pricing
        self._counts = counts
        self._clock = clock
        self.node = Node(
            settings.city,
            settings.fingerprint,
            self.check,
            cities=settings.gossip.cities or None,
            most_cities=settings.gossip.most_cities,
            most_bytes=3 * settings.limits.body_bytes // 4,  # the rest is for the digest
        )
        self.quarantined: dict[str, Quarantine] = {}
        self.received_at: dict[str, float] = {}
        self._taking = asyncio.Lock()

    async def take(self, wires: Sequence[bytes], sender: str) -> Sifted:
        """Check, keep, then count. One message at a time, so that nothing older is kept after something
        newer."""
        async with self._taking:
            sifted = await asyncio.to_thread(self.node.sift, wires)
            for refusal in sifted.refused:
                self._refused(refusal, sender)
            if sifted.fresh:
                now = self._clock()
                kept = [(letter.origin, letter.wire) for letter in sifted.fresh]
                await self._pricing.commit(SaveLetters(kept, now))
                self.node.take(sifted.fresh)
                self._counts["letters", "taken"] += len(kept)
                for letter in sifted.fresh:
                    self.received_at[letter.origin] = now
                    if self.quarantined.pop(letter.origin, None):
                        log.info("no longer quarantined", extra={"peer": letter.origin})
        return sifted

    def _refused(self, refusal: Refusal, sender: str) -> None:
        """Whoever could have made it is to blame: its origin if the seal is its own, else who brought it."""
        self._counts["letters", "refused"] += 1
        if refusal.origin == self.node.origin:
            log.error(
                "letters in this city's name are sealed with another key: if its database was set up anew, "
                "its peers have to trust its new key",
                extra={"via": sender, "fault": refusal.reason},
            )
        blamed, reason = refusal.origin, refusal.reason
        if not refusal.sealed and refusal.origin != sender:
            blamed, reason = sender, f"it brought a letter of {refusal.origin or 'nobody'}: {reason}"
        known = self.quarantined.get(blamed)
        if known is None or known.reason != reason:
            log.warning("quarantined", extra={"peer": blamed, "reason": reason, "via": sender})
            if known is not None or len(self.quarantined) < 2 * self.node.most_cities:
                self.quarantined[blamed] = Quarantine(reason, self._clock(), sender)

    def check(self, summary: Summary) -> None:
        """Whether an honest city could have made it."""
        learner, settings = self._pricing.learner, self._pricing.settings
        numbers = summary.numbers
        if numbers.size != learner.layout.size:
            raise BadSummary(f"it has {numbers.size} numbers, a summary here has {learner.layout.size}")
        if not np.isfinite(numbers).all():
            raise BadSummary("it has numbers that are not finite")
        parts = learner.layout.unpack(numbers)
        learner.check(parts, summary.version, settings.longest_square, settings.feedback.largest_reward)
