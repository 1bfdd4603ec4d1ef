"""Call a city from Python: `City` blocks, `AsyncCity` awaits. All but the waiting is shared.

>>> with City("http://127.0.0.1:8001", key="pm_...") as lisbon:      # doctest: +SKIP
...     decision = lisbon.price({"demand": 0.4, "rain": 0.0, "event": 1.0}, {"tourists": 0.2, "strike": 0.0})
...     lisbon.feedback(decision.decision_id, sold=1)  # in a city of values: reward=0.8

Every call is safe to repeat, so it is repeated when the network or the city fails for a moment, also when a
commit is in doubt. A price is safe because the client chooses its decision_id, and the same decision_id gets
the same price; feedback is safe because the city learns it once, and a retraction because the same one is not
made twice.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Self

import httpx

from pricemesh.calls import (
    Amounts,
    Answer,
    Call,
    CityError,
    CityUnreachable,
    Context,
    Features,
    Outcome,
    decision_call,
    feedback_call,
    feedbacks_call,
    leave_call,
    lift_call,
    price_call,
    prices_call,
    retract_call,
    retractions_call,
    state_call,
)
from pricemesh.errors import InvalidParameter
from pricemesh.http import schemas
from pricemesh.http.retraction_schemas import LiftResult, RetractionRecord, RetractionResult

__all__ = ["AsyncCity", "City", "CityError", "CityUnreachable", "Retries"]

TRANSIENT_STATUSES = frozenset({429, 502, 503, 504})
MAX_PAUSE_SECONDS = 30.0  # whatever Retry-After says


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
        return self._do(price_call(shared, local, decision_id, subject))

    def prices(self, contexts: Sequence[Context]) -> list[schemas.Decision]:
        return self._do(prices_call(contexts))

    def feedback(
        self, decision_id: str, *, sold: float | None = None, reward: float | None = None
    ) -> schemas.FeedbackReceipt:
        """Units `sold` in a city of purchases, the `reward` in a city of values."""
        return self._do(feedback_call(decision_id, sold, reward))

    def feedbacks(
        self, *, sold: Amounts | None = None, reward: Amounts | None = None
    ) -> list[schemas.FeedbackOutcome]:
        """(decision_id, units sold) pairs, or (decision_id, reward) pairs; each has an outcome of its own."""
        return self._do(feedbacks_call(sold, reward))

    def decision(self, decision_id: str) -> schemas.DecisionRecord:
        return self._do(decision_call(decision_id))

    def state(self) -> schemas.State:
        return self._do(state_call())

    def leave(self) -> int:
        """Leave the mesh. The answer is how many peers have confirmed it."""
        return self._do(leave_call())

    def retract(
        self,
        reason: str,
        *,
        decisions: Sequence[str] | None = None,
        import_name: str | None = None,
        since: float | None = None,
        until: float | None = None,
        key: str | None = None,
        dry_run: bool = False,
    ) -> RetractionResult:
        """Take feedback back: of these decisions, of this import, of this time, or what this key sent."""
        return self._do(retract_call(reason, decisions, import_name, since, until, key, dry_run))

    def lift_retraction(self, retraction: int, reason: str) -> LiftResult:
        """Let the feedback of a retraction count again."""
        return self._do(lift_call(retraction, reason))

    def retractions(self, *, limit: int = 50, before: int | None = None) -> list[RetractionRecord]:
        """Newest first; `before` is the id after which to go on."""
        return self._do(retractions_call(limit, before))

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
            timeout = call.timeout_seconds or self._http.timeout
            return self._http.request(call.method, call.path, json=call.body, timeout=timeout)
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
        return await self._do(price_call(shared, local, decision_id, subject))

    async def prices(self, contexts: Sequence[Context]) -> list[schemas.Decision]:
        return await self._do(prices_call(contexts))

    async def feedback(
        self, decision_id: str, *, sold: float | None = None, reward: float | None = None
    ) -> schemas.FeedbackReceipt:
        return await self._do(feedback_call(decision_id, sold, reward))

    async def feedbacks(
        self, *, sold: Amounts | None = None, reward: Amounts | None = None
    ) -> list[schemas.FeedbackOutcome]:
        return await self._do(feedbacks_call(sold, reward))

    async def decision(self, decision_id: str) -> schemas.DecisionRecord:
        return await self._do(decision_call(decision_id))

    async def state(self) -> schemas.State:
        return await self._do(state_call())

    async def leave(self) -> int:
        return await self._do(leave_call())

    async def retract(
        self,
        reason: str,
        *,
        decisions: Sequence[str] | None = None,
        import_name: str | None = None,
        since: float | None = None,
        until: float | None = None,
        key: str | None = None,
        dry_run: bool = False,
    ) -> RetractionResult:
        return await self._do(retract_call(reason, decisions, import_name, since, until, key, dry_run))

    async def lift_retraction(self, retraction: int, reason: str) -> LiftResult:
        return await self._do(lift_call(retraction, reason))

    async def retractions(self, *, limit: int = 50, before: int | None = None) -> list[RetractionRecord]:
        return await self._do(retractions_call(limit, before))

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
            timeout = call.timeout_seconds or self._http.timeout
            return await self._http.request(call.method, call.path, json=call.body, timeout=timeout)
        except httpx.TransportError as fault:
            return fault
