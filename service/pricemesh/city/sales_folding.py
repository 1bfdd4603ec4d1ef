"""Keeps the rollups of sales up to date: steps are read beside the writer and committed by it.

The publisher does so among replicas. When it is behind, as after a large import, it rests as long as it
works.
"""

import asyncio
import logging
from math import inf
from typing import Any

from pricemesh.city.pricing import Pricing
from pricemesh.errors import StorageUnavailable
from pricemesh.store.commands import Position
from pricemesh.store.sales import FoldRetractions, FoldSales
from pricemesh.store.sales_folding import ROWS_PER_FOLD, next_fold, next_retractions

LOOK_SECONDS = 1.0
MAX_TAIL_SECONDS = 10.0  # that rows wait in a quiet city: each step is a commit
MAX_TAIL_ROWS = 1000  # that wait in a busy one: every reader adds them up

log = logging.getLogger("pricemesh")


class SalesFolding:
    def __init__(self, pricing: Pricing) -> None:
        self._pricing = pricing
        self._folded = Position()  # as far as this process knows
        self._folded_at = -inf  # monotonic
        self._rewrites: int | None = None  # of the past, whose retractions are folded

    async def run(self) -> None:
        """For ever."""
        while True:
            seconds = LOOK_SECONDS
            try:
                if self._pricing.role.is_publisher and self._is_due:
                    began_at = self._pricing.runtime.monotonic()
                    is_done = await self.step()
                    if not is_done:
                        seconds = min(LOOK_SECONDS, self._pricing.runtime.monotonic() - began_at)
            except StorageUnavailable as fault:
                if not self._pricing.health.is_lost:  # whose line in the log says all
                    log.warning("sales not counted", extra={"fault": str(fault)})
            except Exception:
                log.exception("unforeseen, in the sums of sales")
            await asyncio.sleep(seconds)

    @property
    def _is_due(self) -> bool:
        newest, folded = self._pricing.database.position, self._folded
        rows = newest.decision - folded.decision + newest.feedback - folded.feedback
        is_rewritten = self._pricing.live.rewrites != self._rewrites
        if not rows and not is_rewritten:
            return False
        waited_seconds = self._pricing.runtime.monotonic() - self._folded_at
        return rows >= MAX_TAIL_ROWS or waited_seconds >= MAX_TAIL_SECONDS

    async def step(self) -> bool:
        """Count some rows. Returns whether none are left."""
        pricing = self._pricing
        newest, rewrites = pricing.database.position, pricing.live.rewrites
        fold, retractions = await pricing.read_many(pricing.database.reader.read_at_once, _next)
        for step in (fold, *retractions):
            if step is not None:
                await pricing.commit(step)
        self._folded = newest if fold is None else Position(fold.after.decision, fold.after.feedback)
        self._folded_at = pricing.runtime.monotonic()
        are_all_retracted = not retractions or retractions[-1].rewrites is not None
        if are_all_retracted:
            self._rewrites = rewrites
        counts = (
            (fold.after.decision - fold.before.decision, fold.after.feedback - fold.before.feedback)
            if fold
            else ()
        )
        return are_all_retracted and ROWS_PER_FOLD not in counts


def _next(connection: Any) -> tuple[FoldSales | None, list[FoldRetractions]]:
    return next_fold(connection), next_retractions(connection)
