"""Feedback, read from its bodies by what a reward is in this city: units sold, or the reward itself."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from pricemesh.city.settings import Settings
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


class FeedbackReader:
    def __init__(self, settings: Settings) -> None:
        reward = settings.reward
        self.kind = PURCHASE if reward.is_purchase else VALUE
        self._max_amount = reward.max_units if reward.largest is None else reward.largest
        self._max_words = "(reward.max_units)" if reward.is_purchase else "either way"
        self._item: Callable[[Any], Item] = attrgetter("decision_id", self.kind.field)
        self._max_items = settings.limits.batch_size

    def one(self, body: bytes) -> Item:
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
