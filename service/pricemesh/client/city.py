"""`City` blocks, `AsyncCity` awaits. All but the waiting is in `calls`."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from pricemesh.client import calls
from pricemesh.client.calls import Amounts, Answer, Call, Context, Features, Outcome, Retries
from pricemesh.http import schemas
from pricemesh.http.retraction_schemas import LiftResult, RetractionRecord, RetractionResult
from pricemesh.http.sales_schemas import ActRecord, Alert, MeshValue, Sales
from pricemesh.http.state_schemas import State


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
            base_url=calls.address_of(url),
            headers=calls.headers_of(key),
            timeout=timeout_seconds,
            transport=transport,
        )

    def price(
        self,
        shared: Features,
        local: Features | None = None,
        *,
        decision_id: str | None = None,
        subject: str | None = None,
    ) -> schemas.Decision:
        return self._do(calls.price(shared, local, decision_id, subject))

    def prices(self, contexts: Sequence[Context]) -> list[schemas.Decision]:
        return self._do(calls.prices(contexts))

    def feedback(
        self, decision_id: str, *, sold: float | None = None, reward: float | None = None
    ) -> schemas.FeedbackReceipt:
        """Units `sold` in a city of purchases, the `reward` in a city of values."""
        return self._do(calls.feedback(decision_id, sold, reward))

    def feedbacks(
        self, *, sold: Amounts | None = None, reward: Amounts | None = None
    ) -> list[schemas.FeedbackOutcome]:
        """(decision_id, units sold) pairs, or (decision_id, reward) pairs; each has an outcome of its own."""
        return self._do(calls.feedbacks(sold, reward))

    def decision(self, decision_id: str) -> schemas.DecisionRecord:
        return self._do(calls.decision(decision_id))

    def decisions(
        self, *, arm: int | None = None, since: float | None = None, until: float | None = None
    ) -> Iterator[schemas.DecisionRecord]:
        """The decisions that match, newest first, read page by page; times are Unix seconds. For millions of
        them use `pricemesh export`."""
        filters, before = calls.Filters(arm, since, until), None
        while True:
            page = self._do(calls.decisions(filters, before))
            yield from page.decisions
            if (before := page.next_before) is None:
                return

    def state(self) -> State:
        return self._do(calls.state())

    def leave(self) -> int:
        """Leave the mesh. The answer is how many peers have confirmed it."""
        return self._do(calls.leave())

    def forget(self, subject: str) -> int:
        """Remove a subject from all its decisions. The answer is from how many."""
        return self._do(calls.forget(subject))

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
        return self._do(calls.retract(reason, decisions, import_name, since, until, key, dry_run))

    def lift_retraction(self, retraction: int, reason: str) -> LiftResult:
        """Let the feedback of a retraction count again."""
        return self._do(calls.lift_retraction(retraction, reason))

    def retractions(self, *, limit: int = 50, before: int | None = None) -> list[RetractionRecord]:
        """Newest first; `before` is the id after which to go on."""
        return self._do(calls.retractions(limit, before))

    def sales(
        self,
        *,
        per: Literal["hour", "day", "week"] = "day",
        since: float | None = None,
        until: float | None = None,
        arms: bool = False,
    ) -> Sales:
        """Decisions, conversion and revenue per hour, day or week; times are Unix seconds."""
        return self._do(calls.sales(per, since, until, arms))

    def acts(
        self, *, since: float | None = None, until: float | None = None, limit: int = 200
    ) -> list[ActRecord]:
        """What operators did, newest first."""
        return self._do(calls.acts(since, until, limit))

    def alerts(self) -> list[Alert]:
        """What needs a person's attention now."""
        return self._do(calls.alerts())

    def mesh_value(self) -> MeshValue:
        """What the mesh contributes, by the city's own estimates."""
        return self._do(calls.mesh_value())

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
            base_url=calls.address_of(url),
            headers=calls.headers_of(key),
            timeout=timeout_seconds,
            transport=transport,
        )

    async def price(
        self,
        shared: Features,
        local: Features | None = None,
        *,
        decision_id: str | None = None,
        subject: str | None = None,
    ) -> schemas.Decision:
        return await self._do(calls.price(shared, local, decision_id, subject))

    async def prices(self, contexts: Sequence[Context]) -> list[schemas.Decision]:
        return await self._do(calls.prices(contexts))

    async def feedback(
        self, decision_id: str, *, sold: float | None = None, reward: float | None = None
    ) -> schemas.FeedbackReceipt:
        return await self._do(calls.feedback(decision_id, sold, reward))

    async def feedbacks(
        self, *, sold: Amounts | None = None, reward: Amounts | None = None
    ) -> list[schemas.FeedbackOutcome]:
        return await self._do(calls.feedbacks(sold, reward))

    async def decision(self, decision_id: str) -> schemas.DecisionRecord:
        return await self._do(calls.decision(decision_id))

    async def decisions(
        self, *, arm: int | None = None, since: float | None = None, until: float | None = None
    ) -> AsyncIterator[schemas.DecisionRecord]:
        filters, before = calls.Filters(arm, since, until), None
        while True:
            page = await self._do(calls.decisions(filters, before))
            for record in page.decisions:
                yield record
            if (before := page.next_before) is None:
                return

    async def state(self) -> State:
        return await self._do(calls.state())

    async def leave(self) -> int:
        return await self._do(calls.leave())

    async def forget(self, subject: str) -> int:
        return await self._do(calls.forget(subject))

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
        return await self._do(calls.retract(reason, decisions, import_name, since, until, key, dry_run))

    async def lift_retraction(self, retraction: int, reason: str) -> LiftResult:
        return await self._do(calls.lift_retraction(retraction, reason))

    async def retractions(self, *, limit: int = 50, before: int | None = None) -> list[RetractionRecord]:
        return await self._do(calls.retractions(limit, before))

    async def sales(
        self,
        *,
        per: Literal["hour", "day", "week"] = "day",
        since: float | None = None,
        until: float | None = None,
        arms: bool = False,
    ) -> Sales:
        return await self._do(calls.sales(per, since, until, arms))

    async def acts(
        self, *, since: float | None = None, until: float | None = None, limit: int = 200
    ) -> list[ActRecord]:
        return await self._do(calls.acts(since, until, limit))

    async def alerts(self) -> list[Alert]:
        return await self._do(calls.alerts())

    async def mesh_value(self) -> MeshValue:
        return await self._do(calls.mesh_value())

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
