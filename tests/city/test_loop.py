"""The loop without a socket or a thread: take, recall, decide, commit, learn, answer."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy.exc import OperationalError

from pricemesh.city import loop as loop_module
from pricemesh.city.deciding import Quote
from pricemesh.city.guardrails import LatestPrices
from pricemesh.city.loop import FutureTicket
from pricemesh.city.pricing import Pricing
from pricemesh.errors import InvalidContext, PricemeshError, StorageUnavailable
from pricemesh.runtime import Disk, Runtime
from pricemesh.store.acts import ActKind
from pricemesh.store.commands import FeedbackStatus
from tests.running import settings_for

CONTEXT = np.array([0.5, 0.25, 1.0, 0.1, 0.0]).tobytes()
OUTSIDE = np.array([0.5, 7.0, 1.0, 0.1, 0.0]).tobytes()  # rain is at most 1


class InlineWorker:
    """Runs a job at once, and notes it."""

    def __init__(self, jobs: list[str]) -> None:
        self._jobs = jobs

    def run(self, job: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        self._jobs.append(job.__name__)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(job(*arguments))
        except Exception as fault:
            future.set_exception(fault)
        return future

    async def close(self) -> None: ...


class FailingDisk(Disk):
    """Fails as told, before or after a commit."""

    def __init__(self) -> None:
        self.fails_before = self.fails_after = False

    def before_commit(self) -> None:
        if self.fails_before:
            raise OperationalError("commit", {}, OSError("disk full"))

    def after_commit(self) -> None:
        if self.fails_after:
            raise OperationalError("commit", {}, OSError("answer lost"))


class City:
    def __init__(self, folder: Path, **sections: Any) -> None:
        self.jobs: list[str] = []
        self.disk = FailingDisk()
        runtime = Runtime(
            clock=lambda: 1_700_000_000.0,
            random_bytes=bytes,
            worker=lambda _name: InlineWorker(self.jobs),
            disk=self.disk,
        )
        self.pricing = Pricing(settings_for(f"sqlite:///{folder}/city.db", **sections), runtime)

    async def quote(self, *names: tuple[str | None, str | None], context: bytes = CONTEXT) -> Any:
        ticket = FutureTicket()
        self.pricing.quote(Quote(names, context * len(names)), ticket)
        return await ticket.future

    async def feedback(self, *items: tuple[str, float]) -> Any:
        ticket = FutureTicket()
        self.pricing.feedback(items, ticket)
        return await ticket.future


def run(folder: Path, story: Callable[[City], Coroutine[Any, Any, None]], **sections: Any) -> None:
    async def whole() -> None:
        city = City(folder, **sections)
        await city.pricing.start()
        try:
            await story(city)
        finally:
            await city.pricing.stop()

    asyncio.run(whole())


def test_requests_that_wait_together_are_one_commit_and_are_answered_after_it(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        results = await asyncio.gather(*(city.quote((f"d{i}", None)) for i in range(5)))
        assert [rows[0].id for rows in results] == [f"d{i}" for i in range(5)]
        assert city.jobs == ["write"]
        stored = await city.pricing.latest_decisions(limit=10)
        assert len(stored) == 5

    run(tmp_path, story)


def test_feedback_is_learned_before_it_is_answered(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.quote(("d", None))
        ((result,),) = [await city.feedback(("d", 1.0))]
        assert (result.status, result.version) == (FeedbackStatus.LEARNED, 1)
        assert city.pricing.version == 1
        assert city.pricing.live.lesson_counts.sum() == 1

    run(tmp_path, story)


def test_a_context_outside_its_bounds_fails_its_own_quote_alone(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        outcomes: Any = await asyncio.gather(
            city.quote(("good", None)), city.quote(("bad", None), context=OUTSIDE), return_exceptions=True
        )
        assert outcomes[0][0].id == "good"
        assert isinstance(outcomes[1], InvalidContext)
        assert city.pricing.waiting_rows == 0

    run(tmp_path, story)


def test_a_commit_that_fails_answers_everyone_and_learns_nothing(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.quote(("d", None))
        city.disk.fails_before = True
        outcomes = await asyncio.gather(
            city.quote(("e", None)), city.feedback(("d", 1.0)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [StorageUnavailable] * 2
        assert city.pricing.version == 0
        city.disk.fails_before = False
        assert (await city.feedback(("d", 1.0)))[0].version == 1
        assert city.pricing.waiting_rows == 0

    run(tmp_path, story)


def test_a_commit_whose_answer_was_lost_is_learned_once(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.quote(("d", None), ("e", None))
        city.disk.fails_after = True
        with pytest.raises(StorageUnavailable):
            await city.feedback(("d", 1.0))
        city.disk.fails_after = False
        (again,) = await city.feedback(("d", 1.0))
        assert (again.status, again.version) == (FeedbackStatus.AGAIN, 1)
        assert city.pricing.version == 1
        assert city.pricing.live.lesson_counts.sum() == 1

    run(tmp_path, story)


def test_a_subject_is_looked_up_once_and_its_steps_are_limited(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.pricing.pin(8.0, "start low")
        await city.quote((None, "ann"))
        await city.pricing.lift(ActKind.LIFT_PIN)
        city.jobs.clear()
        rows = await city.quote((None, "ann"), (None, "ann"), (None, "bob"))
        assert city.jobs == ["recall", "write"]  # bob is new
        assert rows[0].price <= 9.0
        assert abs(rows[1].price - rows[0].price) <= 1.0
        city.jobs.clear()
        await city.quote((None, "ann"), (None, "bob"))
        assert city.jobs == ["write"]

    run(tmp_path, story, guardrails={"max_step": 1.0})


def test_a_decision_asked_for_again_is_the_same_and_no_step(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        (first,) = await city.quote(("d", "ann"))
        await city.pricing.pin(12.0, "jump")
        await city.quote((None, "ann"))
        await city.pricing.lift(ActKind.LIFT_PIN)
        (again,) = await city.quote(("d", "ann"))
        assert again == first
        (following,) = await city.quote((None, "ann"))
        assert following.price >= 11.0  # a step from 12, not from the first price

    run(tmp_path, story, guardrails={"max_step": 1.0})


def test_a_price_that_was_not_committed_is_no_step(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.pricing.pin(8.0, "low")
        await city.quote((None, "ann"))
        await city.pricing.pin(12.0, "high")
        city.disk.fails_before = True
        with pytest.raises(StorageUnavailable):
            await city.quote((None, "ann"))
        city.disk.fails_before = False
        await city.pricing.lift(ActKind.LIFT_PIN)
        (row,) = await city.quote((None, "ann"))
        assert row.price <= 9.0

    run(tmp_path, story, guardrails={"max_step": 1.0})


def test_an_invalid_quote_beside_them_does_not_undo_the_steps_of_others(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.pricing.pin(10.0, "start")
        await city.quote((None, "ann"))
        await city.pricing.lift(ActKind.LIFT_PIN)
        city.pricing.decider.forget([(Quote([(None, "ann")], CONTEXT), None)])  # as after a restart
        outcomes: Any = await asyncio.gather(
            city.quote((None, "ann")),
            city.quote((None, None), context=OUTSIDE),
            city.quote((None, "ann")),
            return_exceptions=True,
        )
        prices = [10.0, outcomes[0][0].price, outcomes[2][0].price]
        assert all(abs(after - before) <= 1.0 for before, after in pairwise(prices))
        (row,) = await city.quote((None, "ann"))
        assert abs(row.price - prices[-1]) <= 1.0

    run(tmp_path, story, guardrails={"max_step": 1.0})


def test_a_group_with_more_subjects_than_memory_holds_still_limits_every_step(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        city.pricing.decider._latest_prices = LatestPrices(max_subjects=2)
        await city.pricing.pin(8.0, "low")
        await city.quote((None, "ann"))
        await city.pricing.pin(12.0, "high")
        await city.quote((None, "bob"))
        await city.pricing.lift(ActKind.LIFT_PIN)
        rows = await city.quote((None, "new"), (None, "newer"), (None, "ann"), (None, "bob"))
        assert rows[2].price <= 9.0
        assert rows[3].price >= 11.0

    run(tmp_path, story, guardrails={"max_step": 1.0})


def test_one_id_with_and_without_a_subject_is_one_decision_and_one_step(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.pricing.pin(10.0, "start")
        await city.quote((None, "ann"))
        await city.pricing.lift(ActKind.LIFT_PIN)
        first, second = await city.quote(("d", None), ("d", "ann"))
        assert first == second
        (row,) = await city.quote((None, "ann"))
        assert abs(row.price - 10.0) <= 1.0  # the decision went to nobody's account

    run(tmp_path, story, guardrails={"max_step": 1.0})


def test_a_defect_in_a_look_up_fails_its_group_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(city: City) -> None:
        def broken(*_: Any) -> Any:
            raise RuntimeError("a defect")

        broken.__name__ = "recall"
        with monkeypatch.context() as patch:
            patch.setattr(city.pricing.database, "recall", broken)
            with pytest.raises(StorageUnavailable):
                await city.quote((None, "ann"))
        with monkeypatch.context() as patch:
            patch.setattr(city.pricing.decider, "unknown", broken)
            with pytest.raises(StorageUnavailable):
                await city.quote((None, "ann"))
        assert city.pricing.waiting_rows == 0
        assert len(await city.quote((None, "ann"))) == 1
        assert sum(record.levelname == "ERROR" for record in caplog.records) == 2

    run(tmp_path, story, guardrails={"max_step": 1.0})


def test_more_than_may_wait_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "MAX_WAITING_ROWS", 3)

    async def story(city: City) -> None:
        first = asyncio.ensure_future(city.quote(*[(None, None)] * 3))
        await asyncio.sleep(0)
        with pytest.raises(StorageUnavailable, match="too many writes"):
            await city.quote((None, None))
        assert len(await first) == 3
        assert len(await city.quote((None, None))) == 1

    run(tmp_path, story)


def test_a_large_queue_is_committed_in_pieces_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "MAX_COMMIT_ROWS", 4)

    async def story(city: City) -> None:
        await asyncio.gather(*(city.quote((f"d{i}", None)) for i in range(6)))
        stored = await city.pricing.latest_decisions(limit=10)
        assert [row.decision.id for row in reversed(stored)] == [f"d{i}" for i in range(6)]
        assert city.jobs == ["write"] * 2

    run(tmp_path, story)


def test_what_waits_when_the_city_stops_is_committed_and_what_comes_later_is_refused(tmp_path: Path) -> None:
    async def whole() -> None:
        city = City(tmp_path)
        await city.pricing.start()
        waiting = asyncio.ensure_future(city.quote(("d", None)))
        await asyncio.sleep(0)
        loop = city.pricing.loop
        await city.pricing.stop()
        assert (await waiting)[0].id == "d"
        with pytest.raises(PricemeshError):
            loop.quote(Quote([(None, None)], CONTEXT), FutureTicket())

    asyncio.run(whole())
