"""The fast path and plain ASGI frame the same exchange: any bytes get the same answers on both."""

import asyncio
import gc
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from pricemesh.city.settings import Settings
from pricemesh.http.connection import Connection
from pricemesh.http.exchange import Exchange
from pricemesh.http.keys import new_key, write_keys
from pricemesh.runtime import Runtime
from pricemesh.serving.app import create_app
from pricemesh.serving.server import configuration
from tests.http.streams import StreamMaker
from tests.running import CONFIG

_REQUEST_ID = re.compile(rb"(?<=x-request-id: )[^\r]*|(?<=\"request_id\":\")[^\"]*")
NOW = 1_700_000_000.0
MAX_PAUSE_SECONDS = 60.0  # a connection that reads nothing for longer hangs
ITERATIONS_OF_A_TASK = 25  # of the event loop, more than any task here takes between two waits


class SilentRecorder:
    """Counts what would be logged."""

    def __init__(self) -> None:
        self.lines: Counter[tuple[str, str, int, str, str]] = Counter()

    def request(
        self, method: str, path: str, status: int, seconds: float, request_id: str, key: str, detail: str = ""
    ) -> None:
        assert seconds >= 0
        assert request_id
        self.lines[method, path, status, key, detail] += 1

    def flush(self) -> None: ...


class MemoryTransport(asyncio.Transport):
    """What a connection writes, and whether it has closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = self.ended = self.paused = False

    def write(self, data: Any) -> None:
        assert not self.closed, "written after the close"
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default


class Way:
    """One city, reached by one way in, without sockets."""

    def __init__(self, folder: Path, keys_file: Path | None, *, fast: bool) -> None:
        folder.mkdir()
        self.recorder = SilentRecorder()
        settings = Settings.model_validate(
            {
                **CONFIG,
                "database": {"url": f"sqlite:///{folder}/city.db"},
                "server": {"fast_path": fast},
                "limits": {"body_bytes": 6000},
                "guardrails": {"max_step": 1.0},
                "security": {"api_keys_file": keys_file},
            }
        )
        rng = Random(7)
        runtime = Runtime(clock=lambda: NOW, rng=rng, random_bytes=rng.randbytes)
        self.app = create_app(settings, runtime, self.recorder)
        self.state = ServerState()
        self._config: uvicorn.Config = configuration(self.app, lifespan="off")

    async def send(self, chunks: list[bytes], *, leave: bool) -> tuple[bytes, bool]:
        """The answers to a stream, and whether the city closed the connection."""
        connection = Connection(self._config, self.state, {})
        transport = MemoryTransport()
        connection.connection_made(transport)
        for chunk in chunks:
            async with asyncio.timeout(MAX_PAUSE_SECONDS):
                while transport.paused and not transport.closed:
                    await asyncio.sleep(0)
            if transport.closed:
                break
            connection.data_received(chunk)
            await asyncio.sleep(0)
        if not leave:
            await self._quiesce()
        closed = transport.closed or transport.ended
        connection.connection_lost(None)
        while self.state.tasks:
            await asyncio.sleep(0)
        await self._quiesce()
        return _REQUEST_ID.sub(b"-", bytes(transport.written)), closed

    async def _quiesce(self) -> None:
        """Until the city has answered all it can: no commit is due, and tasks wait only for more bytes."""
        for _ in range(ITERATIONS_OF_A_TASK):
            while self.app.pricing.waiting_rows:
                await asyncio.sleep(0)
            await asyncio.sleep(0)

    def counts(self) -> Any:
        """Requests by route and status, and the lines of the request log."""
        lines = self.app.admission.metrics.text().decode().splitlines()
        return sorted(
            line for line in lines if line.startswith("pricemesh_requests_total")
        ), self.recorder.lines


def open_objects() -> Counter[str]:
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, Exchange | Connection))


async def compare(folder: Path, seeds: range, *, with_keys: bool) -> None:
    keys_file: Path | None = None
    presented: tuple[str, ...] = ()
    if with_keys:
        rng = Random(seeds.start)
        strong, strong_key = new_key("price,feedback", random_bytes=rng.randbytes)
        weak, weak_key = new_key("read", random_bytes=rng.randbytes)
        presented = (strong, strong, weak, "pm_x_y")
        keys_file = folder / "keys.toml"
        write_keys(keys_file, {key.id: key for key in (strong_key, weak_key)})
    ways = [Way(folder / name, keys_file, fast=name == "fast") for name in ("fast", "asgi")]
    for way in ways:
        await way.app.pricing.start()
    gc.collect()
    gc.freeze()  # so that `open_objects` looks only at what the streams leave behind
    gc.disable()
    try:
        for seed in seeds:
            # A caller who leaves at once sends one request: of several, the slower way would get to fewer.
            leave = seed % 7 == 0
            chunks = StreamMaker(seed, presented).chunks(requests=1 if leave else None)
            fast, asgi = [await way.send(chunks, leave=leave) for way in ways]
            if not leave:
                assert fast == asgi, f"seed {seed}: {chunks}"
            assert ways[0].counts() == ways[1].counts(), f"seed {seed}: {chunks}"
            assert open_objects() == Counter(), f"seed {seed}: {chunks}"
    finally:
        gc.enable()
        gc.unfreeze()
        for way in ways:
            await way.app.pricing.stop()


@pytest.mark.parametrize("with_keys", [False, True])
def test_any_bytes_get_the_same_answers_counts_and_leave_no_objects(tmp_path: Path, with_keys: bool) -> None:
    asyncio.run(compare(tmp_path, range(250), with_keys=with_keys))


@pytest.mark.slow
@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize("first", range(1000, 21_000, 5000))
def test_twenty_thousand_streams(tmp_path: Path, first: int, with_keys: bool) -> None:
    start = first + (100_000 if with_keys else 0)
    asyncio.run(compare(tmp_path, range(start, start + 2500), with_keys=with_keys))
