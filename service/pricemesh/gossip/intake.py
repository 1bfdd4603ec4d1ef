"""What other cities send: letters are checked, committed, and only then counted. A letter that is refused
puts the city to blame into quarantine (`quarantine.py`)."""

import asyncio
import logging
from collections.abc import Iterable, Sequence

import numpy as np

from pricemesh.city.pricing import Pricing
from pricemesh.city.reading import drop
from pricemesh.core.summary import Summary
from pricemesh.errors import BadSummary
from pricemesh.gossip.discovery import Discovery
from pricemesh.gossip.letter import Letter
from pricemesh.gossip.message import Message
from pricemesh.gossip.node import CheckedLetters, Node, is_newer, read_letter
from pricemesh.gossip.peers import Counts
from pricemesh.gossip.publisher import Publisher
from pricemesh.gossip.quarantine import Quarantine
from pricemesh.store.commands import Probe, SaveLetters

log = logging.getLogger("pricemesh.gossip")


class Intake:
    def __init__(
        self, pricing: Pricing, node: Node, publisher: Publisher, discovery: Discovery, counts: Counts
    ) -> None:
        self._pricing = pricing
        self._node = node
        self._publisher = publisher
        self._discovery = discovery
        self._counts = counts
        self._clock = pricing.runtime.clock
        self.quarantine = Quarantine(node, self._clock)
        self.received_at: dict[str, float] = {}  # by origin
        self._taking = asyncio.Lock()
        self._tasks: set[asyncio.Future[set[str]]] = set()  # referred to, so that none is collected

    def restore(self, stored: Iterable[tuple[bytes, float]]) -> Letter | None:
        """Take the letters in the database that are still valid; returns this city's own, if it is not the
        one that is published."""
        own = None
        present = {letter.wire for letter in self._node.letters.values()}
        for wire, received_at in stored:
            if wire in present:
                continue
            try:
                letter = read_letter(wire)
                if letter.origin == self._node.origin:
                    own = letter
                    continue
                self._node.admit(letter, self._node.letters.get(letter.origin))
                check_summary(self._pricing, letter.summary)
            except BadSummary as fault:
                log.warning("a letter in the database does not count any more", extra={"fault": str(fault)})
                continue
            self._node.take([letter])
            self.received_at[letter.origin] = received_at
        return own

    async def receive(self, message: Message) -> set[str]:
        """Take everything that a message brings; returns the origins whose letters were refused. A caller
        that gives up does not end it: what is committed must come to count, and in its order."""
        task = asyncio.ensure_future(self._receive(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(drop)
        return await asyncio.shield(task)

    async def _receive(self, message: Message) -> set[str]:
        await self._discovery.learn(message.addresses)
        if not message.letters:
            self.quarantine.record_clean_exchange(message.sender)
            return set()
        checked = await self.take(message.letters, message.sender)
        if checked.own is not None:
            await self._publisher.renew(checked.own)
        return {refusal.origin for refusal in checked.refusals}

    async def take(self, wires: Sequence[bytes], sender: str) -> CheckedLetters:
        """One message at a time, so that no older letter is committed after a newer one. After a commit that
        failed, the database may have newer letters than the node, until another one succeeds."""
        async with self._taking:
            if self._pricing.health.is_lost:
                await self._pricing.commit(Probe())
            checked: CheckedLetters = await self._pricing.runtime.in_thread(self._node.check_letters, wires)
            self._counts["letters", "refused"] += len(checked.refusals)
            is_clean = self.quarantine.record(checked.refusals, sender)
            if checked.fresh:
                now = self._clock()
                await self._pricing.commit(
                    SaveLetters(
                        [(letter.origin, letter.wire) for letter in checked.fresh],
                        now,
                        is_newer if self._pricing.role.is_replica else None,
                    )
                )
                self._node.take(checked.fresh)
                self._counts["letters", "taken"] += len(checked.fresh)
                for letter in checked.fresh:
                    self.received_at[letter.origin] = now
                    self.quarantine.record_letter(letter.origin, sender, is_clean=is_clean)
        return checked


def check_summary(pricing: Pricing, summary: Summary) -> None:
    """Check that an honest city could have made it; BadSummary says why not."""
    learner, settings = pricing.learner, pricing.settings
    numbers = summary.numbers
    if numbers.size != learner.layout.size:
        raise BadSummary(f"it has {numbers.size} numbers, a summary here has {learner.layout.size}")
    if not np.isfinite(numbers).all():
        raise BadSummary("it has numbers that are not finite")
    parts = learner.layout.unpack(numbers)
    learner.check(parts, summary.version, settings.longest_square, settings.largest_reward)
