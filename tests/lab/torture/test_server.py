"""Replicas on the simulated server: it shows each what Postgres shows, and they get over its faults."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pricemesh.errors import InDoubt, StorageUnavailable
from pricemesh.lab.torture.machine import FILES, FaultyDisk, create_files, virtual_runtime
from pricemesh.lab.torture.server import SimulatedServer
from pricemesh.lab.torture.server_driver import ReplicaDatabase
from pricemesh.lab.torture.server_locks import ServerError
from pricemesh.lab.torture.server_session import Session, StatementResult
from pricemesh.lab.torture.threads import Thread
from pricemesh.lab.torture.virtual_loop import VirtualLoop
from pricemesh.store.commands import Command, Position, Retract, SaveFeedback, Selection, SetControl
from pricemesh.store.commit_result import CommitResult
from pricemesh.store.database import TimeLimits
from tests.running import settings_for
from tests.store.rows import save


class Replica:
    """A database in a process of its own, whose calls are finished one after another."""

    def __init__(self, name: str, loop: VirtualLoop, server: SimulatedServer) -> None:
        self._loop = loop
        self.process = loop.process(name)
        rng = Random(name)
        runtime = virtual_runtime(loop, FaultyDisk(rng), rng, loop.time, lambda: None)
        self.database = ReplicaDatabase(server, self.process, "lisbon", runtime, TimeLimits())
        self.run(self._open)

    def _open(self) -> None:
        self.database.open(settings_for("sqlite:///lisbon.db").schema_description)
        assert list(self.database.lessons(0)) == []

    def start(self, job: Callable[[], Any]) -> list[tuple[Any, Exception | None]]:
        """Begin a job; the list gets its result or its fault."""
        ends: list[tuple[Any, Exception | None]] = []

        def begin() -> None:
            Thread(job, lambda result, fault: ends.append((result, fault))).start()

        self._loop.call_soon(begin, context=self.process.context)
        return ends

    def run(self, job: Callable[[], Any]) -> Any:
        ends = self.start(job)
        assert self._loop.run_until(self._loop.time() + 60.0, lambda: bool(ends))
        ((result, fault),) = ends
        if fault is not None:
            raise fault
        return result

    def write(self, *commands: Command) -> CommitResult:
        outcome: CommitResult = self.run(lambda: self.database.commit(commands))
        return outcome

    def follow(self) -> CommitResult | None:
        outcome: CommitResult | None = self.run(self.database.follow)
        return outcome


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    virtual = VirtualLoop()
    yield virtual
    virtual.close()


@pytest.fixture
def server(loop: VirtualLoop, tmp_path: Path) -> Iterator[SimulatedServer]:
    create_files(tmp_path / "lisbon")
    simulated = SimulatedServer(loop, Random(1), tmp_path / "lisbon" / FILES[0])
    yield simulated
    simulated.close()


@pytest.fixture
def replicas(loop: VirtualLoop, server: SimulatedServer) -> list[Replica]:
    return [Replica(f"lisbon-{number}", loop, server) for number in (1, 2)]


def feedback(id_: str, reward: float = 1.0) -> SaveFeedback:
    return SaveFeedback([(id_, reward)], 2.0, False, 0.0)


def test_replicas_that_write_at_the_same_time_get_dense_versions(
    loop: VirtualLoop, replicas: list[Replica]
) -> None:
    first, second = replicas
    first.write(*save(*(f"d{i}" for i in range(10))))
    second.follow()
    jobs = [
        first.start(lambda: first.database.commit([feedback("d0"), feedback("d1")])),
        second.start(lambda: second.database.commit([feedback("d2"), feedback("d3")])),
    ]
    assert loop.run_until(loop.time() + 10.0, lambda: all(jobs))
    outcomes = [result for ((result, fault),) in jobs if fault is None]
    versions = sorted(item.version for outcome in outcomes for result in outcome.results for item in result)
    assert versions == [1, 2, 3, 4]


def test_feedback_that_comes_twice_in_one_commit_has_one_version(replicas: list[Replica]) -> None:
    first, second = replicas
    first.write(*save("a", "b"))
    second.follow()
    first.write(feedback("a"))
    outcome = second.write(feedback("b"), feedback("b"), feedback("b", reward=0.5), feedback("a"))
    assert [[item.version for item in result] for result in outcome.results] == [[2], [2], [2], [1]]


def test_what_is_recovered_before_a_group_that_fails_counts_with_the_next_commit(
    replicas: list[Replica], server: SimulatedServer
) -> None:
    first, _ = replicas
    server.answers_to_lose = 1
    with pytest.raises(InDoubt):
        first.write(*save("a"))
    server.is_full = True
    failed = first.write(*save("b"), SetControl("freeze", "{}", 1.0))
    assert all(isinstance(result, StorageUnavailable) for result in failed.results)
    assert (failed.begun, failed.position, failed.is_whole) == ([], Position(), False)
    server.is_full = False
    outcome = first.write(SetControl("freeze", "{}", 1.0))
    assert (len(outcome.begun), outcome.position, outcome.is_whole) == (1, Position(1, 0, 0), True)


def test_feedback_is_in_doubt_when_the_look_after_its_commit_fails(
    replicas: list[Replica], server: SimulatedServer
) -> None:
    first, second = replicas
    first.write(*save("a", "b"))
    second.follow()
    first.write(feedback("a"))
    statements: list[int] = []

    def cut_at_third() -> None:
        statements.append(1)
        if len(statements) == 3:  # after the one that looks the id up, and the one that commits
            server.cut_off(second.process.name, silently=False)

    second.process.at_statement = cut_at_third
    with pytest.raises(InDoubt):
        second.write(feedback("b"))
    server.cuts.clear()
    outcome = second.follow()
    assert outcome is not None
    assert [lesson.version for lesson in outcome.lessons] == [1, 2]


def test_a_replica_that_is_stopped_in_a_transaction_blocks_others_for_two_seconds(
    loop: VirtualLoop, replicas: list[Replica]
) -> None:
    first, second = replicas
    statements: list[int] = []

    def stop_at_third() -> None:
        statements.append(1)
        if len(statements) == 3:
            first.process.stop()

    first.process.at_statement = stop_at_third
    first.start(lambda: first.database.commit([SetControl("freeze", "{}", 1.0)]))
    loop.run_until(loop.time() + 0.5)
    assert first.process.is_stopped
    began_at = loop.time()
    while True:
        try:
            second.write(SetControl("freeze", "{}", 1.0))
            break
        except StorageUnavailable:
            assert loop.time() - began_at < 3.0
    assert loop.time() - began_at < 3.0


def test_a_replica_gets_over_a_time_limit_that_could_not_be_set(
    server: SimulatedServer, replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that may take long sets a limit of its own before it begins."""
    replica = replicas[0]
    replica.write(*save("a"))
    replica.write(feedback("a"))
    execute = server.execute

    def refuse(session: Session, sql: str, parameters: Any, **options: bool) -> StatementResult:
        if "set_config" not in sql:
            return execute(session, sql, parameters, **options)
        server.roll_back(session)
        raise ServerError("57014", "canceling statement due to statement timeout")

    retract = Retract(Selection(decisions=("a",)), "operator", "a refund", 3.0)
    with monkeypatch.context() as patch:
        patch.setattr(server, "execute", refuse)
        with pytest.raises(StorageUnavailable):
            replica.write(retract)
    (result,) = replica.write(retract).results
    assert result.counts.selected == 1


def test_the_lease_of_a_stopped_replica_goes_to_another(loop: VirtualLoop, replicas: list[Replica]) -> None:
    first, second = (replica.database.lease() for replica in replicas)
    assert replicas[0].run(first.hold)
    assert not replicas[1].run(second.hold)
    replicas[0].process.stop()
    began_at = loop.time()
    while not replicas[1].run(second.hold):
        loop.run_until(loop.time() + 0.25)
        assert loop.time() - began_at < 2.5
    loop.resume(replicas[0].process)
    assert not replicas[0].run(first.hold)
