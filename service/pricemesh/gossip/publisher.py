"""What a city publishes of itself: its letter, the epoch and seal of that letter, its notice that it leaves.

A version names one content, survives restarts and never goes back. A letter is committed before it is sent.
"""

import asyncio
import logging
from math import inf

import numpy as np

from pricemesh.city.pricing import Pricing
from pricemesh.core.arrays import Array
from pricemesh.core.summary import Summary
from pricemesh.errors import NotStarted, StorageUnavailable
from pricemesh.gossip.drafts import Drafts, lags_of
from pricemesh.gossip.letter import Leave, Letter, Seal
from pricemesh.gossip.node import Node, is_newer
from pricemesh.store.commands import SaveLetters, UpdateMesh

log = logging.getLogger("pricemesh.gossip")


class Publisher:
    def __init__(self, pricing: Pricing, node: Node) -> None:
        self._pricing = pricing
        self._node = node
        self._clock = pricing.runtime.clock
        self._seal: Seal | None = None
        self.epoch = 0
        self._committed_epoch = 0
        self.published_at = -inf  # monotonic
        gossip = pricing.settings.gossip
        self._drafts = Drafts(gossip.news, inf if gossip.lockstep else gossip.news_seconds)
        self._publishing = asyncio.Lock()

    @property
    def shares(self) -> bool:
        """Whether this city's policy has anything to tell others."""
        return bool(self._pricing.learner.fields)

    @property
    def seal(self) -> Seal:
        assert self._seal is not None, "Publisher.open() comes first"
        return self._seal

    @property
    def edition(self) -> tuple[int, int]:
        """Of what the learner knows now; what ticks mixed into it counts once it is committed."""
        return self.epoch, self._pricing.version + self._pricing.live.committed_mixes

    @property
    def letter(self) -> Letter | None:
        """The letter that is published."""
        return self._node.letters.get(self._node.origin)

    @property
    def has_left(self) -> bool:
        return "left" in self._pricing.controls

    def leave_notice(self) -> bytes:
        """Empty while this city takes part."""
        return Leave.sign(self.seal, self._node.origin, self._clock()) if self.has_left else b""

    # Start

    def open(self) -> None:
        """Take epoch and key from the database; `Pricing.open` comes first."""
        self._seal = Seal(self._pricing.mesh_record.seed)
        self.epoch = self._committed_epoch = self._pricing.mesh_record.epoch

    def resume(self, last: Letter | None) -> None:
        """Publish again what was published last, until `start` commits what this city knows now. Where
        versions could come to name another content, continue under a new epoch."""
        fresh = self._seal_numbers(self._pricing.learner.numbers())
        if len(fresh.wire) > self._node.max_bytes:
            raise NotStarted(
                f"this city's letters have {len(fresh.wire)} bytes and do not fit into a request: "
                "raise limits.body_bytes here and in its peers, or give it fewer arms or shared features"
            )
        if last is not None:
            is_comparable = last.summary.fingerprint == fresh.summary.fingerprint and last.key == fresh.key
            if is_comparable and self._continues(last, fresh):
                self._node.take([last])
            elif last.summary.epoch >= self.epoch:
                self.epoch = last.summary.epoch + 1
                log.warning(
                    "this city's letter does not continue the one it published last: new epoch %d", self.epoch
                )

    def continue_from(self, epoch: int) -> None:
        """Another replica may have begun an epoch, or this city's past was changed."""
        if epoch > self.epoch:
            self.epoch = self._committed_epoch = epoch

    async def start(self) -> None:
        """Publish for the first time. Where the database takes no commits yet, the next tick does."""
        try:
            await self.publish(everything=True)
        except StorageUnavailable as fault:
            log.warning("this city's letter could not be published yet", extra={"fault": str(fault)})
        self.published_at = -inf  # news for the first caller need not wait

    # Publishing

    async def publish(self, *, everything: bool = False) -> None:
        """Publish the blocks that have news, or all that changed. Commit first: after a crash the same
        version must not name another content."""
        async with self._publishing:
            if not self._may_publish:
                return
            letter = self._next_letter(everything=everything)
            if letter is None:
                return
            if self.epoch != self._committed_epoch:
                await self._pricing.commit(UpdateMesh(epoch=self.epoch))
                self._committed_epoch = self.epoch
                if not self._may_publish:
                    return
            compare = is_newer if self._pricing.role.is_replica else None
            await self._pricing.commit(SaveLetters([(letter.origin, letter.wire)], self._clock(), compare))
            self._node.take([letter])
            self.published_at = self._pricing.runtime.monotonic()

    @property
    def _may_publish(self) -> bool:
        """A learner that is being made again, because its past was changed, must not be told under the epoch
        that begins with the change."""
        pricing = self._pricing
        return pricing.live.mixes_committed and pricing.role.is_publisher and not pricing.relearner.is_behind

    @property
    def unpublished_lessons(self) -> int:
        """What this city has learned and not yet published."""
        if not self.shares:
            return 0
        published = 0.0 if self.letter is None else self._counts(self.letter).sum()
        return max(0, self._pricing.live.lessons_learned - int(published))

    def _next_letter(self, *, everything: bool) -> Letter | None:
        """None where there is no news."""
        last, learner, (epoch, version) = self.letter, self._pricing.learner, self.edition
        if last is None or last.summary.epoch != epoch:
            return self._seal_numbers(learner.numbers())
        if learner.mixes_peers:  # its versions count every change
            return None if last.edition >= self.edition else self._seal_numbers(learner.numbers())
        if not self.unpublished_lessons:
            return None
        now = self._pricing.runtime.monotonic()
        summary = self._drafts.next(
            learner, last.summary, learner.numbers(), version, now, everything=everything
        )
        return None if summary is None else self.seal.close(summary)

    async def renew(self, newer: Letter) -> None:
        """A peer has a letter of this city that is newer than its database: it was restored from a backup.
        It continues under a new epoch, so that its letters count again."""
        if newer.summary.epoch < self.epoch:
            return  # renewed already, after another peer's message
        if not self._pricing.role.is_publisher:
            return  # the publisher is ahead of this replica
        self.epoch = newer.summary.epoch + 1
        log.warning(
            "other cities have a newer letter of this city than its database: was it restored from a "
            "backup? It continues under epoch %d",
            self.epoch,
        )
        await self.publish()

    def _seal_numbers(self, numbers: Array) -> Letter:
        """All that is known now."""
        (epoch, version), node = self.edition, self._node
        return self.seal.close(Summary.of(node.origin, epoch, version, node.fingerprint, numbers))

    def _counts(self, letter: Letter) -> Array:
        return self._pricing.learner.layout.part("count", letter.summary.numbers)

    def _continues(self, last: Letter, fresh: Letter) -> bool:
        """Whether the present numbers are later ones of the same history as those published last."""
        learner = self._pricing.learner
        before, now = last.summary.numbers, fresh.summary.numbers
        if learner.mixes_peers:
            is_same = last.edition == fresh.edition and _same_numbers(before, now)
            return is_same or last.edition < fresh.edition
        counts, present_counts = self._counts(last), self._counts(fresh)
        if (counts == present_counts).all():
            # Blocks that the last letter did not bring up to date may have noise as it was estimated then.
            is_present = (lags_of(last.summary, learner.layout.block_count) == 0)[learner.layout.blocks]
            return _same_numbers(before[is_present], now[is_present])
        return bool((counts <= present_counts).all())


def _same_numbers(one: Array, other: Array) -> bool:
    """Up to rounding: a restart learns the same lessons, not always in the same groups."""
    return bool(np.allclose(one, other, rtol=1e-6, atol=1e-9))
