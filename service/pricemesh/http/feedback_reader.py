"""Feedback, read from its bodies by what a reward is in this city: units sold, or the reward itself.

One feedback is read by a decoder that takes a third of the model's time. A body that the decoder refuses is
read again by the model in `schemas`, which reports every fault; a property test holds both to the same rules.
"""

import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec

from pricemesh.city.settings import Settings
from pricemesh.core.decision import IDENTIFIER
from pricemesh.errors import UnreadableBody
from pricemesh.http import schemas
from pricemesh.http.price_reader import refuse_too_many
from pricemesh.http.problems import Body, parsed

Item = tuple[str, float]  # decision id; units sold or reward


class Kind(NamedTuple):
    """How feedback is written in one kind of city."""

    field: str
    other_field: str  # that of the other kind
    hint: str
    request: type[schemas.SaleRequest | schemas.FeedbackRequest]
    batch: type[schemas.SaleBatch | schemas.FeedbackBatch]


PURCHASE = Kind(
    "sold", "reward", 'this city learns from sales: send "sold"', schemas.SaleRequest, schemas.SaleBatch
)
VALUE = Kind(
    "reward",
    "sold",
    'this city learns from rewards: send "reward"',
    schemas.FeedbackRequest,
    schemas.FeedbackBatch,
)


_DECODE_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError)
_identifier = re.compile(IDENTIFIER).fullmatch


class FeedbackReader:
    def __init__(self, settings: Settings) -> None:
        reward = settings.reward
        self.kind = PURCHASE if reward.is_purchase else VALUE
        self._max_amount = reward.max_units if reward.largest is None else reward.largest
        self._max_words = "(reward.max_units)" if reward.is_purchase else "either way"
        self._item: Callable[[Any], Item] = attrgetter("decision_id", self.kind.field)
        self._max_items = settings.limits.batch_size
        lowest = 0.0 if reward.is_purchase else -self._max_amount
        amount = Annotated[float, msgspec.Meta(ge=lowest, le=self._max_amount)]
        fields = [("decision_id", str), (self.kind.field, amount)]
        body = msgspec.defstruct("FeedbackBody", fields, forbid_unknown_fields=True, frozen=True, gc=False)
        self._decode = msgspec.json.Decoder(body).decode

    def one(self, body: bytes) -> Item:
        try:
            item = self._item(self._decode(body))
            if _identifier(item[0]):
                return item
        except _DECODE_FAULTS:
            pass
        return self.explain(body)

    def explain(self, body: bytes) -> Item:
        """As `one`, by the model, which says what is wrong."""
        item = self._item(self._parsed(self.kind.request, body))
        self._check(item, "")
        return item

    def many(self, body: bytes) -> Sequence[Item]:
        batch = self._parsed(self.kind.batch, body)
        refuse_too_many(self._max_items, len(batch.items), "items")
        items = [self._item(request) for request in batch.items]
        for i, item in enumerate(items):
            self._check(item, f"items.{i}.")
        return items

    def _check(self, item: Item, where: str) -> None:
        amount = item[1]
        if abs(amount) > self._max_amount:
            text = f"at most {self._max_amount:g} {self._max_words}, not {amount:g}"
            raise UnreadableBody([(f"{where}{self.kind.field}", text)])

    def _parsed(self, model: type[Body], body: bytes) -> Body:
        try:
            return parsed(model, body)
        except UnreadableBody as fault:
            raise UnreadableBody(self._explained(fault.faults)) from None

    def _explained(self, faults: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """A field of the other kind is told what to send, instead of that its own is missing."""
        places = {field.rpartition(".")[::2] for field, _ in faults}
        wrong = {where for where, name in places if name == self.kind.other_field}
        explained = []
        for field, text in faults:
            where, _, name = field.rpartition(".")
            if where in wrong and name == self.kind.other_field:
                explained.append((field, self.kind.hint))
            elif where not in wrong or (name, text) != (self.kind.field, "is missing"):
                explained.append((field, text))
        return explained
