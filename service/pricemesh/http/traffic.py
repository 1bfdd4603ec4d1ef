"""The four calls that carry traffic: prices and feedback, one or many.

They are reached before the framework, most of them before ASGI (`lane`): between the socket and the use case
there is nothing but the validation that the model asks for. `description` tells OpenAPI of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from pydantic import BaseModel

from pricemesh.city.pricing import Pricing
from pricemesh.errors import BodyTooLarge, UnreadableBody, WrongMethod
from pricemesh.http import schemas
from pricemesh.http.answers import Answers, DecisionBodies, DecisionBody, feedback_fault, feedback_outcome
from pricemesh.http.price_reader import PriceReader, refuse_too_many
from pricemesh.http.problems import parsed
from pricemesh.store.commands import Decision, FeedbackResult
from pricemesh.store.writer import Done

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
_as_json = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class TrafficCall:
    """A call: what comes in, what goes out, and what does it. `begin` takes what is asked and whom to
    call with the result, and gives what `end` will want to know of it: contexts are not kept until then.
    `end` makes the answer, and is the place where a fault is raised."""

    summary: str
    asked: type[BaseModel]
    answered: type[BaseModel]
    problems: dict[int, str]
    read: Callable[[bytes], Any]
    begin: Callable[[Any, Done], Any]
    end: Callable[[Any, Any], Any]

    def answer(self, begun: Any, result: Any) -> bytes:
        if isinstance(result, Exception):
            raise result
        return _as_json(self.end(begun, result))


class Traffic:
    def __init__(self, pricing: Pricing) -> None:
        self._pricing = pricing
        self._answers = Answers(pricing.settings)
        self.most_bytes = pricing.settings.limits.body_bytes
        self._largest_reward = pricing.settings.feedback.largest_reward
        self._most_items = pricing.settings.limits.batch_size
        reader = PriceReader(pricing.settings.features.space, self._most_items)
        declined = {
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
                self._price,
            ),
            "/price/batch": TrafficCall(
                "Ask for many prices in one commit",
                schemas.PriceBatch,
                schemas.DecisionBatch,
                {},
                reader.many,
                pricing.quote,
                self._prices,
            ),
            "/feedback": TrafficCall(
                "Tell what a decision brought",
                schemas.FeedbackRequest,
                schemas.FeedbackReceipt,
                declined,
                partial(parsed, schemas.FeedbackRequest),
                self._tell,
                self._learned,
            ),
            "/feedback/batch": TrafficCall(
                "Tell what many decisions brought; each has its own outcome",
                schemas.FeedbackBatch,
                schemas.FeedbackOutcomes,
                {},
                partial(parsed, schemas.FeedbackBatch),
                self._tell_many,
                self._outcomes,
            ),
        }

    async def answer(self, call: TrafficCall, scope: Any, receive: Receive, send: Send) -> None:
        """Read, do, write; every fault is an error of ours."""
        if scope["method"] != "POST":
            raise WrongMethod(scope["method"], allowed="POST")
        asked = call.read(await read_body(scope, receive, await receive(), self.most_bytes))
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        begun = call.begin(asked, lambda result: None if done.cancelled() else done.set_result(result))
        body = call.answer(begun, await done)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _price(self, _begun: None, kept: Sequence[Decision]) -> DecisionBody:
        return self._answers.decision(kept[0])

    def _prices(self, _begun: None, kept: Sequence[Decision]) -> DecisionBodies:
        return self._answers.decisions(kept)

    def _tell(self, given: schemas.FeedbackRequest, done: Done) -> schemas.FeedbackRequest:
        self._check_reward(given.reward, "reward")
        self._pricing.feedback(((given.decision_id, given.reward),), done)
        return given

    def _learned(self, given: schemas.FeedbackRequest, results: Sequence[FeedbackResult]) -> dict[str, Any]:
        fault = feedback_fault(given.decision_id, results[0])
        if fault is not None:
            raise fault
        version = results[0].version
        return {
            "decision_id": given.decision_id,
            "reward": given.reward,
            "learned": version is not None,
            "version": version,
        }

    def _tell_many(self, given: schemas.FeedbackBatch, done: Done) -> schemas.FeedbackBatch:
        refuse_too_many(self._most_items, len(given.items), "items")
        for i, item in enumerate(given.items):
            self._check_reward(item.reward, f"items.{i}.reward")
        self._pricing.feedback([(item.decision_id, item.reward) for item in given.items], done)
        return given

    def _outcomes(self, given: schemas.FeedbackBatch, results: Sequence[FeedbackResult]) -> dict[str, Any]:
        pairs = zip(given.items, results, strict=True)
        return {"outcomes": [feedback_outcome(item.decision_id, result) for item, result in pairs]}

    def _check_reward(self, reward: float, field: str) -> None:
        if abs(reward) > self._largest_reward:
            raise UnreadableBody([(field, f"at most {self._largest_reward:g} either way, not {reward:g}")])


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
