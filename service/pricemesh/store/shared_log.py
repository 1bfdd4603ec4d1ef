"""What other replicas of a city have written since this one last looked, read in one snapshot.

A replica counts its own rows when they are committed. Between them there may be rows of others that it has
not read yet; `OwnRows` remembers which are its own until it has.
"""

from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, select

from pricemesh.store.commands import Lesson, Position, Unanswered
from pricemesh.store.commit_result import Missed
from pricemesh.store.pending import changes_since
from pricemesh.store.postgres import freeze
from pricemesh.store.reads import lessons_since
from pricemesh.store.tables import city, decisions, feedback, shared_log

MAX_LESSONS = 1_000_000  # of one look
START_SECONDS = 3600  # that a start may take between two statements

_NEWEST = select(
    shared_log.c.version,
    shared_log.c.changes,
    select(sa.func.max(decisions.c.number)).scalar_subquery(),
    select(sa.func.max(feedback.c.number)).scalar_subquery(),
    select(city.c.settled_through).scalar_subquery(),
)


class OwnRows:
    """Numbers of own decisions after the last one up to which all are counted: a few ranges."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> None:
        if self.ranges and self.ranges[-1][1] == first - 1:
            first, _ = self.ranges.pop()
        self.ranges.append((first, last))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.ranges)


class Newest(NamedTuple):
    version: int
    changes: int
    position: Position


def read_newest(connection: Connection) -> Newest:
    """How far the tables go, in one statement."""
    version, changes, decision, answer, settled = connection.execute(_NEWEST).one()
    return Newest(version, changes, Position(decision or 0, answer or 0, settled or 0))


def read_changes(connection: Connection) -> int:
    changes: int = connection.scalar(select(shared_log.c.changes)) or 0
    return changes


def freeze_for_start(connection: Connection) -> None:
    """For a start, which learns between two statements."""
    freeze(connection)
    connection.execute(sa.text(f"SET LOCAL idle_in_transaction_session_timeout = '{START_SECONDS}s'"))


def read_missed(
    connection: Connection, newest: Newest, version: int, counted: Position, own: OwnRows
) -> Missed:
    """In a snapshot up to `newest`: decisions that wait and are not counted, lessons, decisions that stopped
    waiting."""
    now = newest.position._replace(settled=max(newest.position.settled, counted.settled))
    begun: list[Unanswered] = []
    released: list[Unanswered] = []
    for change in changes_since(connection, counted, now, own.ranges):
        begun += change.begun
        released += change.released
    waiting = (counted.settled, counted.decision)
    lessons: list[Lesson] = []
    if newest.version > version:
        lessons = lessons_since(connection, version, MAX_LESSONS, waiting, own.ranges)
    return Missed([], lessons, released, now, begun)


def open_log(connection: Connection) -> None:
    """Before the first replica writes, the log continues what single processes wrote."""
    newest = select(sa.func.coalesce(sa.func.max(feedback.c.version), 0)).scalar_subquery()
    version = sa.func.greatest(shared_log.c.version, newest)
    connection.execute(shared_log.update().values(version=version))


def record_change(connection: Connection) -> int:
    """In the transaction that changes something: how many changes there were with it."""
    change = shared_log.update().values(changes=shared_log.c.changes + 1).returning(shared_log.c.changes)
    changes: int = connection.execute(change).scalar_one()
    return changes
