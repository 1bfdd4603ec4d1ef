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
from pricemesh.store.acts import OPERATOR, Act, ActKind
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

    async def drop(self, origin: str, by: str = OPERATOR, reason: str = "") -> None:
        """Subtract what this city told, and take no letter of it any more."""
        if origin == self._node.origin:
            raise UnknownCity("a city cannot drop itself: POST /admin/leave lets it leave the mesh")
        act = self._act(ActKind.DROP, origin, by, reason)
        await self._pricing.commit(DropOrigin(origin, act.at, act=act))
        self._node.drop(origin)
        self._intake.quarantine.lift(origin)
        await self._absorber.absorb()

    async def readmit(self, origin: str, by: str = OPERATOR, reason: str = "") -> None:
        """Take letters of a dropped city again."""
        if origin not in self._node.dropped_origins:
            raise UnknownCity(f"{origin!r} has not been dropped here")
        act = self._act(ActKind.READMIT, origin, by, reason)
        await self._pricing.commit(DropOrigin(origin, act.at, readmitted=True, act=act))
        self._node.readmit(origin)

    async def trust(self, origin: str, key: bytes, by: str = OPERATOR, reason: str = "") -> None:
        """Know this city by this key from now on: it was set up anew."""
        if origin == self._node.origin:
            raise UnknownCity("a city's own key is in its database: name another city")
        if self._node.named_keys.get(origin, key) != key:
            raise NotAllowed(f"gossip.cities names another key for {origin}: change it there and restart")
        await self._pricing.commit(TrustKey(origin, key, self._act(ActKind.TRUST, origin, by, reason)))
        self._node.trust(origin, key)
        self._intake.quarantine.lift(origin)
        await self._absorber.absorb()

    def _act(self, kind: ActKind, origin: str, by: str, reason: str) -> Act:
        return Act(self._clock(), kind, by, reason, {"peer": origin})

    async def leave(self, by: str = OPERATOR, reason: str = "") -> int:
        """Tell the peers that this city leaves, and call none from now on; returns how many were told."""
        await self._pricing.leave(by, reason)
        if not self._publisher.shares:
            return 0
        await self._publisher.publish(everything=True)
        peers = [peer for peer in self._book.peers.values() if not peer.has_left]
        await asyncio.gather(*(self._client.call(peer) for peer in peers))
        return sum(not peer.misses for peer in peers)

    async def join(self, by: str = OPERATOR, reason: str = "") -> None:
        """Take part again after a leave."""
        await self._pricing.lift(ActKind.JOIN, by, reason)
        self.greet_peers()

    def greet_peers(self) -> None:
        """Send a full message to each peer next: it says that this city is back."""
        self._memory.forget()
