"""`pricemesh prune` and `pricemesh reshape` on the database of a simulated city that is stopped.

The commands' own code runs, and may be killed before any of its statements: then only what is on the disk, or
committed at the server, counts.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from pricemesh.city.pruning import Pruning
from pricemesh.city.reshaping import carry_out, make_plan
from pricemesh.city.settings import Settings
from pricemesh.errors import DatabaseInUse, InvalidParameter, PricemeshError, StorageUnavailable
from pricemesh.lab.torture.ledger import Violated
from pricemesh.lab.torture.machine import virtual_runtime
from pricemesh.lab.torture.reshapes import Reshape
from pricemesh.lab.torture.server_driver import StoppedReplicaDatabase
from pricemesh.lab.torture.simulated_city import SimulatedCity
from pricemesh.lab.torture.simulated_mesh import SimulatedMesh
from pricemesh.lab.torture.threads import Thread, sleep
from pricemesh.runtime import Runtime
from pricemesh.store.stopped_database import StoppedDatabase

MAX_COMMAND_SECONDS = 120.0
MAX_STATEMENTS = 45  # after which a command is killed, or its disk fails
DONE, KILLED = "done", "killed"


class Killed(BaseException):
    """The command has been killed: nothing of it may go on."""


class Interruption(NamedTuple):
    """Of a command; statement 0 never comes."""

    statement: int = 0
    is_kill: bool = True  # otherwise the disk fails

    @classmethod
    def draw(cls, rng: Random) -> "Interruption":
        return cls(rng.randint(1, MAX_STATEMENTS) if rng.random() < 0.5 else 0, rng.random() < 0.7)


Job = Callable[[StoppedDatabase, Runtime], None]


class StoppedCity:
    def __init__(self, mesh: SimulatedMesh, city: SimulatedCity, interruption: Interruption) -> None:
        self._mesh = mesh
        self._city = city
        self._interruption = interruption
        rng = Random(f"command {mesh.loop.time()}")
        self._runtime = virtual_runtime(mesh.loop, city.processes[0].disk, rng, city.clock, lambda: None)

    def prune(self, older_than_seconds: float, *, vacuum: bool) -> str:
        """How it ended: done, killed, or why it was refused."""

        def job(database: StoppedDatabase, runtime: Runtime) -> None:
            pruning = Pruning(self._city.settings, runtime, older_than_seconds, database)
            database.claim()
            if pruning.plan().rows:
                pruning.carry_out()
            if vacuum:
                database.vacuum()

        return self._run(job)

    def reshape(self, change: Reshape) -> str:
        settings = Settings.model_validate({**self._city.settings.model_dump(), **change.sections})

        def job(database: StoppedDatabase, runtime: Runtime) -> None:
            with database.alone() as connection:
                plan = make_plan(connection, settings, change.renamed, change.filled, lambda *_: None)
                if plan.changes:
                    carry_out(connection, settings, plan, runtime.clock())

        return self._run(job)

    def _run(self, job: Job) -> str:
        try:
            self._run_at_server(job) if self._city.has_replicas else self._run_on_file(job)
        except Killed:
            return KILLED
        except (StorageUnavailable, DatabaseInUse) as fault:
            if isinstance(fault, DatabaseInUse) and not self._city.has_replicas:
                raise Violated("a command does what it is told", f"{self._city.name}: {fault}") from None
            return str(fault)  # a server notices late that a client has gone
        except InvalidParameter as fault:
            if "is pinned" not in str(fault):
                raise Violated("a command does what it is told", f"{self._city.name}: {fault}") from None
            return str(fault)
        except PricemeshError as fault:
            raise Violated("a command does what it is told", f"{self._city.name}: {fault!r}") from None
        return DONE

    # A file

    def _run_on_file(self, job: Job) -> None:
        city = self._city
        database = StoppedDatabase(city.settings.database.url, city.name, self._runtime)
        try:
            with database.alone() as connection:
                self._watch(connection.engine)
            job(database, self._runtime)
        finally:
            database.close()

    def _watch(self, engine: Any) -> None:
        left = [self._interruption.statement]

        def count(*_arguments: Any) -> None:
            left[0] -= 1
            if left[0] == 0:
                self._interrupt()

        for name in ("before_cursor_execute", "commit"):
            event.listen(engine, name, count)

    def _interrupt(self) -> None:
        if self._interruption.is_kill:
            self._city.leave_files()
            raise Killed
        raise OperationalError("COMMIT", None, sqlite3.OperationalError("database or disk is full"))

    # A server

    def _run_at_server(self, job: Job) -> None:
        city, mesh = self._city, self._mesh
        process = mesh.loop.process(f"{city.name}-command")
        runtime = replace(self._runtime, sleep=partial(sleep, mesh.loop))
        wait_seconds = city.settings.database.lock_wait_seconds
        database = StoppedReplicaDatabase(city.server, process, city.name, runtime, wait_seconds)
        ends: list[Exception | None] = []

        def work() -> None:
            try:
                job(database, runtime)
            finally:
                database.close()

        def kill() -> None:
            process.kill()
            city.server.forget(process)

        def begin() -> None:
            Thread(work, lambda _result, fault: ends.append(fault)).start()

        if self._interruption.statement:
            process.at_statement = partial(_count_down, [self._interruption.statement], kill)
        mesh.loop.call_soon(begin, context=process.context)
        mesh.wait(MAX_COMMAND_SECONDS, lambda: bool(ends) or not process.is_alive)
        kill()
        if not ends:
            raise Killed
        if ends[0] is not None:
            raise ends[0]


def _count_down(left: list[int], signal: Callable[[], None]) -> None:
    left[0] -= 1
    if left[0] == 0:
        signal()
