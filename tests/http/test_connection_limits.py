"""Callers that send slowly or not at all, too many of them, and a server that stops: without sockets, in a
time of their own, by both ways in."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from uvicorn.server import ServerState

from pricemesh.errors import Overloaded
from pricemesh.http.connection import LINGER_SECONDS, Connection
from pricemesh.http.connection_limit import MAX_LINGERING
from pricemesh.runtime import Runtime
from pricemesh.serving.app import create_app
from pricemesh.serving.server import configuration
from tests.http.test_ways_in import MemoryTransport, SilentRecorder
from tests.running import CONTEXT, settings_for

HEAD = b"POST /price HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
MAX_COMMIT_SECONDS = 60.0  # a test that waits longer hangs
PRICE = json.dumps(CONTEXT).encode()


class ManualTime:
    """The event loop, with timers that run when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[tuple[float, asyncio.TimerHandle]] = []
        self._loop = asyncio.get_running_loop()
        self.call_soon = self._loop.call_soon
        self.create_task = self._loop.create_task

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self.now + seconds, action, (), self._loop)
        self._timers.append((self.now + seconds, timer))
        return timer

    async def pass_seconds(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [one for one in self._timers if one[0] <= end and not one[1].cancelled()]:
            first = min(due, key=lambda one: one[0])
            self._timers.remove(first)
            self.now = max(self.now, first[0])
            first[1]._run()
            await settle()
        self.now = end


async def settle() -> None:
    """Let tasks run until they wait for bytes or for a commit."""
    for _ in range(30):
        await asyncio.sleep(0)


class City:
    def __init__(self, folder: Path, *, fast: bool, **limits: Any) -> None:
        url = f"sqlite:///{folder}/city.db"
        settings = settings_for(url, server={"fast_path": fast}, limits=limits)
        self.app = create_app(settings, Runtime(), SilentRecorder())
        self.time = ManualTime()
        self._config = configuration(self.app, lifespan="off")
        self.state = ServerState()

    def connect(self) -> "Caller":
        return Caller(Connection(self._config, self.state, {}, self.time))  # type: ignore[arg-type]

    def metric(self, name: str) -> float:
        lines = self.app.admission.metrics.text().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


class Caller:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transport = MemoryTransport()
        connection.connection_made(self.transport)

    async def send(self, data: bytes) -> None:
        self.connection.data_received(data)
        await settle()

    async def until_answered(self, count: int) -> None:
        """Commits happen in a thread."""
        async with asyncio.timeout(MAX_COMMIT_SECONDS):
            while len(self.answers) < count:
                await asyncio.sleep(0)
        await settle()

    @property
    def answers(self) -> list[int]:
        parts = bytes(self.transport.written).split(b"HTTP/1.1 ")[1:]
        return [int(part[:3]) for part in parts]

    @property
    def is_closed(self) -> bool:
        return self.transport.closed


Story = Callable[[City], Awaitable[None]]
ways = pytest.mark.parametrize("fast", [True, False], ids=["fast path", "ASGI"])


def run(folder: Path, story: Story, *, fast: bool = True, **limits: Any) -> None:
    async def whole() -> None:
        city = City(folder, fast=fast, **limits)
        await city.app.pricing.start()
        try:
            await story(city)
        finally:
            for connection in list(city.state.connections):
                connection.connection_lost(None)
            await settle()
            await city.app.pricing.stop()

    asyncio.run(whole())


@ways
def test_a_connection_that_sends_nothing_is_closed_without_a_word(tmp_path: Path, fast: bool) -> None:
    async def story(city: City) -> None:
        caller = city.connect()
        await city.time.pass_seconds(9.9)
        assert not caller.is_closed
        await city.time.pass_seconds(0.2)
        assert caller.is_closed
        assert caller.answers == []
        assert city.metric('pricemesh_connections_late_total{stage="first request"}') == 1

    run(tmp_path, story, fast=fast)


@ways
@pytest.mark.parametrize("after_a_price", [False, True])
def test_headers_that_come_byte_by_byte_are_answered_with_a_408(
    tmp_path: Path, fast: bool, after_a_price: bool
) -> None:
    async def story(city: City) -> None:
        caller = city.connect()
        if after_a_price:
            await caller.send(HEAD % len(PRICE) + PRICE)
            await caller.until_answered(1)
        for byte in HEAD[:10]:
            await caller.send(bytes([byte]))
            assert 408 not in caller.answers
            await city.time.pass_seconds(1.0)
        assert caller.answers[-1] == 408
        assert b"limits.header_seconds" in caller.transport.written
        await city.time.pass_seconds(LINGER_SECONDS)
        assert caller.is_closed

    run(tmp_path, story, fast=fast)


@ways
@pytest.mark.parametrize("path", [b"/price", b"/admin/freeze"])
def test_a_body_that_comes_byte_by_byte_is_answered_with_a_408(
    tmp_path: Path, fast: bool, path: bytes
) -> None:
    async def story(city: City) -> None:
        caller = city.connect()
        await caller.send((HEAD % 100).replace(b"/price", path))
        for _ in range(10):
            assert caller.answers == []
            await caller.send(b"{")
            await city.time.pass_seconds(1.01)
        assert caller.answers == [408]
        assert b"limits.body_seconds" in caller.transport.written
        await city.time.pass_seconds(LINGER_SECONDS)
        assert caller.is_closed

    run(tmp_path, story, fast=fast)


@ways
def test_a_long_body_on_a_slow_line_takes_the_time_it_needs(tmp_path: Path, fast: bool) -> None:
    async def story(city: City) -> None:
        caller = city.connect()
        body = PRICE + b" " * 200_000
        await caller.send(HEAD % len(body))
        for start in range(0, len(body), 5000):  # forty seconds
            await caller.send(body[start : start + 5000])
            await city.time.pass_seconds(1.0)
        await caller.until_answered(1)
        assert caller.answers == [200]
        assert not caller.is_closed

    run(tmp_path, story, fast=fast)


@ways
def test_a_body_that_stops_before_its_end_is_answered_with_a_408(tmp_path: Path, fast: bool) -> None:
    async def story(city: City) -> None:
        caller = city.connect()
        await caller.send(HEAD % 1_000_001)
        await caller.send(b"{" * 1_000_000)
        await city.time.pass_seconds(19.0)  # it came fast, so it has its time again
        assert caller.answers == []
        await city.time.pass_seconds(2.0)
        assert caller.answers == [408]

    run(tmp_path, story, fast=fast)


@ways
def test_blank_lines_do_not_hold_a_connection(tmp_path: Path, fast: bool) -> None:
    async def story(city: City) -> None:
        caller = city.connect()
        for _ in range(10):
            await caller.send(b"\r\n")
            await city.time.pass_seconds(1.01)
        assert caller.is_closed

    run(tmp_path, story, fast=fast)


@ways
def test_a_refused_body_that_never_ends_is_closed_without_a_second_answer(tmp_path: Path, fast: bool) -> None:
    async def story(city: City) -> None:
        city.app.pricing.gate.refusal = Overloaded("too much waits", 1.0)
        caller = city.connect()
        await caller.send(HEAD % 100)
        assert (caller.answers, caller.is_closed) == ([503], False)
        for _ in range(10):
            await caller.send(b"{")
            await city.time.pass_seconds(1.01)
        assert (caller.answers, caller.is_closed) == ([503], True)

    run(tmp_path, story, fast=fast)


@ways
@pytest.mark.parametrize("body", [PRICE, b"{"], ids=["overloaded", "unreadable"])
def test_the_event_loop_goes_on_before_a_refused_caller_can_call_again(
    tmp_path: Path, fast: bool, body: bytes
) -> None:
    """It reads all callers that are ready before it looks at timers and commits."""

    async def story(city: City) -> None:
        if body == PRICE:
            city.app.pricing.gate.refusal = Overloaded("too much waits", 1.0)
        caller = city.connect()
        caller.connection.data_received(HEAD % len(body) + body)
        assert caller.answers == []
        await settle()
        assert caller.answers == [503 if body == PRICE else 422]

    run(tmp_path, story, fast=fast)


@ways
def test_a_request_that_is_complete_waits_for_its_answer_however_long(tmp_path: Path, fast: bool) -> None:
    async def story(city: City) -> None:
        caller = city.connect()
        caller.connection.data_received(HEAD % len(PRICE) + PRICE)  # not committed yet
        await asyncio.sleep(0)
        city.time.now += 3600.0
        await caller.until_answered(1)
        assert (caller.answers, caller.is_closed) == ([200], False)

    run(tmp_path, story, fast=fast)


def test_connections_beyond_the_limit_are_refused_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(city: City) -> None:
        with caplog.at_level(logging.WARNING, logger="pricemesh"):
            first, second = city.connect(), city.connect()
            crowd = [city.connect() for _ in range(MAX_LINGERING + 3)]
        assert {tuple(caller.answers) for caller in crowd} == {(503,)}
        assert b"problem:too-many-connections" in crowd[0].transport.written
        assert sum(caller.is_closed for caller in crowd) == 3  # the others get time to read
        await city.time.pass_seconds(LINGER_SECONDS)
        assert all(caller.is_closed for caller in crowd)
        assert city.metric("pricemesh_connections_refused_total") == len(crowd)
        assert city.metric("pricemesh_connections ") == 2
        assert sum("connections refused" in record.message for record in caplog.records) == 1
        for caller in (*crowd, second):
            caller.connection.connection_lost(None)
        await city.connect().send(HEAD % len(PRICE) + PRICE)
        assert not first.is_closed
        assert city.metric("pricemesh_connections ") == 2

    run(tmp_path, story, connections=2)


@ways
def test_a_server_that_stops_waits_for_no_body_and_for_no_idle_caller(tmp_path: Path, fast: bool) -> None:
    async def story(city: City) -> None:
        idle, half = city.connect(), city.connect()
        await half.send(HEAD % 100 + b"{")
        for caller in (idle, half):
            caller.connection.shutdown()
        await settle()
        assert (idle.answers, half.answers) == ([], [503])
        assert b"problem:shutting-down" in half.transport.written
        assert idle.is_closed
        assert half.is_closed

    run(tmp_path, story, fast=fast)


@ways
def test_a_server_that_stops_answers_what_is_complete_and_drops_the_rest(tmp_path: Path, fast: bool) -> None:
    async def story(city: City) -> None:
        caller = city.connect()
        complete = HEAD % len(PRICE) + PRICE
        caller.connection.data_received(complete + complete + HEAD % 100 + b"{")
        caller.connection.shutdown()
        await caller.until_answered(2)
        assert caller.answers == [200, 200]
        assert caller.is_closed

    run(tmp_path, story, fast=fast)
