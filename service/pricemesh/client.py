"""Call a city from Python: `City` blocks, `AsyncCity` awaits. All but the waiting is shared.

>>> with City("http://127.0.0.1:8001", key="pm_...") as lisbon:      # doctest: +SKIP
...     decision = lisbon.price({"demand": 0.4, "rain": 0.0, "event": 1.0}, {"tourists": 0.2, "strike": 0.0})
...     lisbon.feedback(decision.decision_id, sold=1)  # in a city of values: reward=0.8

Every call is safe to repeat, so it is repeated when the network or the city fails for a moment, also when a
commit is in doubt. A price is safe because the client chooses its decision_id, and the same decision_id gets
the same price; feedback is safe because the city learns it once.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import httpx

from pricemesh.errors import InvalidParameter, PricemeshError
from pricemesh.http import schemas

Answer = TypeVar("Answer")
Given = TypeVar("Given")
Features = Mapping[str, float]
Context = tuple[Features, Features]  # shared, local
Amounts = Sequence[tuple[str, float]]  # decision_id; units sold or reward
Outcome = httpx.Response | httpx.TransportError
TRANSIENT_STATUSES = frozenset({429, 502, 503, 504})
MAX_PAUSE_SECONDS = 30.0  # whatever Retry-After says


class CityError(PricemeshError):
    """The city refused the call. `problem` is its RFC 9457 document."""

    def __init__(self, problem: schemas.Problem) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")
        self.problem = problem


class CityUnreachable(PricemeshError):
    """Every attempt ended without an answer."""


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """One request, and how the body of its answer is read."""

    method: str
    path: str
    read: Callable[[bytes], Answer]
    body: Any = None

    def answer(self, outcome: Outcome) -> Answer:
        if isinstance(outcome, httpx.TransportError):
            raise CityUnreachable(f"{self.method} {self.path}: {outcome}") from outcome
        if not outcome.is_success:
            raise CityError(_problem(outcome))
        return self.read(outcome.content)


def _problem(response: httpx.Response) -> schemas.Problem:
    try:
        return schemas.Problem.model_validate_json(response.content)
    except ValueError:  # not from a city: a proxy's page, say
        return schemas.Problem(
            type="about:blank",
            title=response.reason_phrase,
            status=response.status_code,
            detail=response.text[:500],
        )


@dataclass(frozen=True)
class Retries:
    """How often a call is tried, and how long to wait in between: twice as long each time, with jitter; at
    least as long as the city asks for, and at most MAX_PAUSE_SECONDS."""

    attempts: int = 4
    first_pause_seconds: float = 0.1

    def pause_seconds(self, attempt: int, outcome: Outcome) -> float | None:
        """The pause after this attempt (the first is 0); None where its outcome is final."""
        retry_after = ""
        if isinstance(outcome, httpx.Response):
            if outcome.status_code not in TRANSIENT_STATUSES:
                return None
            retry_after = outcome.headers.get("retry-after", "")
        if attempt + 1 >= self.attempts:
            return None
        pause: float = self.first_pause_seconds * 2**attempt * (0.5 + random.random())
        if retry_after.isascii() and retry_after.isdigit():
            pause = max(pause, float(retry_after))
        return min(pause, MAX_PAUSE_SECONDS)


def _price_body(
    shared: Features, local: Features | None, decision_id: str | None = None, subject: str | None = None
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "shared": dict(shared),
        "local": dict(local or {}),
        "decision_id": decision_id or str(uuid.uuid4()),
    }
    return body | ({"subject": subject} if subject is not None else {})


def _price(
    shared: Features, local: Features | None, decision_id: str | None, subject: str | None
) -> Call[schemas.Decision]:
    body = _price_body(shared, local, decision_id, subject)
    return Call("POST", "/price", schemas.Decision.model_validate_json, body)


def _prices(contexts: Sequence[Context]) -> Call[list[schemas.Decision]]:
    def read(content: bytes) -> list[schemas.Decision]:
        return schemas.DecisionBatch.model_validate_json(content).decisions

    return Call("POST", "/price/batch", read, {"requests": [_price_body(*context) for context in contexts]})


def _one_of(sold: Given | None, reward: Given | None) -> tuple[str, Given]:
    """The field of the body and what it holds."""
    if sold is not None and reward is None:
        return "sold", sold
    if reward is not None and sold is None:
        return "reward", reward
    raise TypeError("give either sold=... (to a city of purchases) or reward=... (to a city of values)")


def _feedback(decision_id: str, sold: float | None, reward: float | None) -> Call[schemas.FeedbackReceipt]:
    field, amount = _one_of(sold, reward)
    body = {"decision_id": decision_id, field: amount}
    return Call("POST", "/feedback", schemas.FeedbackReceipt.model_validate_json, body)


def _feedbacks(sold: Amounts | None, reward: Amounts | None) -> Call[list[schemas.FeedbackOutcome]]:
    def read(content: bytes) -> list[schemas.FeedbackOutcome]:
        return schemas.FeedbackOutcomes.model_validate_json(content).outcomes

    field, items = _one_of(sold, reward)
    body = {"items": [{"decision_id": id_, field: amount} for id_, amount in items]}
    return Call("POST", "/feedback/batch", read, body)


def _decision(decision_id: str) -> Call[schemas.DecisionRecord]:
    return Call("GET", f"/decisions/{decision_id}", schemas.DecisionRecord.model_validate_json)


def _state() -> Call[schemas.State]:
    return Call("GET", "/state", schemas.State.model_validate_json)


def _leave() -> Call[int]:
    def read(content: bytes) -> int:
        return schemas.LeaveResult.model_validate_json(content).told

    return Call("POST", "/admin/leave", read)


def _forget(subject: str) -> Call[int]:
    def read(content: bytes) -> int:
        return schemas.ForgetResult.model_validate_json(content).decisions

    return Call("POST", "/admin/forget", read, {"subject": subject})


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        address = httpx.URL()
    if address.scheme not in ("http", "https") or not address.host:
        raise InvalidParameter(f"{url!r} is not the address of a city: write http://host:port")
    return address


def _headers(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


class City:
    """A city, for code that blocks."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_seconds: float = 5.0,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._retries = retries or Retries()
        self._http = httpx.Client(
            base_url=_address(url), headers=_headers(key), timeout=timeout_seconds, transport=transport
        )

    def price(
        self,
        shared: Features,
        local: Features | None = None,
        *,
        decision_id: str | None = None,
        subject: str | None = None,
    ) -> schemas.Decision:
        return self._do(_price(shared, local, decision_id, subject))

    def prices(self, contexts: Sequence[Context]) -> list[schemas.Decision]:
        return self._do(_prices(contexts))

    def feedback(
        self, decision_id: str, *, sold: float | None = None, reward: float | None = None
    ) -> schemas.FeedbackReceipt:
        """Units `sold` in a city of purchases, the `reward` in a city of values."""
        return self._do(_feedback(decision_id, sold, reward))

    def feedbacks(
        self, *, sold: Amounts | None = None, reward: Amounts | None = None
    ) -> list[schemas.FeedbackOutcome]:
        """(decision_id, units sold) pairs, or (decision_id, reward) pairs; each has an outcome of its own."""
        return self._do(_feedbacks(sold, reward))

    def decision(self, decision_id: str) -> schemas.DecisionRecord:
        return self._do(_decision(decision_id))

    def state(self) -> schemas.State:
        return self._do(_state())

    def leave(self) -> int:
        """Leave the mesh. The answer is how many peers have confirmed it."""
        return self._do(_leave())

    def forget(self, subject: str) -> int:
        """Remove a subject from all its decisions. The answer is from how many."""
        return self._do(_forget(subject))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, call: Call[Answer]) -> Answer:
        for attempt in count():
            outcome = self._try(call)
            pause_seconds = self._retries.pause_seconds(attempt, outcome)
            if pause_seconds is None:
                break
            time.sleep(pause_seconds)
        return call.answer(outcome)

    def _try(self, call: Call[Any]) -> Outcome:
        try:
            return self._http.request(call.method, call.path, json=call.body)
        except httpx.TransportError as fault:
            return fault


class AsyncCity:
    """A city, for code that awaits. The methods are those of `City`."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_seconds: float = 5.0,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._retries = retries or Retries()
        self._http = httpx.AsyncClient(
            base_url=_address(url), headers=_headers(key), timeout=timeout_seconds, transport=transport
        )

    async def price(
        self,
        shared: Features,
        local: Features | None = None,
        *,
        decision_id: str | None = None,
        subject: str | None = None,
    ) -> schemas.Decision:
        return await self._do(_price(shared, local, decision_id, subject))

    async def prices(self, contexts: Sequence[Context]) -> list[schemas.Decision]:
        return await self._do(_prices(contexts))

    async def feedback(
        self, decision_id: str, *, sold: float | None = None, reward: float | None = None
    ) -> schemas.FeedbackReceipt:
        return await self._do(_feedback(decision_id, sold, reward))

    async def feedbacks(
        self, *, sold: Amounts | None = None, reward: Amounts | None = None
    ) -> list[schemas.FeedbackOutcome]:
        return await self._do(_feedbacks(sold, reward))

    async def decision(self, decision_id: str) -> schemas.DecisionRecord:
        return await self._do(_decision(decision_id))

    async def state(self) -> schemas.State:
        return await self._do(_state())

    async def leave(self) -> int:
        return await self._do(_leave())

    async def forget(self, subject: str) -> int:
        return await self._do(_forget(subject))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _do(self, call: Call[Answer]) -> Answer:
        for attempt in count():
            outcome = await self._try(call)
            pause_seconds = self._retries.pause_seconds(attempt, outcome)
            if pause_seconds is None:
                break
            await asyncio.sleep(pause_seconds)
        return call.answer(outcome)

    async def _try(self, call: Call[Any]) -> Outcome:
        try:
            return await self._http.request(call.method, call.path, json=call.body)
        except httpx.TransportError as fault:
            return fault
