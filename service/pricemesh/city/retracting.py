"""What an operator takes back: feedback that must not count, and retractions that are lifted.

The commit decides; then the learner is made again without what does not count, beside the prices, and gossip
begins a new epoch. A city that stops between the two learns again when it starts.
"""

import logging
from typing import Any

from pricemesh.city.pricing import Pricing
from pricemesh.city.tickets import FutureTicket
from pricemesh.store.commands import (
    LiftResult,
    LiftRetraction,
    Retract,
    Retraction,
    RetractionResult,
    Selection,
    SelectionCounts,
)

MAX_WAIT_SECONDS = 30.0  # of a caller, for the learner

log = logging.getLogger("pricemesh")


class RewriteTicket(FutureTicket):
    """Lets the learner learn again once the change is committed, also when its caller has left."""

    __slots__ = ("_pricing",)

    def __init__(self, pricing: Pricing) -> None:
        super().__init__()
        self._pricing = pricing

    def settle(self, result: Any) -> None:
        if isinstance(result, RetractionResult | LiftResult):
            self._pricing.relearner.follow(result.rewrites)
            _log(result.retraction)
        super().settle(result)


class Retractor:
    def __init__(self, pricing: Pricing) -> None:
        self._pricing = pricing

    async def count(self, selection: Selection) -> SelectionCounts:
        """What a retraction would cover now; nothing is changed."""
        reader = self._pricing.database.reader
        counts: SelectionCounts = await self._pricing.read_many(reader.selected, selection)
        return counts

    async def retract(self, selection: Selection, by: str, reason: str) -> tuple[RetractionResult, bool]:
        """Let this feedback not count any more. Also returns whether the learner has learned again by now;
        otherwise it does so as soon as it can."""
        result: RetractionResult
        command = Retract(selection, by, reason, self._pricing.runtime.clock())
        result, is_relearned = await self._rewrite(command)
        return result, is_relearned

    async def lift(self, retraction: int, by: str, reason: str) -> tuple[LiftResult, bool]:
        """Let the feedback of a retraction count again; returns as `retract`."""
        result: LiftResult
        command = LiftRetraction(retraction, by, reason, self._pricing.runtime.clock())
        result, is_relearned = await self._rewrite(command)
        return result, is_relearned

    async def retractions(self, *, limit: int, before: int | None = None) -> list[Retraction]:
        """Newest first, also those that were lifted."""
        reader = self._pricing.database.reader
        rows: list[Retraction] = await self._pricing.read_many(reader.retractions, limit=limit, before=before)
        return rows

    async def _rewrite(self, command: Retract | LiftRetraction) -> tuple[Any, bool]:
        ticket = RewriteTicket(self._pricing)
        self._pricing.loop.submit(command, ticket)
        result: RetractionResult | LiftResult = await ticket.future
        return result, await self._pricing.relearner.wait(result.rewrites, MAX_WAIT_SECONDS)


def _log(retraction: Retraction) -> None:
    is_lifted = retraction.lifted_at is not None
    text = "a retraction was lifted" if is_lifted else "feedback was retracted"
    details = {
        "retraction": retraction.id,
        "feedback": retraction.feedback_count,
        "by": retraction.lifted_by if is_lifted else retraction.made_by,
        "reason": retraction.lift_reason if is_lifted else retraction.reason,
    }
    log.warning(text, extra=details)
