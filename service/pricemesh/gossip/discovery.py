"""Addresses that other cities tell: which of them are taken, and when they are forgotten again."""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from pricemesh.city.addresses import checked_address, is_loopback, may_be_called
from pricemesh.city.pricing import Pricing
from pricemesh.gossip.peers import Book
from pricemesh.store.commands import AddPeers, RemovePeers

log = logging.getLogger("pricemesh.gossip")

MOST_LEARNED = 64  # addresses taken from one message, or told in one


class Discovery:
    def __init__(self, pricing: Pricing, book: Book, clock: Callable[[], float]) -> None:
        self._pricing = pricing
        self._settings = pricing.settings.gossip
        self._signed = bool(self._settings.secrets)
        self.book = book
        self._clock = clock

    async def learn(self, addresses: Iterable[str]) -> None:
        """From a signed peer, where this city discovers; among unsigned ones only on this machine."""
        if not self._settings.discover:
            return
        good: list[str] = []
        for address in list(addresses)[:MOST_LEARNED]:
            with suppress(ValueError):
                checked = checked_address(address)
                host = urlsplit(checked).hostname or ""
                if may_be_called(host) if self._signed else is_loopback(host):
                    good.append(checked)
        room = max(0, self._settings.most_cities - len(self.book.peers))
        fresh = [address for address in good if address not in self.book.peers][:room]
        fresh = [peer.address for peer in self.book.add(fresh, configured=False)]
        if fresh:
            log.info("addresses learned", extra={"addresses": fresh})
            await self._pricing.commit(AddPeers(fresh, self._clock()))

    async def forget_unreached(self) -> None:
        """Addresses that others told and where nobody ever answered make room."""
        gone = self.book.forget_unreached()
        if gone:
            log.info("addresses forgotten", extra={"addresses": gone})
            await self._pricing.commit(RemovePeers(gone))
