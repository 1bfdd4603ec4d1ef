"""What other cities send: letters are checked, committed, and only then counted. A letter that is refused
puts the city to blame into quarantine (`quarantine.py`)."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pricemesh.city.pricing import Pricing
from pricemesh.city.reading import drop
from pricemesh.core.policies import Learner
from pricemesh.core.summary import Summary
from pricemesh.errors import BadSummary
from pricemesh.gossip.difference import Difference
from pricemesh.gossip.discovery import Discovery
from pricemesh.gossip.letter import Letter, is_newer, read_letter
from pricemesh.gossip.message import Message
from pricemesh.gossip.node import CheckedLetters, Node
from pricemesh.gossip.peers import Counts
from pricemesh.gossip.publisher import Publisher
from pricemesh.gossip.quarantine import Quarantine
from pricemesh.store.commands import Probe, SaveLetters

log = logging.getLogger("pricemesh.gossip")


class Reception(NamedTuple):
    """What was not taken of a message."""

    refused_origins: Collection[str]
    unbuilt_origins: Collection[str]  # of differences from letters that this city does not have


NOTHING_MISSED = Reception((), ())


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
        self._tasks: set[asyncio.Future[Reception]] = set()  # referred to, so that none is collected

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
                self._node.check_summary(letter.summary)
            except BadSummary as fault:
                log.warning("a letter in the database does not count any more", extra={"fault": str(fault)})
                continue
            self._node.take([letter])
            self.received_at[letter.origin] = received_at
        return own

    async def receive(self, message: Message) -> Reception:
        """Take everything that a message brings. A caller that gives up does not end it: what is committed
        must come to count, and in its order."""
        task = asyncio.ensure_future(self._receive(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(drop)
        return await asyncio.shield(task)

    async def _receive(self, message: Message) -> Reception:
        await self._discovery.learn(message.addresses)
        if not message.letters and not message.differences:
            self.quarantine.record_clean_exchange(message.sender)
            return NOTHING_MISSED
        checked = await self.take(message.letters, message.sender, message.differences)
        if checked.own is not None:
            await self._publisher.renew(checked.own)
        return Reception({refusal.origin for refusal in checked.refusals}, checked.unbuilt_origins)

    async def take(
        self, wires: Sequence[bytes], sender: str, differences: Sequence[Difference] = ()
    ) -> CheckedLetters:
        """One message at a time, so that no older letter is committed after a newer one. After a commit that
        failed, the database may have newer letters than the node, until another one succeeds."""
        async with self._taking:
            if self._pricing.health.is_lost:
                await self._pricing.commit(Probe())
            checked: CheckedLetters = await self._pricing.runtime.in_thread(
                self._node.check_letters, wires, differences
            )
            self._counts["letters", "refused"] += len(checked.refusals)
            self._counts["letters", "unbuilt"] += len(checked.unbuilt_origins)
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


def check_summary(learner: Learner, max_square: float, max_reward: float, summary: Summary) -> None:
    """Check that an honest city could have made it; BadSummary says why not."""
    numbers, layout = summary.numbers, learner.layout
    if numbers.size != layout.size:
        raise BadSummary(f"it has {numbers.size} numbers, a summary here has {layout.size}")
    if not np.isfinite(numbers).all():
        raise BadSummary("it has numbers that are not finite")
    if len(summary.lags) not in (0, layout.block_count):
        raise BadSummary(
            f"it has versions of {len(summary.lags)} blocks, a summary here has {layout.block_count} blocks"
        )
    learner.check(layout.unpack(numbers), summary.version, max_square, max_reward)
