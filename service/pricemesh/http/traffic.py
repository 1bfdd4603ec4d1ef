"""The four calls that carry traffic: prices and feedback, one or many. `openapi` describes them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import BaseModel

from pricemesh.city.loop import Ticket
from pricemesh.city.pricing import Pricing
from pricemesh.city.wait_limit import Gate
from pricemesh.core.decision import Decision
from pricemesh.errors import PricemeshError, UnreadableBody
from pricemesh.http import schemas
from pricemesh.http.answers import Answers, DecisionBodies, DecisionBody, feedback_fault, feedback_outcome
from pricemesh.http.feedback_reader import FeedbackBody, read_feedback
from pricemesh.http.price_reader import PriceReader, refuse_too_many
from pricemesh.http.problems import parsed
from pricemesh.store.commands import FeedbackResult

OPEN_GATE = Gate()
_encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class TrafficCall:
    """A call: `gate` is looked at before the body is read; `read` makes a request of a body; `begin` hands it
    to the city, which settles the ticket, and returns what `end` needs of the request again (contexts are not
    kept); `end` makes the answer of the city's result, or returns the error instead: raised, it would refer
    to its own frame and be freed late."""

    summary: str
    request: type[BaseModel]
    response: type[BaseModel]
    problems: dict[int, str]
    read: Callable[[bytes], Any]
    begin: Callable[[Any, Ticket], Any]
    end: Callable[[Any, Any], Any]
    gate: Gate = OPEN_GATE
    size: Callable[[Any], int] | None = None  # of a batch: what it takes of the rate limit

    def answer(self, work: Any, result: Any) -> bytes | Exception:
        answer = result if isinstance(result, Exception) else self.end(work, result)
        return answer if isinstance(answer, Exception) else _encode_json(answer)


class Traffic:
    def __init__(self, pricing: Pricing) -> None:
        settings = pricing.settings
        self._pricing = pricing
        self._answers = Answers(settings)
        self._max_reward = settings.feedback.largest_reward
        self._max_items = settings.limits.batch_size
        reader = PriceReader(settings.features.space, self._max_items)
        refusals = {
            404: "There is no such decision.",
            409: "The decision has another reward already.",
            410: "The reward window has closed.",
        }
        self.calls = {
            "/price": TrafficCall(
                "Ask for a price",
                schemas.PriceRequest,
                schemas.Decision,
                {},
                reader.one,
                pricing.quote,
                self._decision,
                pricing.gate,
            ),
            "/price/batch": TrafficCall(
                "Ask for many prices in one commit",
                schemas.PriceBatch,
                schemas.DecisionBatch,
                {},
                reader.many,
                pricing.quote,
                self._decisions,
                pricing.gate,
                lambda quote: quote.size,
            ),
            "/feedback": TrafficCall(
                "Tell what a decision brought",
                schemas.FeedbackRequest,
                schemas.FeedbackReceipt,
                refusals,
                read_feedback,
                self._learn,
                self._learned,
                pricing.gate,
            ),
            "/feedback/batch": TrafficCall(
                "Tell what many decisions brought; each has its own outcome",
                schemas.FeedbackBatch,
                schemas.FeedbackOutcomes,
                {},
                self._read_batch,
                self._learn_many,
                self._outcomes,
                pricing.gate,
                lambda batch: len(batch.items),
            ),
        }

    def _decision(self, _work: None, rows: Sequence[Decision]) -> DecisionBody:
        return self._answers.decision(rows[0])

    def _decisions(self, _work: None, rows: Sequence[Decision]) -> DecisionBodies:
        return self._answers.decisions(rows)

    def _learn(self, request: FeedbackBody, ticket: Ticket) -> FeedbackBody:
        self._check_reward(request.reward, "reward")
        self._pricing.feedback(((request.decision_id, request.reward),), ticket)
        return request

    def _learned(
        self, request: FeedbackBody, results: Sequence[FeedbackResult]
    ) -> dict[str, Any] | PricemeshError:
        fault = feedback_fault(request.decision_id, results[0])
        if fault is not None:
            return fault
        version = results[0].version
        return {
            "decision_id": request.decision_id,
            "reward": request.reward,
            "learned": version is not None,
            "version": version,
        }

    def _read_batch(self, body: bytes) -> schemas.FeedbackBatch:
        batch = parsed(schemas.FeedbackBatch, body)
        refuse_too_many(self._max_items, len(batch.items), "items")
        return batch

    def _learn_many(self, batch: schemas.FeedbackBatch, ticket: Ticket) -> schemas.FeedbackBatch:
        for i, item in enumerate(batch.items):
            self._check_reward(item.reward, f"items.{i}.reward")
        self._pricing.feedback([(item.decision_id, item.reward) for item in batch.items], ticket)
        return batch

    def _outcomes(self, batch: schemas.FeedbackBatch, results: Sequence[FeedbackResult]) -> dict[str, Any]:
        pairs = zip(batch.items, results, strict=True)
        return {"outcomes": [feedback_outcome(item.decision_id, result) for item, result in pairs]}

    def _check_reward(self, reward: float, field: str) -> None:
        if abs(reward) > self._max_reward:
            raise UnreadableBody([(field, f"at most {self._max_reward:g} either way, not {reward:g}")])
