"""What an operator takes back: feedback that must not count, and retractions that are lifted.

The commit decides; then the learner is made again without what does not count, beside the prices, and gossip
begins a new epoch. A city that stops between the two learns again when it starts.
"""

import logging
from typing import Any, NamedTuple, TypeVar

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

Result = TypeVar("Result", RetractionResult, LiftResult)


class Relearned(NamedTuple):
    """Whether the learner knows of the change by now; in a city of replicas, this replica's."""

    is_done: bool


class RewriteTicket(FutureTicket):
    """Lets the learner learn again once the change is committed, also when its caller has left."""

    __slots__ = ("_pricing",)

    def __init__(self, pricing: Pricing) -> None:
        super().__init__()
        self._pricing = pricing

    def settle(self, result: Any) -> None:
        if isinstance(result, RetractionResult | LiftResult):
            self._pricing.relearner.follow(result.rewrites)
        super().settle(result)
