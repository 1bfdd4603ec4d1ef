"""Talk to a city from Python: `City` waits, `AsyncCity` awaits; they share everything but the waiting.

>>> with City("http://127.0.0.1:8001", key="pm_...") as lisbon:      # doctest: +SKIP
...     decision = lisbon.price({"demand": 0.4, "rain": 0.0, "event": 1.0}, {"tourists": 0.2, "strike": 0.0})
...     lisbon.feedback(decision.decision_id, reward=0.8)

A call that may be repeated safely is repeated when the network or the city fails for a moment. A price is:
it carries a decision_id of the client's making, and asked again gets the same answer.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import httpx
from pydantic import BaseModel

from pricemesh.errors import PricemeshError
from pricemesh.http import schemas

Answer = TypeVar("Answer", bound=BaseModel)
Features = Mapping[str, float]
_PASSING = frozenset({429, 502, 503, 504})


class CityError(PricemeshError):
    """The city declined. `problem` is its RFC 9457 document."""

    def __init__(self, problem: schemas.Problem) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")
        self.problem = problem


class CityUnreachable(PricemeshError):
    """No answer, after every attempt."""


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """One request, and what its answer is read as."""

    method: str
    path: str
    answer: type[Answer]
    body: Any = None
    repeatable: bool = True

    def read(self, response: httpx.Response) -> Answer:
        if response.is_success:
            return self.answer.model_validate_json(response.content)
        try:
            problem = schemas.Problem.model_validate_json(response.content)
        except ValueError:
            problem = schemas.Problem(
                type="about:blank",
                title=response.reason_phrase,
                status=response.status_code,
                detail=response.text[:500],
            )
        raise CityError(problem)


def _price(shared: Features, local: Features, decision_id: str | None, subject: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "shared": dict(shared),
        "local": dict(local),
        "decision_id": decision_id or str(uuid.uuid4()),
    }
    return body | ({"subject": subject} if subject is not None else {})


def price_call(
    shared: Features, local: Features, decision_id: str | None, subject: str | None
) -> Call[schemas.Decision]:
    return Call("POST", "/price", schemas.Decision, _price(shared, local, decision_id, subject))


def batch_call(contexts: Sequence[tuple[Features, Features]]) -> Call[schemas.DecisionBatch]:
    requests = [_price(shared, local, None, None) for shared, local in contexts]
    return Call("POST", "/price/batch", schemas.DecisionBatch, {"requests": requests})


def feedback_call(decision_id: str, reward: float) -> Call[schemas.FeedbackReceipt]:
    return Call("POST", "/feedback", schemas.FeedbackReceipt, {"decision_id": decision_id, "reward": reward})


def feedback_batch_call(items: Sequence[tuple[str, float]]) -> Call[schemas.FeedbackOutcomes]:
    body = {"items": [{"decision_id": id_, "reward": reward} for id_, reward in items]}
    return Call("POST", "/feedback/batch", schemas.FeedbackOutcomes, body)


def decision_call(decision_id: str) -> Call[schemas.DecisionRecord]:
    return Call("GET", f"/decisions/{decision_id}", schemas.DecisionRecord)


def state_call() -> Call[schemas.State]:
    return Call("GET", "/state", schemas.State)


def leave_call() -> Call[schemas.LeaveResult]:
    return Call("POST", "/admin/leave", schemas.LeaveResult)


@dataclass(frozen=True)
class Retries:
    """How often to try, and how long to wait before trying again."""

    attempts: int = 4
    first_pause_seconds: float = 0.1

    def pause(self, attempt: int, response: httpx.Response | None) -> float:
        asked = response.headers.get("retry-after") if response is not None else None
        wait: float = self.first_pause_seconds * 2**attempt * (0.5 + random.random())
        return max(wait, float(asked)) if asked and asked.isdigit() else wait

    def again(self, call: Call[Any], attempt: int, response: httpx.Response | None) -> bool:
        passing = response is None or response.status_code in _PASSING
        return call.repeatable and passing and attempt + 1 < self.attempts


def _headers(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


class City:
    """A city, for code that waits."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_seconds: float = 5.0,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(
            base_url=url, headers=_headers(key), timeout=timeout_seconds, transport=transport
        )
        self._retries = retries or Retries()

    def price(
        self,
        shared: Features,
        local: Features | None = None,
        *,
        decision_id: str | None = None,
        subject: str | None = None,
    ) -> schemas.Decision:
        return self._do(price_call(shared, local or {}, decision_id, subject))

    def prices(self, contexts: Sequence[tuple[Features, Features]]) -> list[schemas.Decision]:
        return self._do(batch_call(contexts)).decisions

    def feedback(self, decision_id: str, reward: float) -> schemas.FeedbackReceipt:
        return self._do(feedback_call(decision_id, reward))

    def feedbacks(self, items: Sequence[tuple[str, float]]) -> list[schemas.FeedbackOutcome]:
        return self._do(feedback_batch_call(items)).outcomes

    def decision(self, decision_id: str) -> schemas.DecisionRecord:
        return self._do(decision_call(decision_id))

    def state(self) -> schemas.State:
        return self._do(state_call())

    def leave(self) -> int:
        """Leave the mesh; how many peers have heard it."""
        return self._do(leave_call()).told

    def _do(self, call: Call[Answer]) -> Answer:
        attempt = 0
        while True:
            response = fault = None
            try:
                response = self._http.request(call.method, call.path, json=call.body)
            except httpx.TransportError as error:
                fault = error
            if not self._retries.again(call, attempt, response):
                return _finish(call, response, fault)
            time.sleep(self._retries.pause(attempt, response))
            attempt += 1

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncCity:
    """A city, for code that awaits."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_seconds: float = 5.0,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(
            base_url=url, headers=_headers(key), timeout=timeout_seconds, transport=transport
        )
        self._retries = retries or Retries()

    async def price(
        self,
        shared: Features,
        local: Features | None = None,
        *,
        decision_id: str | None = None,
        subject: str | None = None,
    ) -> schemas.Decision:
        return await self._do(price_call(shared, local or {}, decision_id, subject))

    async def prices(self, contexts: Sequence[tuple[Features, Features]]) -> list[schemas.Decision]:
        return (await self._do(batch_call(contexts))).decisions

    async def feedback(self, decision_id: str, reward: float) -> schemas.FeedbackReceipt:
        return await self._do(feedback_call(decision_id, reward))

    async def feedbacks(self, items: Sequence[tuple[str, float]]) -> list[schemas.FeedbackOutcome]:
        return (await self._do(feedback_batch_call(items))).outcomes

    async def decision(self, decision_id: str) -> schemas.DecisionRecord:
        return await self._do(decision_call(decision_id))

    async def state(self) -> schemas.State:
        return await self._do(state_call())

    async def leave(self) -> int:
        """Leave the mesh; how many peers have heard it."""
        return (await self._do(leave_call())).told

    async def _do(self, call: Call[Answer]) -> Answer:
        attempt = 0
        while True:
            response = fault = None
            try:
                response = await self._http.request(call.method, call.path, json=call.body)
            except httpx.TransportError as error:
                fault = error
            if not self._retries.again(call, attempt, response):
                return _finish(call, response, fault)
            await asyncio.sleep(self._retries.pause(attempt, response))
            attempt += 1

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _finish(call: Call[Answer], response: httpx.Response | None, fault: Exception | None) -> Answer:
    if response is None:
        raise CityUnreachable(f"{call.method} {call.path}: {fault}") from fault
    return call.read(response)
