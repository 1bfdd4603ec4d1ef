"""A city whose database is lost: what its readiness, log and counts say, and when it is well again."""

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy.exc import OperationalError

from pricemesh.city import health as health_module
from pricemesh.city import reading
from pricemesh.city.deciding import Quote
from pricemesh.city.loop import FutureTicket
from pricemesh.city.pricing import Pricing
from pricemesh.errors import InDoubt, Overloaded, StorageCause, StorageUnavailable
from pricemesh.runtime import Runtime
from tests.faulty_disk import FaultyDisk
from tests.running import settings_for

CONTEXT = np.array([0.5, 0.25, 1.0, 0.1, 0.0]).tobytes()


class City:
    def __init__(self, folder: Path, runtime: dict[str, Any], sections: dict[str, Any]) -> None:
        self.disk = FaultyDisk()
        settings = settings_for(f"sqlite:///{folder}/city.db", **sections)
        self.pricing = Pricing(settings, Runtime(disk=self.disk, **runtime))

    async def price(self) -> Any:
        ticket = FutureTicket()
        self.pricing.quote(Quote([(None, None)], CONTEXT), ticket)
        return await ticket.future

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.001)


def run(
    folder: Path,
    story: Callable[[City], Coroutine[Any, Any, None]],
    runtime: dict[str, Any] | None = None,
    **sections: Any,
) -> None:
    async def whole() -> None:
        city = City(folder, runtime or {}, sections)
        await city.pricing.start()
        try:
            await story(city)
        finally:
            await city.pricing.stop()

    asyncio.run(whole())


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (errno.ENOSPC, StorageCause.DISK_FULL),
        (errno.EROFS, StorageCause.READ_ONLY),
        (errno.EIO, StorageCause.IO_ERROR),
        (errno.ENOENT, StorageCause.GONE),
    ],
)
def test_a_city_whose_commit_failed_is_not_ready_until_a_probe_succeeds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, cause: StorageCause
) -> None:
    async def story(city: City) -> None:
        pricing = city.pricing
        assert await pricing.faults() == []
        city.disk.before = OSError(number, "the disk's own words")
        for _ in range(3):
            with pytest.raises(StorageUnavailable, match="nothing was changed"):
                await city.price()
        (fault,) = await pricing.faults()
        assert "the disk's own words" in fault
        assert not pricing.is_ready
        failures = pricing.health.failures[cause]
        await city.until(lambda: pricing.health.failures[cause] >= failures + 2)  # by probes alone
        city.disk.before = None
        await city.until(lambda: pricing.is_ready)  # without traffic
        assert await pricing.faults() == []
        assert set(pricing.health.failures) == {cause}

    run(tmp_path, story)
    loss, recovery = lines(caplog)
    assert "is lost" in loss
    assert "is back" in recovery


def test_a_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.price()
        before = await city.pricing.state()
        city.disk.before = OSError(errno.EIO, "once")
        with pytest.raises(StorageUnavailable):
            await city.price()
        city.disk.before = None
        await city.until(lambda: city.pricing.is_ready)
        assert await city.pricing.state() == before

    run(tmp_path, story)
    run(tmp_path, lambda city: city.price())


def test_a_commit_of_traffic_that_succeeds_makes_the_city_ready_at_once(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        city.disk.before = OSError(errno.EIO, "once")
        with pytest.raises(StorageUnavailable):
            await city.price()
        await city.until(lambda: city.pricing.health.failures[StorageCause.IO_ERROR] >= 2)
        city.disk.before = None
        await city.price()
        assert await city.pricing.faults() == []

    run(tmp_path, story)


def test_windows_that_cannot_be_closed_are_no_lines_in_the_log_while_the_database_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(city: City) -> None:
        city.disk.before = OSError(errno.ENOSPC, "full")
        closing = asyncio.create_task(city.pricing.close_windows())
        await city.until(lambda: city.pricing.health.failures[StorageCause.DISK_FULL] >= 6)
        closing.cancel()
        city.disk.before = None
        await city.until(lambda: city.pricing.is_ready)

    run(tmp_path, story, feedback={"default_reward": 0.0, "window_seconds": 0.01})
    assert len(lines(caplog)) == 2


def test_a_commit_that_may_have_happened_says_so(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        city.disk.after = OperationalError("commit", {}, OSError("answer lost"))
        with pytest.raises(InDoubt, match=r"may have happened .*same decision_id.*same feedback"):
            await city.price()
        city.disk.after = None
        await city.until(lambda: city.pricing.is_ready)
        assert (await city.pricing.state())["decisions"] == 1

    run(tmp_path, story)


class HangingWorker:
    """The writer of a city whose disk hangs until it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    def run(self, job: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        async def work() -> Any:
            await self.released.wait()
            return job(*arguments)

        return asyncio.ensure_future(work())

    async def close(self) -> None: ...


def test_a_city_whose_commit_hangs_is_not_ready_until_it_ends(tmp_path: Path) -> None:
    now = [0.0]
    worker = HangingWorker()

    async def story(city: City) -> None:
        price = asyncio.ensure_future(city.price())
        await city.until(lambda: city.pricing.health.commit_began_at is not None)
        assert await city.pricing.faults() == []
        now[0] += 2.1
        (fault,) = await city.pricing.faults()
        assert "has not ended" in fault
        assert not city.pricing.is_ready
        worker.released.set()
        await price
        assert await city.pricing.faults() == []
        assert city.pricing.is_ready

    run(tmp_path, story, {"worker": lambda _name: worker, "monotonic": lambda: now[0]})


class HangingThreads:
    """The threads of a city whose disk does not answer reads."""

    def __init__(self) -> None:
        self.hangs = False
        self.hanging = 0
        self.answer = asyncio.Event()

    async def run_beside(self, job: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        function = getattr(job, "func", job)
        if self.hangs and function.__name__ in ("fault", "totals"):
            self.hanging += 1
            await self.answer.wait()
        return job(*arguments, **named)

    def run(self, job: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(self.run_beside(job, *arguments))

    async def close(self) -> None: ...


def test_reads_and_readiness_that_a_disk_leaves_waiting_are_refused_and_take_few_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_module, "CHECK_SECONDS", 0.1)
    threads = HangingThreads()

    async def story(city: City) -> None:
        threads.hangs = True
        checks = await asyncio.gather(*(city.pricing.faults() for _ in range(20)))
        assert all("not answered within 0.1 s" in fault for (fault,) in checks)
        assert threads.hanging == 1
        states = await asyncio.gather(*(city.pricing.state() for _ in range(20)), return_exceptions=True)
        kinds = Counter(type(state) for state in states)
        assert kinds == {StorageUnavailable: reading.MAX_READS, Overloaded: 20 - reading.MAX_READS}
        assert threads.hanging == 1 + reading.MAX_READS
        assert not city.pricing.is_ready
        threads.hangs = False
        threads.answer.set()
        await asyncio.sleep(0)  # the reads end
        await asyncio.sleep(0)  # and free their places
        await city.pricing.state()
        assert await city.pricing.faults() == []

    faults = {"in_thread": threads.run_beside, "pool": lambda _name, _count: threads}
    run(tmp_path, story, faults, database={"read_timeout_seconds": 0.1})
