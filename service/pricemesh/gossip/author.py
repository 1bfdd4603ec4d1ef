"""What a city itself tells: its letter, the epoch it writes under, and the seal it closes it with."""

import asyncio
import logging
from collections.abc import Callable

import numpy as np

from pricemesh.city.pricing import Pricing
from pricemesh.core.summary import Summary
from pricemesh.errors import NotStarted, StorageUnavailable
from pricemesh.gossip.letters import Letter, Seal
from pricemesh.gossip.node import Node
from pricemesh.store.commands import SaveLetters, UpdateMesh

log = logging.getLogger("pricemesh.gossip")


class Author:
    """A version names one content, survives restarts and never goes back."""

    def __init__(self, pricing: Pricing, node: Node, clock: Callable[[], float]) -> None:
        self._pricing = pricing
        self._node = node
        self._clock = clock
        self.seal = Seal(pricing.mesh_record.seed)
        self.epoch = pricing.mesh_record.epoch
        self.published_at = 0.0
        self._publishing = asyncio.Lock()

    @property
    def edition(self) -> tuple[int, int]:
        """What is known now; of what ticks mixed in, as much as is committed."""
        return self.epoch, self._pricing.version + self._pricing.live.committed_mixes

    @property
    def published(self) -> Letter | None:
        return self._node.held.get(self._node.origin)

    def go_on_from(self, kept: Letter | None) -> None:
        """With the letter last published, if it still says what this city knows; else under a new epoch."""
        fresh = self._write()
        if len(fresh.wire) > self._node.most_bytes:
            raise NotStarted(
                f"this city's letters have {len(fresh.wire)} bytes and would not fit into a request: "
                "raise limits.body_bytes here and in its peers, or give it fewer arms or shared features"
            )
        if kept is not None:
            old, new = kept.summary, fresh.summary
            same = old.fingerprint == new.fingerprint and kept.key == fresh.key
            if same and kept.edition == fresh.edition:
                if np.allclose(old.numbers, new.numbers, rtol=1e-6, atol=1e-9):
                    self._node.take([kept])
                    return
                same = False
            if not same or kept.edition > fresh.edition:
                self.epoch = max(self.epoch, old.epoch) + 1
                log.warning("what this city tells has changed: it goes on under epoch %d", self.epoch)
                fresh = self._write()
        self._node.take([fresh])

    def _write(self) -> Letter:
        numbers = self._pricing.learner.numbers()
        epoch, version = self.edition
        return self.seal.close(Summary.of(self._node.origin, epoch, version, self._node.fingerprint, numbers))

    async def keep(self) -> None:
        """The epoch, and the letter that is published under it."""
        assert self.published is not None
        try:
            await self._pricing.commit(UpdateMesh(epoch=self.epoch))
            await self._keep(self.published)
        except StorageUnavailable as fault:
            log.warning("the place in the mesh is not kept yet", extra={"fault": str(fault)})

    async def _keep(self, letter: Letter) -> None:
        await self._pricing.commit(SaveLetters([(letter.origin, letter.wire)], self._clock()))

    async def publish(self) -> None:
        """Tell all that is known now. CommitResult before it is told: after a crash the same version must not
        name another content."""
        async with self._publishing:
            if not self._pricing.live.mixes_committed:
                return
            if self.published is not None and self.published.edition == self.edition:
                return
            letter = self._write()
            await self._keep(letter)
            self._node.take([letter])
            self.published_at = self._clock()

    async def renew(self, met: Letter) -> None:
        """A letter of one's own, newer than all one remembers: this database is an older one than was
        served before. What it knows goes on under a new epoch, in which it counts again."""
        if met.summary.epoch < self.epoch:
            return  # another peer has said so already
        self.epoch = met.summary.epoch + 1
        log.warning(
            "other cities know a later state of this one: was it restored from a backup? "
            "It goes on under epoch %d",
            self.epoch,
        )
        await self._pricing.commit(UpdateMesh(epoch=self.epoch))
        await self.publish()
