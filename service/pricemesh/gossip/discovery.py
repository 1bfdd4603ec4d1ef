"""Addresses that other cities report: which of them are taken, and when they are forgotten again."""

import logging
from collections.abc import Iterable
from contextlib import suppress

from pricemesh.city.addresses import host_of, is_loopback, learned_address
from pricemesh.city.pricing import Pricing
from pricemesh.gossip.peers import AddressBook
from pricemesh.store.commands import AddPeers, RemovePeers

log = logging.getLogger("pricemesh.gossip")

MAX_ADDRESSES = 64  # read from one message, or sent in one


class Discovery:
    def __init__(self, pricing: Pricing, book: AddressBook) -> None:
        self._pricing = pricing
        self._settings = pricing.settings.gossip
        self._clock = pricing.runtime.clock
        self._book = book

    async def learn(self, addresses: Iterable[str]) -> None:
        """Take addresses from a peer, if this city discovers. Without gossip.secrets anybody could have sent
        them, so then only addresses on this machine are taken."""
        fresh = self._add(list(addresses)[:MAX_ADDRESSES]) if self._settings.discover else []
        if fresh:
            log.info("addresses learned from a peer", extra={"addresses": fresh})
            await self._pricing.commit(AddPeers(fresh, self._clock()))

    def restore(self, addresses: Iterable[str]) -> None:
        """Those that were learned before the last stop and may still be called."""
        if self._settings.discover:
            self._add(addresses)

    def _add(self, addresses: Iterable[str]) -> list[str]:
        """The addresses that are new and allowed, as many as there is room for."""
        candidates: list[str] = []
        for address in addresses:
            with suppress(ValueError):
                candidate = learned_address(address)
                is_allowed = bool(self._settings.secrets) or is_loopback(host_of(candidate))
                if candidate not in self._book.peers and is_allowed:
                    candidates.append(candidate)
        room = max(0, self._settings.most_cities - len(self._book.peers))
        return [peer.address for peer in self._book.add(candidates[:room], is_configured=False)]

    def sample(self, receiver: str) -> tuple[str, ...]:
        """Addresses for a city that discovers: all, or of many a random choice, so that not all cities come
        to know the same few."""
        addresses = sorted(set(self._book.peers) - {receiver})
        if len(addresses) <= MAX_ADDRESSES:
            return tuple(addresses)
        return tuple(self._pricing.runtime.rng.sample(addresses, MAX_ADDRESSES))

    async def forget_unreached(self) -> None:
        """Addresses that other cities reported and that never answered make room for others."""
        addresses = self._book.forget_unreached()
        if addresses:
            log.info("addresses forgotten: no city ever answered there", extra={"addresses": addresses})
            await self._pricing.commit(RemovePeers(addresses))
