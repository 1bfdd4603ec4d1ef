"""The four calls that carry traffic: prices and feedback, one or many. `openapi` describes them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from pydantic import BaseModel

from pricemesh.city.loop import Ticket
from pricemesh.city.pricing import Pricing
from pricemesh.city.wait_limit import Gate
from pricemesh.core.decision import Decision
from pricemesh.errors import PricemeshError
from pricemesh.http import schemas
from pricemesh.http.admission import RequestContext
from pricemesh.http.answers import Answers, DecisionBodies, DecisionBody, feedback_fault, feedback_outcome
from pricemesh.http.feedback_reader import FeedbackReader, Item
from pricemesh.http.price_reader import PriceReader
from pricemesh.store.commands import FeedbackResult

OPEN_GATE = Gate()
_encode_json = msgspec.json.Encoder().encode


class Caller(Ticket, Protocol):
    """Who waits for the answer of a call, and the key it was made with."""

    context: RequestContext


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
    begin: Callable[[Any, Caller], Any]
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
        self._answers = Answers(settings.city, pricing.live)
        reader = PriceReader(settings.features.space, settings.limits.batch_size)
        feedback_reader = FeedbackReader(settings)
        self.feedback = feedback_reader.kind
        refusals = {
            404: "There is no such decision.",
            409: "The decision has other feedback already.",
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
                feedback_reader.kind.request,
                schemas.FeedbackReceipt,
                refusals,
                feedback_reader.one,
                self._learn,
                self._learned,
                pricing.gate,
            ),
            "/feedback/batch": TrafficCall(
                "Tell what many decisions brought; each has its own outcome",
                feedback_reader.kind.batch,
                schemas.FeedbackOutcomes,
                {},
                feedback_reader.many,
                self._learn_many,
                self._outcomes,
                pricing.gate,
                len,
            ),
        }

    def _decision(self, _work: None, rows: Sequence[Decision]) -> DecisionBody:
        return self._answers.decision(rows[0])

    def _decisions(self, _work: None, rows: Sequence[Decision]) -> DecisionBodies:
        return self._answers.decisions(rows)

    def _learn(self, item: Item, caller: Caller) -> str:
        self._pricing.feedback((item,), caller, caller.context.caller or None)
        return item[0]

    def _learned(
        self, decision_id: str, results: Sequence[FeedbackResult]
    ) -> dict[str, Any] | PricemeshError:
        fault = feedback_fault(decision_id, results[0])
        if fault is not None:
            return fault
        version, reward, sold = results[0].version, results[0].reward, results[0].sold
        amounts = {"reward": reward} if sold is None else {"sold": sold, "reward": reward}
        return {
            "decision_id": decision_id,
            **amounts,
            "learned": version is not None and not results[0].is_retracted,
            "version": version,
        }

    def _learn_many(self, items: Sequence[Item], caller: Caller) -> Sequence[Item]:
        self._pricing.feedback(items, caller, caller.context.caller or None)
        return items

    def _outcomes(self, items: Sequence[Item], results: Sequence[FeedbackResult]) -> dict[str, Any]:
        pairs = zip(items, results, strict=True)
        return {"outcomes": [feedback_outcome(id_, result) for (id_, _), result in pairs]}
