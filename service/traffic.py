"""The four calls that carry traffic: prices and feedback, one or many.

They are plain ASGI, reached before the framework: between the socket and the use case there is nothing
but the validation that the model asks for. `description` tells OpenAPI of them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from service import wire
from service.answers import Answers, feedback_fault, feedback_outcome
from service.errors import BodyTooLarge, UnreadableBody, WrongMethod
from service.pricing import Pricing
from service.problems import parsed

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class TrafficCall:
    """A call: what comes in, what goes out, and what does it."""

    summary: str
    asked: type[BaseModel]
    answered: type[BaseModel]
    problems: dict[int, str]
    run: Callable[[Any], Awaitable[Any]]


class Traffic:
    def __init__(self, pricing: Pricing) -> None:
        self._pricing = pricing
        self._answers = Answers(pricing.settings)
        self._most_bytes = pricing.settings.limits.body_bytes
        self._largest_reward = pricing.settings.feedback.largest_reward
        self._most_items = pricing.settings.limits.batch_size
        declined = {
            404: "There is no such decision.",
            409: "The decision has another reward already.",
            410: "The reward window has closed.",
        }
        self.calls = {
            "/price": TrafficCall("Ask for a price", wire.PriceRequest, wire.Decision, {}, self._price),
            "/price/batch": TrafficCall(
                "Ask for many prices in one commit", wire.PriceBatch, wire.DecisionBatch, {}, self._prices
            ),
            "/feedback": TrafficCall(
                "Tell what a decision brought", wire.FeedbackRequest, wire.Learned, declined, self._feedback
            ),
            "/feedback/batch": TrafficCall(
                "Tell what many decisions brought; each has its own outcome",
                wire.FeedbackBatch,
                wire.FeedbackOutcomes,
                {},
                self._feedbacks,
            ),
        }

    async def answer(self, call: TrafficCall, scope: Any, receive: Receive, send: Send) -> None:
        """Read, do, write; every fault is an error of ours."""
        if scope["method"] != "POST":
            raise WrongMethod(scope["method"], allowed="POST")
        asked = parsed(call.asked, await self._body(scope, receive))
        body = to_json(await call.run(asked))
        length = str(len(body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _body(self, scope: Any, receive: Receive) -> bytes:
        """The whole body, refused before it is held in memory if it is too large."""
        message = await receive()
        body: bytes = message.get("body", b"")
        whole = message["type"] == "http.request" and not message.get("more_body")
        if whole and len(body) <= self._most_bytes:
            return body
        return await read_body(scope, receive, message, self._most_bytes)

    async def _price(self, asked: wire.PriceRequest) -> dict[str, Any]:
        context = (asked.shared, asked.local, asked.decision_id, asked.subject)
        (row,) = await self._pricing.quote_many([context])
        return self._answers.decision(row)

    async def _prices(self, asked: wire.PriceBatch) -> dict[str, Any]:
        self._check_size(len(asked.requests), "requests")
        rows = await self._pricing.quote_many(
            [(a.shared, a.local, a.decision_id, a.subject) for a in asked.requests]
        )
        return {"decisions": [self._answers.decision(row) for row in rows]}

    async def _feedback(self, given: wire.FeedbackRequest) -> dict[str, Any]:
        self._check_reward(given.reward, "reward")
        (result,) = await self._pricing.feedback([(given.decision_id, given.reward)])
        fault = feedback_fault(given.decision_id, result)
        if fault is not None:
            raise fault
        return {
            "decision_id": given.decision_id,
            "reward": given.reward,
            "learned": result.version is not None,
            "version": result.version,
        }

    async def _feedbacks(self, given: wire.FeedbackBatch) -> dict[str, Any]:
        self._check_size(len(given.items), "items")
        for i, item in enumerate(given.items):
            self._check_reward(item.reward, f"items.{i}.reward")
        results = await self._pricing.feedback([(item.decision_id, item.reward) for item in given.items])
        pairs = zip(given.items, results, strict=True)
        return {"outcomes": [feedback_outcome(item.decision_id, result) for item, result in pairs]}

    def _check_reward(self, reward: float, field: str) -> None:
        if abs(reward) > self._largest_reward:
            raise UnreadableBody([(field, f"at most {self._largest_reward:g} either way, not {reward:g}")])

    def _check_size(self, size: int, field: str) -> None:
        if size > self._most_items:
            raise UnreadableBody([(field, f"at most {self._most_items} in one call, not {size}")])


async def read_body(scope: Any, receive: Receive, first: Any, most_bytes: int) -> bytes:
    """A body that comes in several messages, of which `first` is here."""
    too_large = BodyTooLarge(f"a body here has at most {most_bytes} bytes")
    announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if announced.isdigit() and int(announced) > most_bytes:
        raise too_large
    chunks, size, message = [], 0, first
    while True:
        if message["type"] == "http.disconnect":
            raise UnreadableBody([("", "the caller left before the body was complete")])
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > most_bytes:
            raise too_large
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks)
        message = await receive()
