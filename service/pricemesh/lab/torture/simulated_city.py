"""One city of a simulated mesh: the real application in a process that can be started, drained and killed."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from pricemesh.city.settings import Settings
from pricemesh.http.asgi import Application
from pricemesh.http.connection import Connection
from pricemesh.lab.torture.machine import (
    FILES,
    FaultyDisk,
    back_up,
    copy_files,
    create_files,
    virtual_runtime,
)
from pricemesh.lab.torture.network import Network, PeerTransport
from pricemesh.lab.torture.virtual_loop import Process, VirtualLoop
from pricemesh.serving.app import create_app
from pricemesh.serving.server import configuration

NOON = 1_700_000_000.0
LESSONS_BETWEEN_SNAPSHOTS = 9  # so that short runs go through snapshots
ROWS_BETWEEN_SNAPSHOTS = 25
MAX_DRAIN_SECONDS = 10.0


class SilentRecorder:
    """No request log."""

    def request(self, *_line: Any, **_more: Any) -> None: ...

    def flush(self) -> None: ...


class SimulatedCity:
    def __init__(
        self,
        name: str,
        address: str,
        folder: Path,
        sections: Mapping[str, Any],
        loop: VirtualLoop,
        network: Network,
        rng: Random,
    ) -> None:
        self.name = name
        self.address = address
        self.sections = dict(sections)
        self.clock_offset = 0.0  # seconds by which its wall clock is wrong
        self.clock_set_at = 0.0  # on the virtual clock
        self.started_at = 0.0  # the same
        self.disk = FaultyDisk(Random(rng.random()))
        self.app: Application = None  # type: ignore[assignment]
        self.settings: Settings = None  # type: ignore[assignment]
        self.lineage = 0  # grows when the database is replaced by an older or a new one
        self.start_faults: list[str] = []
        self._folder = folder
        self._loop = loop
        self._network = network
        self._rng = rng
        self._incarnation = 0
        self._apps: list[Application] = []
        self._process: Process | None = None
        self._is_listening = False
        self._stop_requested: Any = None
        network.hosts[address] = self
        create_files(self.files)

    # The process

    @property
    def files(self) -> Path:
        """The folder of the present incarnation."""
        return self._folder / f"{self.name}-{self._incarnation}"

    @property
    def database_path(self) -> Path:
        return self.files / FILES[0]

    @property
    def process(self) -> Process | None:
        return self._process if self._is_listening else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive

    @property
    def is_serving(self) -> bool:
        return self.is_running and self._is_listening and not self.app.pricing.draining

    def clock(self) -> float:
        return NOON + self._loop.time() + self.clock_offset

    @property
    def start_by_its_clock(self) -> float:
        """When this process started, as its present wall clock would have shown it."""
        return self.clock() - (self.true_time - self.started_at)

    def set_clock(self, offset: float) -> None:
        if offset != self.clock_offset:
            self.clock_offset, self.clock_set_at = offset, self._loop.time()

    @property
    def true_time(self) -> float:
        return self._loop.time()

    def start(self) -> None:
        assert not self.is_running
        self._process = self._loop.process(self.name)
        self._is_listening = False
        self._loop.call_soon(self._boot, context=self._process.context)

    def _boot(self) -> None:
        """As `serving.server.run` does, without sockets."""
        url = f"sqlite:///{self.database_path}"
        self.settings = Settings.model_validate(
            {**self.sections, "city": self.name, "database": {"url": url}}
        )
        rng = Random(self._rng.random())
        runtime = virtual_runtime(
            self._loop, self.disk, rng, self.clock, lambda: PeerTransport(self._network, self.address)
        )
        self.started_at = self.true_time
        self.app = create_app(self.settings, runtime, SilentRecorder())
        self._apps.append(self.app)
        live = self.app.pricing.live
        live.lessons_between_snapshots = LESSONS_BETWEEN_SNAPSHOTS
        live.rows_between_snapshots = ROWS_BETWEEN_SNAPSHOTS
        self._state = ServerState()
        self._config: uvicorn.Config = configuration(self.app, lifespan="off")
        self._stop_requested = self._loop.create_future()
        self._is_started = False
        self._loop.create_task(self._live(self._process), name=f"{self.name} lifespan")

    async def _live(self, process: Process | None) -> None:
        assert process is not None
        try:
            await self.app(
                {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, self._tell, self._hear
            )
        except Exception as fault:  # a start that fails is logged by the process and ends it
            self.start_faults.append(f"{self.name}: {type(fault).__name__}: {fault}")
        self._is_listening = False
        process.kill()

    async def _tell(self) -> dict[str, str]:
        if not self._is_started:
            self._is_started = True
            return {"type": "lifespan.startup"}
        await self._stop_requested
        return {"type": "lifespan.shutdown"}

    async def _hear(self, message: Any) -> None:
        if message["type"] == "lifespan.startup.complete":
            self._is_listening = True

    def connection(self) -> Connection:
        return Connection(self._config, self._state, {})

    def kill(self) -> None:
        """`kill -9`: only what is on the disk survives."""
        if not self.is_running:
            return
        assert self._process is not None
        self._process.kill()
        self._is_listening = False
        self._next_files(partial(copy_files, self.files))

    def stop(self) -> None:
        """SIGTERM: drain, answer what was received, commit, save a snapshot, end."""
        if self.is_serving:
            assert self._process is not None
            self.app.pricing.draining = True
            self._loop.call_soon(self._drain, context=self._process.context)

    def _drain(self) -> None:
        self._loop.create_task(self._shut_down(), name=f"{self.name} shutdown")

    async def _shut_down(self) -> None:
        """As uvicorn does once the drain is over."""
        await asyncio.sleep(self.settings.server.drain_seconds)
        self._is_listening = False
        for connection in list(self._state.connections):
            connection.shutdown()
        deadline = self._loop.time() + MAX_DRAIN_SECONDS
        while (self._state.connections or self._state.tasks) and self._loop.time() < deadline:
            await asyncio.sleep(0.1)
        self._stop_requested.set_result(None)

    def dispose(self) -> None:
        """Close what dead incarnations hold open."""
        for app in self._apps:
            app.pricing.database.close()

    # Its database

    def back_up(self, target: Path) -> None:
        back_up(self.files, target)

    def restore(self, backup: Path) -> None:
        """Go on from an older copy; the city is stopped."""
        assert not self.is_running
        self.lineage += 1
        self._next_files(partial(copy_files, backup))

    def set_up_anew(self) -> None:
        """With an empty database: it gets a new key."""
        assert not self.is_running
        self.lineage += 1
        self._next_files(create_files)

    def _next_files(self, fill: Callable[[Path], None]) -> None:
        self._incarnation += 1
        fill(self.files)

    @property
    def sizes(self) -> Counter[str]:
        """Of everything that strangers or peers can grow."""
        gossip = self.app.gossip
        return Counter(
            quarantines=len(gossip.intake.quarantine.marks),
            callers=len(gossip.book.callers),
            peers=len(gossip.book.peers),
            letters=len(gossip.node.letters),
        )
