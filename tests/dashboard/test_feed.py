"""The live feed without a socket, on a clock that the test moves."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pricemesh.city.pricing import Pricing
from pricemesh.dashboard.events import EventStream
from pricemesh.dashboard.feed import MAX_QUEUED_EVENTS, MAX_SECONDS_IN_FRAME, EventReader, Feed
from pricemesh.dashboard.truth import TruthReports
from pricemesh.errors import StorageUnavailable, TooManyReaders
from pricemesh.gossip.mesh import Gossip
from pricemesh.runtime import Runtime
from tests.running import settings_for


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Stage:
    """A feed, its clock, and a state that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        settings = settings_for(f"sqlite:///{folder}/city.db", limits={"event_readers": 2})
        self.wall_offset_seconds = 0.0
        wall = lambda: self.clock() + self.wall_offset_seconds  # noqa: E731
        self.pricing = Pricing(settings, Runtime(clock=wall, monotonic=self.clock))
        gossip = Gossip(self.pricing)
        self.pricing.open()
        gossip.open()
        self.state = {"decisions": 0, "feedback": 0}
        self.build_seconds = 0.0
        self.fault: Exception | None = None
        self.frames_built = 0
        self.feed = Feed(self.pricing, gossip, TruthReports(demo=False), self._read_state)

    async def _read_state(self) -> dict[str, Any]:
        self.frames_built += 1
        await asyncio.sleep(0)
        self.clock.seconds += self.build_seconds
        if self.fault is not None:
            raise self.fault
        return self.state

    async def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.seconds += 1.0
            await self.feed.step()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.pricing.database.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), timeout=60)

    asyncio.run(bounded())


def next_event(reader: EventReader) -> tuple[str, Any]:
    event = reader.events.get_nowait()
    assert event is not None
    name, data = event.decode().rstrip("\n").split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_a_reader_gets_every_second_and_the_page_can_drop_doubles(stage: Stage) -> None:
    async def scenario() -> None:
        await stage.pass_seconds(40)
        async with stage.feed.reader() as first:
            assert next_event(first)[0] == "history"
            next_event(first)
            await stage.pass_seconds(1)
            async with stage.feed.reader() as second:
                _, history = next_event(second)
                times = [each["at"] for each in history["seconds"]]
                for _ in range(8):
                    _, frame = next_event(second)
                    assert len(frame["seconds"]) <= MAX_SECONDS_IN_FRAME
                    times += [each["at"] for each in frame["seconds"]]
                    await stage.pass_seconds(1)
                    next_event(first)
        assert len(history["seconds"]) == 41
        assert sorted(set(times)) == [1001.0 + i for i in range(len(set(times)))]
        assert len(set(times)) == 48

    run(scenario)


def test_no_frame_is_built_while_nobody_reads(stage: Stage) -> None:
    async def scenario() -> None:
        await stage.pass_seconds(5)
        assert stage.frames_built == 0
        async with stage.feed.reader():
            await stage.pass_seconds(3)
        assert stage.frames_built == 4
        await stage.pass_seconds(5)
        assert stage.frames_built == 4

    run(scenario)


def test_a_frame_is_built_once_for_readers_that_come_together(stage: Stage) -> None:
    async def read_one_frame() -> tuple[str, Any]:
        async with stage.feed.reader() as reader:
            next_event(reader)
            return next_event(reader)

    async def scenario() -> None:
        stage.build_seconds = 0.1
        (name, _), other = await asyncio.gather(read_one_frame(), read_one_frame())
        assert name == other[0] == "frame"
        assert stage.frames_built == 1

    run(scenario)


def test_frames_that_take_long_to_build_become_rarer(stage: Stage) -> None:
    async def scenario() -> None:
        stage.build_seconds = 0.2  # a twentieth of the time, so one frame in 4 seconds
        async with stage.feed.reader() as reader:
            next_event(reader)
            times = []
            for _ in range(20):
                while not reader.events.empty():
                    times.append(next_event(reader)[1]["at"])
                await stage.pass_seconds(1)
        gaps = [after - before for before, after in pairwise(times)]
        assert len(gaps) >= 3
        assert min(gaps) >= 4.2 - 1e-9
        stage.build_seconds = 60.0
        async with stage.feed.reader() as reader:
            next_event(reader)
            await stage.pass_seconds(12)
            assert reader.events.qsize() == 2  # at most ten seconds apart, however long one takes

    run(scenario)


def test_rates_are_differences_over_the_latest_frames(stage: Stage) -> None:
    async def scenario() -> None:
        async with stage.feed.reader() as reader:
            next_event(reader)
            assert next_event(reader)[1]["rates"] is None
            stage.state = {"decisions": 30, "feedback": 10}
            await stage.pass_seconds(1)
            assert next_event(reader)[1]["rates"] == {"decisions": 30.0, "feedback": 10.0}
            await stage.pass_seconds(1)
            assert next_event(reader)[1]["rates"] == {"decisions": 15.0, "feedback": 5.0}

    run(scenario)


def test_a_fault_is_sent_instead_of_a_frame_and_the_feed_goes_on(stage: Stage) -> None:
    async def scenario() -> None:
        stage.fault = StorageUnavailable("the database cannot be read: gone")
        async with stage.feed.reader() as reader:
            next_event(reader)
            assert next_event(reader) == (
                "fault",
                {"at": 1000.0, "detail": "the database cannot be read: gone"},
            )
            stage.fault = ZeroDivisionError("internals")
            await stage.pass_seconds(1)
            name, fault = next_event(reader)
            assert name == "fault"
            assert "internals" not in fault["detail"]
            stage.fault = None
            await stage.pass_seconds(1)
            assert next_event(reader)[0] == "frame"

    run(scenario)


def test_readers_are_limited_and_a_place_is_free_when_one_leaves(stage: Stage) -> None:
    async def scenario() -> None:
        async with stage.feed.reader(), stage.feed.reader():
            with pytest.raises(TooManyReaders, match=r"limits\.event_readers"):
                async with stage.feed.reader():
                    pass
        async with stage.feed.reader():
            pass

    run(scenario)


def test_a_reader_overflows_when_its_queue_is_full_and_not_before() -> None:
    reader = EventReader()
    for _ in range(MAX_QUEUED_EVENTS):
        reader.put(b"frame")
    assert not reader.overflow.is_set()
    reader.put(b"one too many")
    assert reader.overflow.is_set()
    assert reader.events.qsize() == MAX_QUEUED_EVENTS


def test_a_stream_whose_reader_does_not_read_ends_without_a_final_chunk(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    chunks: list[Any] = []

    async def send(message: Any) -> None:
        chunks.append(message)
        if len(chunks) > 2:  # the socket's buffers are full
            await asyncio.Event().wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def scenario() -> None:
        stream = asyncio.create_task(EventStream(stage.feed, None)({}, receive, send))
        while not stream.done():
            await stage.pass_seconds(1)
            await asyncio.sleep(0)
        await stream
        assert all(chunk.get("more_body", True) for chunk in chunks)
        assert "did not keep up" in caplog.text

    run(scenario)


@pytest.mark.parametrize("step", [-7200.0, 15.0])
def test_a_clock_that_jumps_changes_no_rate(stage: Stage, step: float) -> None:
    async def scenario() -> None:
        async with stage.feed.reader() as reader:
            for second in range(6):
                stage.wall_offset_seconds = step if second >= 3 else 0.0
                stage.state = {"decisions": 4 * (second + 1), "feedback": 2 * (second + 1)}
                await stage.pass_seconds(1)
            while not reader.events.empty():
                name, frame = next_event(reader)
        assert (name, frame["rates"]) == ("frame", {"decisions": 4.0, "feedback": 2.0})

    run(scenario)
