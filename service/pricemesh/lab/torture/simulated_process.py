"""A process of a simulated city: the real application, which can be started, drained, stopped, killed."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

import uvicorn
from uvicorn.server import ServerState

from pricemesh.city.replicas import ConnectDatabase
from pricemesh.city.settings import Settings
from pricemesh.http.asgi import Application
from pricemesh.http.connection import Connection
from pricemesh.lab.torture.machine import FaultyDisk, virtual_runtime
from pricemesh.lab.torture.network import Network, PeerTransport
from pricemesh.lab.torture.virtual_loop import Process, VirtualLoop
from pricemesh.serving.app import create_app
from pricemesh.serving.server import configuration

LESSONS_BETWEEN_SNAPSHOTS = 9  # so that short runs go through snapshots
ROWS_BETWEEN_SNAPSHOTS = 25
SECONDS_BETWEEN_LOOKS = 0.4  # at what other replicas wrote: looks are most of what a quiet replica does
MAX_DRAIN_SECONDS = 10.0


class SilentRecorder:
    """No request log."""

    def request(self, *_line: Any, **_more: Any) -> None: ...

    def flush(self) -> None: ...


class Owner(Protocol):
    """The city of a process."""

    name: str
    address: str

    def clock(self) -> float: ...

    @property
    def settings(self) -> Settings: ...

    def connect(self, process: Process) -> ConnectDatabase: ...

    def lose(self, process: Process) -> None:
        """A process has ended."""
        ...

    def leave_files(self) -> None:
        """A process was killed."""
        ...


class SimulatedProcess:
    def __init__(
        self, name: str, city: Owner, loop: VirtualLoop, network: Network, disk: FaultyDisk, rng: Random
    ) -> None:
        self.name = name
        self.started_at = 0.0  # on the virtual clock
        self.disturbed_at = 0.0  # when it was last started, killed, stopped or let go on; the same
        self.disk = disk
        self.app: Application = None  # type: ignore[assignment]
        self.start_faults: list[str] = []
        self._city = city
        self._loop = loop
        self._network = network
        self._rng = rng
        self.apps: list[Application] = []
        self._process: Process | None = None
        self._is_listening = False
        self._stop_requested: Any = None

    @property
    def process(self) -> Process | None:
        return self._process if self._is_listening else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive

    @property
    def is_stopped(self) -> bool:
        return self._process is not None and self._process.is_stopped

    @property
    def is_serving(self) -> bool:
        return (
            self.is_running and self._is_listening and not self.is_stopped and not self.app.pricing.draining
        )

    @property
    def is_publisher(self) -> bool:
        return self.is_serving and self.app.pricing.role.is_publisher

    @property
    def start_by_its_clock(self) -> float:
        """When this process started, as its present wall clock would have shown it."""
        return self._city.clock() - (self._loop.time() - self.started_at)

    def start(self) -> None:
        assert not self.is_running
        self._process = self._loop.process(self.name)
        self._is_listening = False
        self._loop.call_soon(self._boot, context=self._process.context)

    def _boot(self) -> None:
        """As `serving.server.run` does, without sockets."""
        assert self._process is not None
        rng = Random(self._rng.random())
        runtime = virtual_runtime(
            self._loop,
            self.disk,
            rng,
            self._city.clock,
            lambda: PeerTransport(self._network, self._city.address),
        )
        self.started_at = self._loop.time()
        settings, connect = self._city.settings, self._city.connect(self._process)
        self.app = create_app(settings, runtime, SilentRecorder(), connect)
        self.apps.append(self.app)
        live = self.app.pricing.live
        live.lessons_between_snapshots = LESSONS_BETWEEN_SNAPSHOTS
        live.rows_between_snapshots = ROWS_BETWEEN_SNAPSHOTS
        self._state = ServerState()
        self._config: uvicorn.Config = configuration(self.app, lifespan="off")
        self._stop_requested = self._loop.create_future()
        self._is_started = False
        self._loop.create_task(self._live(self._process), name=f"{self.name} lifespan")

    async def _live(self, process: Process) -> None:
        try:
            await self.app(
                {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, self._tell, self._hear
            )
        except Exception as fault:  # a start that fails is logged by the process and ends it
            self.start_faults.append(f"{self.name}: {type(fault).__name__}: {fault}")
        self._is_listening = False
        self._end(process)

    def _end(self, process: Process) -> None:
        process.kill()
        self._city.lose(process)
        self._disturb()

    def _disturb(self) -> None:
        self.disturbed_at = self._loop.time()

    async def _tell(self) -> dict[str, str]:
        if not self._is_started:
            self._is_started = True
            return {"type": "lifespan.startup"}
        await self._stop_requested
        return {"type": "lifespan.shutdown"}

    async def _hear(self, message: Any) -> None:
        if message["type"] == "lifespan.startup.complete":
            self._is_listening = True
            self._disturb()
            self.app.pricing.loop.following.interval_seconds = SECONDS_BETWEEN_LOOKS

    def connection(self) -> Connection:
        return Connection(self._config, self._state, {})

    # Signals

    def kill(self) -> None:
        """`kill -9`: only what is on the disk survives."""
        if not self.is_running:
            return
        assert self._process is not None
        self._is_listening = False
        self._end(self._process)
        self._city.leave_files()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.is_running:
            assert self._process is not None
            self._process.stop()
            self._disturb()

    def resume(self) -> None:
        """SIGCONT."""
        if self.is_stopped:
            assert self._process is not None
            self._loop.resume(self._process)
            self._disturb()

    def mend(self) -> None:
        """Let it go on, and send it no signal that was to come."""
        if self._process is not None:
            self._process.at_statement = None
        self.resume()

    def at_statement(self, number: int, signal: Callable[[], None]) -> None:
        """Send a signal before its so-manieth statement to the database from now on."""
        if not self.is_running:
            return
        assert self._process is not None
        self._process.at_statement = partial(self._count_down, self._process, [number], signal)

    def _count_down(self, process: Process, left: list[int], signal: Callable[[], None]) -> None:
        left[0] -= 1
        if left[0] <= 0:
            process.at_statement = None
            signal()

    def stop(self) -> None:
        """SIGTERM: drain, answer what was received, commit, save a snapshot, end."""
        if self.is_serving:
            assert self._process is not None
            self.app.pricing.draining = True
            self._disturb()
            self._loop.call_soon(self._drain, context=self._process.context)

    def _drain(self) -> None:
        self._loop.create_task(self._shut_down(), name=f"{self.name} shutdown")

    async def _shut_down(self) -> None:
        """As uvicorn does once the drain is over."""
        await asyncio.sleep(self.app.pricing.settings.server.drain_seconds)
        self._is_listening = False
        for connection in list(self._state.connections):
            connection.shutdown()
        deadline = self._loop.time() + MAX_DRAIN_SECONDS
        while (self._state.connections or self._state.tasks) and self._loop.time() < deadline:
            await asyncio.sleep(0.1)
        self._stop_requested.set_result(None)

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
