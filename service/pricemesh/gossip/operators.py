"""What an operator may do about the mesh: drop, readmit and trust a city, leave and join. All of it is
committed and stays in force across restarts."""

import asyncio

from pricemesh.city.pricing import Pricing
from pricemesh.errors import NotAllowed, UnknownCity
from pricemesh.gossip.absorber import Absorber
from pricemesh.gossip.client import GossipClient
from pricemesh.gossip.digests import DigestMemory
from pricemesh.gossip.intake import Intake
from pricemesh.gossip.node import Node
from pricemesh.gossip.peers import AddressBook
from pricemesh.gossip.publisher import Publisher
from pricemesh.store.commands import DropOrigin, TrustKey


class Operators:
    def __init__(
        self,
        pricing: Pricing,
        *,
        node: Node,
        book: AddressBook,
        memory: DigestMemory,
        publisher: Publisher,
        intake: Intake,
        absorber: Absorber,
        client: GossipClient,
    ) -> None:
        self._pricing = pricing
        self._clock = pricing.runtime.clock
        self._node = node
        self._book = book
        self._memory = memory
        self._publisher = publisher
        self._intake = intake
        self._absorber = absorber
        self._client = client

    async def drop(self, origin: str) -> None:
        """Subtract what this city told, and take no letter of it any more."""
        if origin == self._node.origin:
            raise UnknownCity("a city cannot drop itself: POST /admin/leave lets it leave the mesh")
        await self._pricing.commit(DropOrigin(origin, self._clock()))
        self._node.drop(origin)
        self._intake.quarantine.lift(origin)
        await self._absorber.absorb()

    async def readmit(self, origin: str) -> None:
        """Take letters of a dropped city again."""
        if origin not in self._node.dropped_origins:
            raise UnknownCity(f"{origin!r} has not been dropped here")
        await self._pricing.commit(DropOrigin(origin, self._clock(), readmitted=True))
        self._node.readmit(origin)

    async def trust(self, origin: str, key: bytes) -> None:
        """Know this city by this key from now on: it was set up anew."""
        if origin == self._node.origin:
            raise UnknownCity("a city's own key is in its database: name another city")
        if self._node.named_keys.get(origin, key) != key:
            raise NotAllowed(f"gossip.cities names another key for {origin}: change it there and restart")
        await self._pricing.commit(TrustKey(origin, key))
        self._node.trust(origin, key)
        self._intake.quarantine.lift(origin)
        await self._absorber.absorb()

    async def leave(self) -> int:
        """Tell the peers that this city leaves, and call none from now on; returns how many were told."""
        await self._pricing.control("left", {})
        if not self._publisher.shares:
            return 0
        await self._publisher.publish(everything=True)
        peers = [peer for peer in self._book.peers.values() if not peer.has_left]
        await asyncio.gather(*(self._client.call(peer) for peer in peers))
        return sum(not peer.misses for peer in peers)

    async def join(self) -> None:
        """Take part again after a leave."""
        await self._pricing.lift("left")
        self.greet_peers()

    def greet_peers(self) -> None:
        """Send a full message to each peer next: it says that this city is back."""
        self._memory.forget()
