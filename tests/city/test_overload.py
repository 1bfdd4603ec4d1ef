"""More than the database takes, or a database that hangs: who is answered, with what, and what is learned."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pricemesh.city import loop as loop_module
from pricemesh.city.deciding import Quote
from pricemesh.city.loop import FutureTicket
from pricemesh.city.pricing import Pricing
from pricemesh.city.wait_limit import WaitLimit
from pricemesh.errors import InDoubt, Overloaded
from pricemesh.runtime import Runtime
from pricemesh.store.commands import FeedbackStatus
from tests.city.test_loop import CONTEXT
from tests.running import settings_for

MAX_WAIT_SECONDS = 0.05


class HangingWorker:
    """Does a job at once, or when it is released."""

    def __init__(self) -> None:
        self.hangs = False
        self._jobs: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.begun = asyncio.Event()

    def run(self, job: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.append((lambda: job(*arguments), future))
        self.begun.set()
        if not self.hangs:
            self.release()
        return future

    def release(self) -> None:
        self.hangs = False
        jobs, self._jobs = self._jobs, []
        for job, future in jobs:
            future.set_result(job())

    async def close(self) -> None: ...


class City:
    def __init__(self, folder: Path, **sections: Any) -> None:
        self.worker = HangingWorker()
        limits = {"max_wait_seconds": MAX_WAIT_SECONDS}
        settings = settings_for(f"sqlite:///{folder}/city.db", limits=limits, **sections)
        self.pricing = Pricing(settings, Runtime(worker=lambda _name: self.worker))

    def quote(self, id_: str, subject: str | None = None, rows: int = 1) -> "asyncio.Future[Any]":
        ticket = FutureTicket()
        self.pricing.quote(Quote([(id_, subject)] * rows, CONTEXT * rows), ticket)
        return ticket.future

    def feedback(self, id_: str) -> "asyncio.Future[Any]":
        ticket = FutureTicket()
        self.pricing.feedback([(id_, 1.0)], ticket)
        return ticket.future

    async def hang(self) -> None:
        self.worker.hangs = True
        self.worker.begun.clear()

    async def ids(self) -> list[str]:
        return [row.decision.id for row in await self.pricing.latest_decisions(limit=100)]


def run(folder: Path, story: Any, **sections: Any) -> None:
    async def whole() -> None:
        city = City(folder, **sections)
        await city.pricing.start()
        try:
            await story(city)
        finally:
            city.worker.release()
            await city.pricing.stop()

    asyncio.run(whole())


def test_a_commit_that_hangs_is_in_doubt_and_what_waits_behind_it_was_not_written(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.quote("d")
        await city.hang()
        under_way = [city.quote("under-way"), city.feedback("d")]
        await city.worker.begun.wait()
        behind = [city.quote("behind"), city.feedback("d")]
        answers = await asyncio.gather(*under_way, *behind, return_exceptions=True)
        assert [type(answer) for answer in answers] == [InDoubt, InDoubt, Overloaded, Overloaded]
        with pytest.raises(Overloaded, match="has not answered") as refused:
            city.quote("later")
        assert refused.value.retry_after_seconds == MAX_WAIT_SECONDS
        assert city.pricing.gate.refusal is not None

    run(tmp_path, story)


def test_a_commit_that_ends_late_is_learned_once_and_the_loop_goes_on(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.quote("d")
        await city.hang()
        with pytest.raises(InDoubt):
            await city.feedback("d")
        assert city.pricing.version == 0
        city.worker.release()
        (again,) = await until_admitted(lambda: city.feedback("d"))
        assert (again.status, again.version) == (FeedbackStatus.AGAIN, 1)
        assert (city.pricing.version, city.pricing.live.lesson_counts.sum()) == (1, 1)
        await city.quote("e")
        assert city.pricing.waiting_rows == 0
        assert await city.ids() == ["e", "d"]

    run(tmp_path, story)


async def until_admitted(ask: Callable[[], "asyncio.Future[Any]"]) -> Any:
    """The loop admits again once it has got to the end of the late commit."""
    while True:
        try:
            return await ask()
        except Overloaded:
            await asyncio.sleep(0)


def test_a_look_up_that_hangs_leaves_nothing_behind(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.hang()
        with pytest.raises(Overloaded, match="nothing was changed"):
            await city.quote("d", "ann")
        city.worker.release()
        await until_admitted(lambda: city.quote("e", "bob"))
        assert await city.ids() == ["e"]
        assert city.pricing.waiting_rows == 0

    run(tmp_path, story, guardrails={"max_step": 1.0})


def test_an_operators_command_waits_for_the_end_of_its_commit(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.hang()
        pin = asyncio.ensure_future(city.pricing.pin(9.0, "campaign"))
        await city.worker.begun.wait()
        with pytest.raises(Overloaded):
            await city.quote("d")
        assert not pin.done()
        city.worker.release()
        await pin
        assert city.pricing.controls.pinned_arm == 1

    run(tmp_path, story)


def test_a_full_queue_shuts_the_gate_until_a_commit_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "MAX_WAITING_ROWS", 10)

    async def story(city: City) -> None:
        first = city.quote("d", rows=8)
        with pytest.raises(Overloaded, match="too many writes"):
            city.quote("large", rows=3)
        assert city.pricing.gate.refusal is None  # a smaller one may come
        second = city.quote("e", rows=2)
        with pytest.raises(Overloaded):
            city.quote("f")
        assert isinstance(city.pricing.gate.refusal, Overloaded)
        await asyncio.gather(first, second)
        assert await city.quote("g")
        assert city.pricing.gate.refusal is None

    run(tmp_path, story)


def test_rows_that_cost_much_limit_how_many_may_wait() -> None:
    limit = WaitLimit(1.0, max_rows=20_000, rows_per_commit=4000)
    for _ in range(50):
        limit.observe(4000, 0.4)
        limit.observe(400, 0.04)
    assert 4_000 < limit.max_rows < 12_000  # exactly known, they would be 10,000
    assert limit.too_many_rows(10_000).retry_after_seconds == pytest.approx(1.0, abs=0.5)


def test_a_few_rows_that_took_long_do_not_shut_out_many() -> None:
    limit = WaitLimit(1.0, max_rows=20_000, rows_per_commit=4000)
    for _ in range(50):
        limit.observe(1, 0.001)
    limit.observe(1, 0.05)
    assert limit.max_rows > 10_000


def test_a_slow_commit_of_any_size_leaves_room_for_a_group() -> None:
    limit = WaitLimit(1.0, max_rows=20_000, rows_per_commit=4000)
    for _ in range(1000):
        limit.observe(100, 0.5)
    assert limit.max_rows >= 4000
