"""One city's database, SQLite or Postgres through the same code. Synchronous: threads call it.

Only `commit` writes, all or nothing, on the one connection that owns the database. `reader` has others. What
differs between SQLite and Postgres is behind `Backend`.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from pricemesh.errors import DatabaseInUse, InDoubt, NotStarted, StorageCause, StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store import schema
from pricemesh.store.backend import Backend, TimeLimits
from pricemesh.store.causes import cause_of, was_rolled_back
from pricemesh.store.commands import Command, Lesson, Position, Probe
from pricemesh.store.commit_result import CommitResult, Missed, failed, joined
from pricemesh.store.faults import NOTHING_CHANGED, WHAT_TO_DO_IN_DOUBT, reason
from pricemesh.store.pending import Change, changes_since, missed_since
from pricemesh.store.postgres import Postgres
from pricemesh.store.present_state import MeshRecord, PresentState
from pricemesh.store.reads import Reader, Recall, decisions_by_id, lessons_since
from pricemesh.store.replay import Replay, first_position, replaying
from pricemesh.store.sales_folding import use_time_zone
from pricemesh.store.sqlite import Sqlite
from pricemesh.store.startup import (
    StoredState,
    check_description,
    read_present_state,
    read_state,
    refuse_damaged_values,
)
from pricemesh.store.writes import carry_out

__all__ = ["CommitResult", "Database", "MeshRecord", "Recall", "StoredState", "TimeLimits"]

NOTHING_COUNTED = Position()
LOCK_POLL_SECONDS = 0.05

log = logging.getLogger("pricemesh")


class Database:
    def __init__(
        self,
        url: str,
        city: str,
        runtime: Runtime,
        lock_wait_seconds: float = 0.0,
        limits: TimeLimits | None = None,
    ) -> None:
        self._city = city
        self._runtime = runtime
        self._lock_wait_seconds = lock_wait_seconds
        self._limits = limits or TimeLimits()
        self._backend = self._backend_of(url)
        self.reader = Reader(self._backend)
        self._connection: Connection | None = None
        self._version = 0
        self._confirmed_version = 0  # what was returned up to here may have been learned
        self._in_doubt = False  # a commit failed, and may have happened nevertheless
        self._missed: list[Missed] = []  # what such commits did
        self._is_memory_stale = False  # such a commit may have changed what the city has in memory
        self._recovered: PresentState | None = None  # what it has to be
        self.position = self._confirmed_position = Position()  # of the committed rows
        self._is_started = False
        self._terms: int | None = None  # that decisions are made under, once the city is open
        self.is_silent = False  # the server answered nothing at all; only a probe asks it again

    def _backend_of(self, url: str) -> Backend:
        parts = make_url(url)
        kind = Sqlite if parts.get_backend_name() == "sqlite" else Postgres
        return kind(parts, self._limits)

    # Start and end

    def open(self, description: dict[str, Any], time_zone: str | None = None) -> StoredState:
        """Own the database, check that it is the one this city was configured for, and read its state. The
        sums of sales are by the days of this zone from now on."""
        with self._starting():
            connection = self._own_patiently()
            self._check_schema(connection)
            with connection.begin():
                check_description(connection, self._city, description)
                use_time_zone(connection, time_zone)
                stored = read_state(connection, self._runtime)
        self._terms = stored.past.terms
        self.position = self._confirmed_position = stored.position
        return stored

    def changes_of_pending(self, counted: Position) -> Iterator[Change]:
        """What a learner that has counted decisions up to `counted` has yet to count, apart from lessons. The
        windows that have closed are those that were committed: a start does not believe its clock yet. One
        that has counted nothing begins with the last MAX_FIRST_DECISIONS."""
        with self._starting():
            connection = self._own()
            with self._start_reading(connection):
                self.position = self._confirmed_position = first_position(self.position, counted)
                yield from changes_since(connection, counted, self.position)

    def lessons(self, version: int, counted: Position = NOTHING_COUNTED) -> Iterator[list[Lesson]]:
        """The lessons after `version`, in order, in groups; decisions up to `counted` waited for feedback.
        The caller reads all of them before the first commit, which continues from the last version read
        here."""
        waiting = counted.settled, counted.decision
        while True:
            with self._starting():
                connection = self._own()
                with self._start_reading(connection):
                    group = lessons_since(connection, version, waiting=waiting)
            if not group:
                self._version = self._confirmed_version = version
                self._is_started = True
                self._backend.limit(connection, self._limits.commit_seconds)
                return
            version = group[-1].version
            yield group

    def migrate(self, revision: str) -> tuple[str | None, str | None]:
        """Move the schema up or down to a revision. Returns the revisions before and after."""
        with self._starting():
            connection = self._own_patiently()
            self._backend.limit(connection, None)  # a large table takes its time
            before, _ = schema.revisions(connection)
            connection.rollback()
            schema.move(connection, revision)
            connection.commit()
            after, _ = schema.revisions(connection)
            return before, after

    def _check_schema(self, connection: Connection) -> None:
        is_usable, revisions = schema.is_usable(connection), schema.revisions(connection)
        connection.rollback()
        if not is_usable:
            self._backend.update_schema(connection, *revisions)

    def _start_reading(self, connection: Connection) -> AbstractContextManager[Any]:
        """Around what a start reads of the rows."""
        return connection.begin()

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """A fault closes the database and says what it means to the operator."""
        try:
            with refuse_damaged_values():
                yield
        except BaseException as fault:
            self.close()
            if isinstance(fault, SQLAlchemyError):
                raise self._backend.start_fault(fault) from None
            if isinstance(fault, CommandError):
                raise NotStarted(f"the schema of the database cannot be read: {fault}") from None
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._backend.release(connection)

    def fault(self) -> str | None:
        """Why a commit would not be acknowledged now; None when it would. Reads from disk or network, so it
        is called from a thread."""
        if (lost := self._backend.fault()) is not None:
            return lost
        if not self.reader.reachable():
            return "the database cannot be reached, or its schema is not current"
        return None

    @property
    def _has_connection(self) -> bool:
        connection = self._connection
        return connection is not None and not connection.closed and not connection.invalidated

    def _own(self) -> Connection:
        """The writer's connection, made anew when it was lost."""
        connection = self._connection
        if connection is not None and self._has_connection:
            return connection
        if connection is not None:
            connection.close()
            self._connection = None
        connection = self._backend.own(self._city, self._terms)
        if self._is_started:
            self._backend.limit(connection, self._limits.commit_seconds)
        self._connection = connection
        return connection

    def _own_patiently(self) -> Connection:
        """As `_own`, but wait for a process that is ending, or whose lock the server has yet to release."""
        deadline = self._runtime.monotonic() + self._lock_wait_seconds
        wait_logged = False
        while True:
            try:
                return self._own()
            except DatabaseInUse:
                seconds_left = deadline - self._runtime.monotonic()
                if seconds_left <= 0:
                    raise
                if not wait_logged:
                    log.info(
                        "another process owns the database: waiting for it to end",
                        extra={"city": self._city, "max_seconds": self._lock_wait_seconds},
                    )
                    wait_logged = True
                self._runtime.sleep(min(LOCK_POLL_SECONDS, seconds_left))

    # Reading and writing on the writer's connection

    def recall(self, decision_ids: Sequence[str], subjects: Sequence[str]) -> Recall:
        """Called from the writer's thread, before decisions with a subject are made. At most two statements,
        for thousands of each. Every fault is a StorageUnavailable."""
        try:
            self._begin()
            connection = self._own()
            with self._backend.reading(connection):
                existing = decisions_by_id(self._backend, connection, decision_ids) if decision_ids else {}
                prices = self._backend.latest_prices(connection, subjects) if subjects else ()
        except StorageUnavailable:
            raise
        except Exception as fault:
            if not isinstance(fault, SQLAlchemyError | NotStarted):  # a damaged value may raise anything
                log.exception("unforeseen, in a recall")
            raise self._failure("the database cannot be read", fault) from None
        return Recall(existing, dict(prices))

    def commit(self, commands: Sequence[Command]) -> CommitResult:
        """`write` and `confirm`, for callers on one thread."""
        outcome = self.write(commands)
        self.confirm()
        return outcome

    def confirm(self) -> None:
        """After `write`, before anything of it is acknowledged or learned: raises when the file is gone by
        now. In the writer's thread, each look at a file would also wait for the interpreter."""
        if (lost := self._backend.fault()) is not None:
            self._in_doubt, self._missed = True, []
            self._version, self.position = self._confirmed_version, self._confirmed_position
            raise InDoubt(f"{lost}. This commit is in the file that was open", StorageCause.GONE)
        if not self._missed:  # all of it was returned
            self._confirmed_version, self._confirmed_position = self._version, self.position

    def write(self, commands: Sequence[Command]) -> CommitResult:
        """Carry out all commands in one transaction. After a StorageUnavailable nothing may be acknowledged.
        After an InDoubt the transaction may have happened: then the next commit recovers what it did."""
        try:
            self._begin(commands)
            connection = self._own()
            if self._in_doubt:
                if (lost := self._backend.fault()) is not None:
                    raise StorageUnavailable(lost, StorageCause.GONE)
                self._recover(connection)
                self._recover_state(connection)
            self._in_doubt = True
            self._runtime.disk.before_commit()
            with self._backend.transaction(connection, commands):
                outcome = carry_out(self._backend, connection, commands, self._version, self.position)
            self._runtime.disk.after_commit()
            outcome = self._in_order(connection, outcome)
        except (NotStarted, OperationalError, OSError) as fault:
            raise self._failure("the database does not take writes", fault) from None
        except DBAPIError as fault:
            if len(commands) > 1 and not fault.connection_invalidated:
                return self._commit_in_parts([[command] for command in commands])
            raise self._failure("the database refused", fault) from None
        except SQLAlchemyError as fault:
            raise self._failure("the database failed", fault) from None
        self._version, self.position = outcome.version, outcome.position
        self._in_doubt = self.is_silent = False
        missed, self._missed = self._missed, []
        recovered, self._recovered = self._recovered, None
        return outcome.after(missed)._replace(recovered=recovered)

    def _in_order(self, _connection: Connection, outcome: CommitResult) -> CommitResult:
        """What a commit did, after all that was committed before it."""
        return outcome

    def replay(self) -> AbstractContextManager[Replay]:
        """All that a learner is made of, read beside the writer."""
        return replaying(self._backend)

    def realign(self, version: int, position: Position) -> None:
        """In the writer's thread: a learner that has learned all rows up to here takes over."""
        self._version = self._confirmed_version = version
        self.position = self._confirmed_position = position
        self._missed = []

    def _begin(self, commands: Sequence[Command] = ()) -> None:
        """While the server answers nothing, callers are refused at once; only a probe waits for it."""
        self._is_memory_stale |= self._in_doubt and self._backend.committing
        self._backend.committing = False
        if self.is_silent and not any(isinstance(command, Probe) for command in commands):
            raise StorageUnavailable(
                f"the database does not answer: {NOTHING_CHANGED}; try again in a moment",
                StorageCause.TIMEOUT,
            )

    def _failure(self, text: str, fault: Exception) -> StorageUnavailable:
        """What a fault of the writer's connection means to callers."""
        if isinstance(fault, NotStarted):  # the connection was lost, and cannot be made anew
            return StorageUnavailable(f"{fault}: {NOTHING_CHANGED}", cause_of(fault))
        cause = cause_of(fault)
        self.is_silent = cause == StorageCause.TIMEOUT and not self._has_connection
        if self._backend.committing and not was_rolled_back(fault):
            return InDoubt(f"{text}: {reason(fault)}: {WHAT_TO_DO_IN_DOUBT}", cause)
        return StorageUnavailable(f"{text}: {reason(fault)}: {NOTHING_CHANGED}", cause)

    def _commit_in_parts(self, parts: Sequence[Sequence[Command]]) -> CommitResult:
        """Commit each part alone, so that one that the database refuses does not fail the others. What those
        did that were committed is returned; what was recovered before one that failed waits for the next."""
        outcomes: list[CommitResult] = []
        position = self._confirmed_position
        for commands in parts:
            try:
                outcomes.append(self.write(commands))
                position = position.furthest(outcomes[-1].position)
            except StorageUnavailable as fault:
                outcomes.append(failed(fault, len(commands)))
            except Exception as fault:
                log.exception("unforeseen, in a commit")
                outcomes.append(failed(self._failure("the database failed", fault), len(commands)))
        total = joined(outcomes, position)._replace(is_whole=not self._missed)
        if total.recovered is not None:  # between two of these parts: it is to be read again after the last
            self._in_doubt = self._is_memory_stale = True
        return total

    def _recover(self, connection: Connection) -> None:
        """Read what a commit did that failed and happened nevertheless. It waits here until a commit succeeds
        and returns it."""
        with connection.begin():
            missed = missed_since(connection, self._version, self.position)
        self.position = missed.position
        if missed.lessons:
            self._version = missed.lessons[-1].version
        self._missed.append(missed)

    def _recover_state(self, connection: Connection) -> None:
        """Read what else such a commit may have changed that the city has in memory. It waits here, too."""
        if self._is_memory_stale:
            with connection.begin():
                self._recovered = read_present_state(connection, self._runtime)
            self._is_memory_stale = False
