"""A city's database that several replicas write: each learns every row, in the order of the versions.

Own rows are counted when they are committed, as in a city of one process. Rows of others are read from the
tables, at the latest by the next `follow`. Where others wrote between own rows, own lessons are read from the
tables, too: the order of versions is the order of learning.
"""

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sqlalchemy import Connection, func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from pricemesh.errors import InDoubt, NotStarted, StepConflict, StorageUnavailable
from pricemesh.store.advisory_locks import lock_key
from pricemesh.store.backend import Backend
from pricemesh.store.causes import cause_of
from pricemesh.store.commands import Command, Position, SaveDecisions, SaveFeedback
from pricemesh.store.commit_result import CommitResult
from pricemesh.store.database import Database
from pricemesh.store.faults import WHAT_TO_DO_IN_DOUBT, reason
from pricemesh.store.lease import Lease
from pricemesh.store.sales_folding import use_time_zone
from pricemesh.store.shared_log import (
    OwnRows,
    freeze_for_start,
    open_log,
    read_changes,
    read_missed,
    read_newest,
)
from pricemesh.store.shared_postgres import SharedPostgres
from pricemesh.store.startup import StoredState, check_description, read_present_state, read_state

log = logging.getLogger("pricemesh")

MAX_TRIES = 5  # of a command that met what another replica was writing


class SharedDatabase(Database):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._own_rows = OwnRows()
        self._changes = 0  # of what replicas have in memory, as this one knows it

    def _backend_of(self, url: str) -> Backend:
        return SharedPostgres(make_url(url), self._limits)

    def lease(self) -> Lease:
        return Lease(self._backend.engine, self._city)

    # Start

    def open(self, description: dict[str, Any], time_zone: str | None = None) -> StoredState:
        """As of a city of one process; but the rows are read at one moment, which ends with `lessons`."""
        with self._starting():
            connection = self._own_patiently()
            self._check_schema(connection)
            self._describe(connection, description)
            with connection.begin():
                use_time_zone(connection, time_zone)
            freeze_for_start(connection)
            stored = read_state(connection, self._runtime)
            self._changes = read_changes(connection)
        self._terms = stored.past.terms
        self.position = self._confirmed_position = stored.position
        return stored

    def migrate(self, revision: str) -> tuple[str | None, str | None]:
        """Beside replicas that serve; of several processes that migrate, one after the other."""
        with self._starting():
            connection = self._own_patiently()
            self._backend.limit(connection, None)
            key = lock_key(f"pricemesh:{self._city}:migration")
            connection.execute(select(func.pg_advisory_lock(key)))
            connection.commit()
        return super().migrate(revision)

    def _describe(self, connection: Connection, description: dict[str, Any]) -> None:
        """Several replicas may be the first of a new city."""
        for tries_left in reversed(range(MAX_TRIES)):
            try:
                with connection.begin():
                    check_description(connection, self._city, description)
                    read_present_state(connection, self._runtime)
                    open_log(connection)
                return
            except IntegrityError:
                if not tries_left:
                    raise

    def _start_reading(self, connection: Connection) -> AbstractContextManager[Any]:
        return nullcontext() if connection.in_transaction() else self._backend.snapshot(connection)

    # Writing

    def write(self, commands: Sequence[Command]) -> CommitResult:
        """Prices and feedback are one statement each, and so commit by themselves."""
        parts = _parts(commands)
        if len(parts) == 1:
            outcome = self._write_again(commands)
        else:
            outcome = self._commit_in_parts([[commands[i] for i in places] for places in parts])
            by_place = dict(zip([i for places in parts for i in places], outcome.results, strict=True))
            outcome = outcome._replace(results=[by_place[i] for i in range(len(commands))])
        return outcome._replace(is_whole=not self._own_rows and not self._missed)

    def _write_again(self, commands: Sequence[Command]) -> CommitResult:
        """Where another replica has just written the same id, or feedback for the same decision, once more:
        now it can be read."""
        for tries_left in reversed(range(MAX_TRIES)):
            try:
                return super().write(commands)
            except StepConflict:
                self._in_doubt = False  # it was refused before anything was written
                raise
            except StorageUnavailable as fault:
                if not tries_left or not isinstance(fault.__context__, IntegrityError):
                    raise
        raise AssertionError

    def _in_order(self, connection: Connection, outcome: CommitResult) -> CommitResult:
        if outcome.changes == self._changes + 1:
            self._changes = outcome.changes
        before, after = self.position, outcome.position
        if outcome.decisions:
            first = after.decision - len(outcome.decisions) + 1
            if first != before.decision + 1 or self._own_rows:
                self._own_rows.add(first, after.decision)
                return outcome._replace(position=before)
        elif after != before and not self._follows(outcome):
            self._look_after_commit(connection)
            return outcome._replace(lessons=[], released=[], position=self.position, version=self._version)
        return outcome

    def _look_after_commit(self, connection: Connection) -> None:
        try:
            self._look(connection)
        except SQLAlchemyError as fault:
            text = f"committed, but the database cannot be read: {reason(fault)}: {WHAT_TO_DO_IN_DOUBT}"
            raise InDoubt(text, cause_of(fault)) from None

    def _follows(self, outcome: CommitResult) -> bool:
        """Whether feedback comes directly after what this replica has learned and counted."""
        before, after, own_rows = self.position, outcome.position, self._own_rows
        return (
            outcome.version - len(outcome.lessons) == self._version
            and after.feedback - len(outcome.answered) == before.feedback
            and after.settled == before.settled
            and all(number <= before.decision or number in own_rows for number in outcome.answered)
        )

    def realign(self, version: int, position: Position) -> None:
        super().realign(version, position)
        self._own_rows = OwnRows()

    # Reading what others wrote

    def follow(self) -> CommitResult | None:
        """What is to be learned and counted of the rows that others wrote; None where there is nothing."""
        try:
            self._begin()
            connection = self._own()
            if not self._in_doubt and not self._has_news(connection):
                return None
            self._look(connection)
            self._recover_state(connection)
        except StorageUnavailable:
            raise
        except (SQLAlchemyError, NotStarted, OSError) as fault:
            raise self._failure("the database cannot be read", fault) from None
        self._in_doubt = self.is_silent = False
        missed, self._missed = self._missed, []
        recovered, self._recovered = self._recovered, None
        self.confirm()
        seen = CommitResult([], [], [], position=self.position, version=self._version, recovered=recovered)
        return seen.after(missed)

    def _has_news(self, connection: Connection) -> bool:
        with self._backend.reading(connection):
            newest = read_newest(connection)
        position = newest.position._replace(settled=max(newest.position.settled, self.position.settled))
        known = (self._version, self._changes, self.position)
        return bool(self._own_rows) or (newest.version, newest.changes, position) != known

    def _look(self, connection: Connection) -> None:
        """Read all that was committed and is not learned or counted here. It waits until it is returned."""
        with self._backend.snapshot(connection):
            newest = read_newest(connection)
            missed = read_missed(connection, newest, self._version, self.position, self._own_rows)
            if newest.changes != self._changes:
                self._recovered = read_present_state(connection, self._runtime)
        self._changes, self._own_rows = newest.changes, OwnRows()
        self.position = missed.position
        if missed.lessons:
            self._version = missed.lessons[-1].version
        self._missed.append(missed)

    def _recover(self, connection: Connection) -> None:
        self._look(connection)


def _parts(commands: Sequence[Command]) -> list[list[int]]:
    """The places of prices, of feedback, and of each other command."""
    prices = [i for i, command in enumerate(commands) if isinstance(command, SaveDecisions)]
    rewards = [i for i, command in enumerate(commands) if isinstance(command, SaveFeedback)]
    others = [[i] for i in range(len(commands)) if i not in prices and i not in rewards]
    return [part for part in (prices, rewards, *others) if part]
