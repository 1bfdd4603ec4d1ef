"""Decisions that wait for feedback, by the rows: those above `settled` that have none.

A snapshot says how far it has counted them; a start reads only the rows after that.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, select

from pricemesh.core.decision import COLUMNS, Decision
from pricemesh.store.commands import Position, Unanswered
from pricemesh.store.commit_result import Missed
from pricemesh.store.reads import Ranges, between, lessons_since
from pricemesh.store.tables import city, decisions, feedback

ROWS_PER_READ = 5000
MAX_ROWS_IN_DOUBT = 10_000  # more than one commit can hold

_ANSWERED = decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number)
_MADE = (
    select(decisions.c.number, *(decisions.c[name] for name in Unanswered._fields))
    .order_by(decisions.c.number)
    .limit(ROWS_PER_READ)
)
_UNANSWERED = _MADE.select_from(_ANSWERED).where(feedback.c.number.is_(None))
_FROZEN = (
    select(feedback.c.number, *(decisions.c[name] for name in Unanswered._fields))
    .select_from(feedback.join(decisions, feedback.c.decision == decisions.c.number))
    .where((feedback.c.version + 0).is_(None))  # a sum keeps an index from being used: this goes by numbers
    .order_by(feedback.c.number)
    .limit(ROWS_PER_READ)
)


class Change(NamedTuple):
    """Decisions that began to wait, and decisions that waited and never will be learned."""

    begun: list[Unanswered]
    released: list[Unanswered]


def newest_position(connection: Connection) -> Position:
    decision, answer = (
        connection.scalar(select(sa.func.max(table.c.number))) or 0 for table in (decisions, feedback)
    )
    return Position(decision, answer, connection.scalar(select(city.c.settled_through)) or 0)


def changes_since(
    connection: Connection, counted: Position, now: Position, own: Ranges = ()
) -> Iterator[Change]:
    """From what waited at `counted` to what waits at `now`, apart from decisions that were learned. Decisions
    in `own` are counted, too."""
    ended = _released_since(connection, counted, now, counted.decision, own)
    for group in ended:
        yield Change([], group)
    # Without new feedback no decision after the counted ones can be answered.
    query = _MADE if counted.feedback == now.feedback else _UNANSWERED
    if own:
        query = query.where(~between(decisions.c.number, own))
    for group in _rows_between(connection, query, max(counted.decision, now.settled), now.decision):
        yield Change(group, [])


def missed_since(connection: Connection, version: int, position: Position) -> Missed:
    """After a commit that failed and happened nevertheless."""
    now = newest_position(connection)
    now = now._replace(settled=max(now.settled, position.settled))
    columns = [decisions.c[name] for name in COLUMNS]
    query = select(*columns).where(decisions.c.number > position.decision).order_by(decisions.c.number)
    rows = connection.execute(query.limit(MAX_ROWS_IN_DOUBT))
    released = _released_since(connection, position, now, now.decision)
    return Missed(
        [Decision.from_columns(row) for row in rows],
        lessons_since(connection, version, MAX_ROWS_IN_DOUBT, (position.settled, now.decision)),
        [row for group in released for row in group],
        now,
    )


def _released_since(
    connection: Connection, before: Position, now: Position, last: int, own: Ranges = ()
) -> Iterator[list[Unanswered]]:
    """Decisions up to `last`, or in `own`, that stopped waiting without being learned: by feedback while
    learning was frozen, or because their window closed."""
    if before.feedback < now.feedback:
        answered = feedback.c.decision + 0
        frozen = _FROZEN.where(answered > before.settled, (answered <= last) | between(answered, own))
        yield from _in_groups(connection, frozen, feedback.c.number, before.feedback)
    number = decisions.c.number
    end = now.settled if own else min(now.settled, last)
    closed = _UNANSWERED.where((number <= last) | between(number, own))
    yield from _rows_between(connection, closed, before.settled, end)


def _rows_between(
    connection: Connection, query: sa.Select[Any], first: int, last: int
) -> Iterator[list[Unanswered]]:
    """Decisions after `first` and up to `last`."""
    if first < last:
        yield from _in_groups(connection, query.where(decisions.c.number <= last), decisions.c.number, first)


def _in_groups(
    connection: Connection, query: sa.Select[Any], number: Any, first: int
) -> Iterator[list[Unanswered]]:
    is_last = False
    while not is_last and (rows := connection.execute(query.where(number > first)).all()):
        first, is_last = rows[-1][0], len(rows) < ROWS_PER_READ
        yield [Unanswered(*row[1:]) for row in rows]
