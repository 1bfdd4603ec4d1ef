"""A city of a simulated mesh: its database, and the one process or the replicas that serve it.

A city of one process has a SQLite file on a disk that fails. Replicas share a simulated server; callers and
peers reach any of them, as behind a load balancer.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from pricemesh.city.replicas import ConnectDatabase, connect_database
from pricemesh.city.settings import Settings
from pricemesh.lab.torture.machine import FILES, FaultyDisk, back_up, copy_files, create_files
from pricemesh.lab.torture.network import Network
from pricemesh.lab.torture.past_terms import PastTerms
from pricemesh.lab.torture.reshapes import TERMS
from pricemesh.lab.torture.server import SimulatedServer
from pricemesh.lab.torture.server_driver import ReplicaDatabase
from pricemesh.lab.torture.simulated_process import SimulatedProcess
from pricemesh.lab.torture.virtual_loop import Process, VirtualLoop
from pricemesh.runtime import Runtime
from pricemesh.store.backend import TimeLimits
from pricemesh.store.database import Database

NOON = 1_700_000_000.0
SERVER_URL = "postgresql+psycopg://simulated/city"  # only its kind counts


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
        replicas: int = 1,
    ) -> None:
        self.name = name
        self.address = address
        self.sections = dict(sections)
        self.terms = [PastTerms.of(sections)]  # that the city has had, by its operator's account
        self.clock_offset = 0.0  # seconds by which its wall clock is wrong
        self.clock_set_at = 0.0  # on the virtual clock
        self.commands = 0  # that changed its database while it was stopped
        self.lineage = 0  # grows when the database is replaced by an older or a new one
        self.disturbed_at = 0.0  # when something was last done to its database; on the virtual clock
        self._folder = folder
        self._loop = loop
        self._incarnation = 0
        disk = FaultyDisk(Random(rng.random()))
        names = [name] if replicas == 1 else [f"{name}-{i}" for i in range(1, replicas + 1)]
        self.processes = [SimulatedProcess(each, self, loop, network, disk, rng) for each in names]
        self.has_replicas = replicas > 1
        self._rng = rng
        self._settings: Settings | None = None
        network.hosts[address] = self
        create_files(self.files)
        self._server: SimulatedServer | None = None
        self._serve_files()

    # Its processes

    @property
    def serving(self) -> list[SimulatedProcess]:
        return [process for process in self.processes if process.is_serving]

    @property
    def is_running(self) -> bool:
        return any(process.is_running for process in self.processes)

    @property
    def is_serving(self) -> bool:
        return bool(self.serving)

    @property
    def publisher(self) -> SimulatedProcess | None:
        """The one that believes to be it."""
        return next((process for process in self.serving if process.is_publisher), None)

    def start(self) -> None:
        for process in self.processes:
            if not process.is_running:
                process.start()

    def kill(self) -> None:
        for process in self.processes:
            process.kill()

    def stop(self) -> None:
        for process in self.processes:
            process.stop()

    def accept(self) -> SimulatedProcess | None:
        """The process that takes the next connection; of replicas, any."""
        listening = [process for process in self.processes if process.process is not None]
        if len(listening) > 1:
            return self._rng.choice(listening)
        return listening[0] if listening else None

    # What its processes have in common

    def clock(self) -> float:
        return NOON + self._loop.time() + self.clock_offset

    def set_clock(self, offset: float) -> None:
        if offset != self.clock_offset:
            self.clock_offset, self.clock_set_at = offset, self._loop.time()

    @property
    def true_time(self) -> float:
        return self._loop.time()

    def change(self, **sections: Any) -> None:
        """Of the configuration; it counts from the next start on."""
        self.sections |= sections
        self._settings = None

    @property
    def settings(self) -> Settings:
        if self._settings is None:
            url = f"sqlite:///{self.database_path}"
            database = {"url": SERVER_URL, "replicas": True} if self.has_replicas else {"url": url}
            self._settings = Settings.model_validate(
                {**self.sections, "city": self.name, "database": database}
            )
        return self._settings

    # Its database

    @property
    def files(self) -> Path:
        """The folder of the present incarnation."""
        return self._folder / f"{self.name}-{self._incarnation}"

    @property
    def database_path(self) -> Path:
        return self.files / FILES[0]

    @property
    def server(self) -> SimulatedServer:
        assert self._server is not None, "a city of one process"
        return self._server

    @property
    def disk(self) -> FaultyDisk | SimulatedServer:
        """What fails when the database does."""
        return self._server or self.processes[0].disk

    def connect(self, process: Process) -> ConnectDatabase:
        if not self.has_replicas:
            return connect_database
        server = self.server

        def connect(settings: Settings, runtime: Runtime) -> Database:
            storage = settings.database
            limits = TimeLimits(storage.timeout_seconds, storage.read_timeout_seconds)
            return ReplicaDatabase(server, process, settings.city, runtime, limits)

        return connect

    def lose(self, process: Process) -> None:
        if self._server is not None:
            self._server.forget(process)

    def leave_files(self) -> None:
        """As a killed process leaves them: copied for its successor, as the dead one still has them open."""
        if not self.has_replicas:
            self._next_files(partial(copy_files, self.files))

    def mend(self) -> None:
        """End all that is wrong with its database and its processes."""
        self.disk.mend()
        if self._server is not None:
            self._server.cuts.clear()
            self.disturb()
            for process in self.processes:
                process.mend()

    def disturb(self) -> None:
        """Something is done to its database."""
        self.disturbed_at = self._loop.time()

    def is_calm(self, seconds: float) -> bool:
        """Whether nothing has happened to its replicas and their server for so long."""
        server = self.server
        times = [server.disturbed_at, self.disturbed_at, *(each.disturbed_at for each in self.processes)]
        return server.is_well and self._loop.time() - max(times) >= seconds

    @property
    def connected(self) -> list[SimulatedProcess]:
        """The processes that serve, and reach the database."""
        cuts = self._server.cuts if self._server is not None else {}
        return [process for process in self.serving if process.name not in cuts]

    def use_terms(self, sections: Mapping[str, Any], terms: Sequence[PastTerms]) -> None:
        """The database is made for these sections of the configuration now."""
        self.change(**{name: sections[name] for name in TERMS})
        self.terms = list(terms)

    def back_up(self, target: Path) -> None:
        back_up(self.files, target)

    def restore(self, backup: Path) -> None:
        """Go on from an older copy; the city is stopped."""
        self._replace(partial(copy_files, backup))

    def set_up_anew(self) -> None:
        """With an empty database: it gets a new key."""
        self.terms = [PastTerms.of(self.sections)]
        self._replace(create_files)

    def _replace(self, fill: Callable[[Path], None]) -> None:
        assert not self.is_running
        self.lineage += 1
        self._next_files(fill)

    def _next_files(self, fill: Callable[[Path], None]) -> None:
        self._incarnation += 1
        self._settings = None
        fill(self.files)
        self._serve_files()

    def _serve_files(self) -> None:
        if self.has_replicas:
            if self._server is not None:
                self._server.close()
            self._server = SimulatedServer(self._loop, Random(self._rng.random()), self.database_path)

    def dispose(self) -> None:
        """Close what dead incarnations have open."""
        if self._server is not None:
            self._server.close()
            return
        for process in self.processes:
            for app in process.apps:
                app.pricing.database.close()
