"""A city's gossip as one object: builds the parts, starts and stops them, ticks.

It lives on the event loop beside the prices. Work that takes long runs in threads, so no price waits for it.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from pricemesh.city.pricing import Pricing
from pricemesh.errors import BadSummary, StorageUnavailable
from pricemesh.gossip.absorber import Absorber
from pricemesh.gossip.client import GossipClient
from pricemesh.gossip.digests import DigestMemory
from pricemesh.gossip.discovery import Discovery
from pricemesh.gossip.intake import Intake, check_summary
from pricemesh.gossip.node import Node
from pricemesh.gossip.operators import Operators
from pricemesh.gossip.peers import AddressBook, Counts
from pricemesh.gossip.publisher import Publisher
from pricemesh.gossip.server import GossipServer
from pricemesh.gossip.signing import Keyring
from pricemesh.store.present_state import MeshRecord

log = logging.getLogger("pricemesh.gossip")

MEMORIES_PER_PARTNER = 8  # cities whose digest is remembered, for each that a tick calls


class Gossip:
    def __init__(self, pricing: Pricing) -> None:
        settings = pricing.settings
        self.pricing = pricing
        self.city = settings.city
        self.settings = settings.gossip
        self.counts: Counts = Counts()
        self.node = _node_of(pricing)
        self.book = AddressBook(
            settings.gossip.address or "",
            settings.gossip.fan_out,
            2 * settings.gossip.most_cities,
            is_known=self.node.is_known,
            city=settings.city,
        )
        # Partners call this city about as often as it calls them.
        self.memory = DigestMemory(MEMORIES_PER_PARTNER * settings.gossip.fan_out, self.node.is_known)
        self.publisher = Publisher(pricing, self.node)
        self.discovery = Discovery(pricing, self.book)
        self.intake = Intake(pricing, self.node, self.publisher, self.discovery, self.counts)
        self.absorber = Absorber(pricing, self.node, self.counts)
        self.keyring = keyring = Keyring(
            settings.city,
            settings.gossip.secrets,
            pricing.runtime.random_bytes,
            pricing.runtime.monotonic,
        )
        self.client = GossipClient(
            pricing,
            node=self.node,
            book=self.book,
            memory=self.memory,
            publisher=self.publisher,
            intake=self.intake,
            keyring=keyring,
            counts=self.counts,
        )
        self.server = GossipServer(
            pricing,
            node=self.node,
            book=self.book,
            memory=self.memory,
            publisher=self.publisher,
            intake=self.intake,
            discovery=self.discovery,
            keyring=keyring,
            counts=self.counts,
        )
        self.operators = Operators(
            pricing,
            node=self.node,
            book=self.book,
            memory=self.memory,
            publisher=self.publisher,
            intake=self.intake,
            absorber=self.absorber,
            client=self.client,
        )
        self._is_opened = False
        self._ticking: asyncio.Task[None] | None = None

    @property
    def ticks(self) -> int:
        return self.book.ticks

    @property
    def left(self) -> bool:
        return self.publisher.has_left

    # Start and end

    def open(self) -> None:
        """Continue from what the database has; `Pricing.open` comes first."""
        record = self.pricing.mesh_record
        self.keyring.mark_start()
        self.publisher.open()
        self._check_own_key()
        self.node.restore(record.dropped, record.trusted)
        self.book.add(self.settings.peers, is_configured=True)
        self.discovery.restore(record.peers)
        if self.publisher.shares:
            self.publisher.resume(self.intake.restore(record.letters))
            self.absorber.restore()
        self.pricing.recover_mesh = self.recover
        self.pricing.relearner.summaries = lambda: self.node.summaries
        self.pricing.relearner.begin_epoch = self._begin_epoch
        self._is_opened = True

    def _begin_epoch(self, epoch: int) -> None:
        """A learner that was made again serves from now on."""
        self.publisher.continue_from(epoch)
        self.absorber.forget()

    def recover(self, record: MeshRecord) -> None:
        """A commit whose answer was lost may have happened: go on from what the database has. The next tick
        lets it count. Epoch, memory and addresses are in memory before they are committed."""
        for origin in self.node.recover(record.dropped, record.trusted):
            self.intake.quarantine.lift(origin)
        self.publisher.continue_from(record.epoch)
        if self.publisher.shares:
            own = self.intake.restore(record.letters)
            self.node.take([] if own is None else [own])
        self.operators.greet_peers()

    def _check_own_key(self) -> None:
        named = self.settings.city_keys.get(self.city)
        if named is not None and named != self.publisher.seal.key:
            log.error(
                "gossip.cities names another key for this city than its database has: cities with that "
                "configuration refuse its letters",
                extra={"named": named.hex(), "own": self.publisher.seal.key.hex()},
            )

    async def start(self) -> None:
        if not self._is_opened:
            record = self.pricing.mesh_record
            await self.pricing.runtime.in_thread(self.open)
            if self.pricing.mesh_record is not record:  # other replicas wrote meanwhile
                self.recover(self.pricing.mesh_record)
        if self.publisher.shares:
            await self.publisher.start()
            if self.book.peers:
                self.client.open()
            if not self.settings.lockstep:
                self._ticking = asyncio.create_task(self._run(), name="gossip")
        elif self.settings.peers:
            log.warning("the policy shares nothing: peers are not called")

    async def stop(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticking
            await self._say_last_news()
        await self.client.close()

    async def _say_last_news(self) -> None:
        """What was not news enough so far. A peer that does not answer delays a stop by one interval."""
        if self.publisher.unpublished_lessons and not self.pricing.health.is_lost:
            with suppress(StorageUnavailable):
                await self.exchange(everything=True)

    async def _run(self) -> None:
        rng = self.pricing.runtime.rng
        while True:
            await asyncio.sleep(self.settings.interval_seconds * rng.uniform(0.9, 1.1))
            try:
                await self.tick()
            except (StorageUnavailable, BadSummary) as fault:
                if self.pricing.health.is_lost:  # whose line in the log says all
                    continue
                log.warning("a tick failed, the next one tries again", extra={"fault": str(fault)})
            except Exception:
                log.exception("unforeseen fault in a tick")

    # Ticks and messages

    async def tick(self) -> None:
        await self.exchange()
        await self.absorb()

    async def exchange(self, *, everything: bool = False) -> None:
        """Publish, and exchange letters with the peers whose turn it is."""
        self.book.ticks += 1
        if self.left or not self.publisher.shares or not self.book.peers:
            return
        if not self.pricing.role.is_publisher:
            return
        await self.publisher.publish(everything=everything or self.pricing.draining)
        await self.client.exchange(self.book.choose(self.pricing.runtime.rng))
        await self.discovery.forget_unreached()

    async def absorb(self, *, always: bool = False) -> bool:
        """Let the letters count, if any city has learned something since; whether any had."""
        return await self.absorber.absorb(always=always)

    def admit(self, signature: str, machine: str) -> None:
        """Raises a refusal where a message with this signature would not be read."""
        self.server.admit(signature, machine)

    async def receive(self, body: bytes, signature: str, machine: str) -> tuple[bytes | None, str]:
        """The answer to a peer's message (None: both have the same letters), and its signature."""
        return await self.server.receive(body, signature, machine)


def _node_of(pricing: Pricing) -> Node:
    settings = pricing.settings
    return Node(
        settings.city,
        settings.fingerprint,
        partial(check_summary, pricing.learner, settings.longest_square, settings.largest_reward),
        cities=settings.gossip.cities or None,
        city_keys=settings.gossip.city_keys,
        max_cities=settings.gossip.most_cities,
        max_bytes=3 * settings.limits.body_bytes // 4,  # the rest is for the digest
        blocks=pricing.learner.layout.blocks if pricing.learner.fields else None,
    )
