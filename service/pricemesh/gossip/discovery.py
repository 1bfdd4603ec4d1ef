"""Addresses that other cities report: which of them are taken, and when they are forgotten again."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from pricemesh.city.addresses import checked_address, is_loopback, may_be_called
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
        if not self._settings.discover:
            return
        allowed = may_be_called if self._settings.secrets else is_loopback
        candidates: list[str] = []
        for address in list(addresses)[:MAX_ADDRESSES]:
            with suppress(ValueError):
                candidate = checked_address(address)
                if candidate not in self._book.peers and allowed(urlsplit(candidate).hostname or ""):
                    candidates.append(candidate)
        room = max(0, self._settings.most_cities - len(self._book.peers))
        fresh = [peer.address for peer in self._book.add(candidates[:room], is_configured=False)]
        if fresh:
            log.info("addresses learned from a peer", extra={"addresses": fresh})
            await self._pricing.commit(AddPeers(fresh, self._clock()))

    async def forget_unreached(self) -> None:
        """Addresses that other cities reported and that never answered make room for others."""
        addresses = self._book.forget_unreached()
        if addresses:
            log.info("addresses forgotten: no city ever answered there", extra={"addresses": addresses})
            await self._pricing.commit(RemovePeers(addresses))
