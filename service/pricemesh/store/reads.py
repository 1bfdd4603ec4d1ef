"""What is read from the tables. `Reader` has connections of its own; the functions use the caller's."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, bindparam, select
from sqlalchemy.exc import SQLAlchemyError

from pricemesh.core.decision import COLUMNS, Decision
from pricemesh.errors import PricemeshError, StorageUnavailable
from pricemesh.store import schema
from pricemesh.store.backend import Backend
from pricemesh.store.commands import (
    Feedback,
    Lesson,
    Retraction,
    RetractionNote,
    Selection,
    SelectionCounts,
    StoredDecision,
)
from pricemesh.store.faults import reason
from pricemesh.store.retracting import count_selected, retractions_from, retractions_in_force
from pricemesh.store.tables import decisions, feedback, retracted, retractions

MAX_SCANNED_ROWS = (
    50_000  # of decisions, for a page: a filter that few of them pass must not read all of them
)

_LATEST_PRICE = (
    select(decisions.c.price)
    .where(decisions.c.subject == bindparam("subject"))
    .order_by(decisions.c.number.desc())
    .limit(1)
)
_DECISIONS = f"SELECT {', '.join(COLUMNS)} FROM decisions WHERE id "
_FEEDBACK = """
SELECT decisions.id, decisions.number, decisions.made_at, decisions.arm, decisions.price, decisions.vectors,
  decisions.chance, feedback.reward, feedback.sold, feedback.version, feedback.by_default, decisions.terms
FROM decisions LEFT JOIN feedback ON feedback.decision = decisions.number
WHERE decisions.id """


_FEEDBACK_FIELDS = Feedback._fields[:-1]  # all but the retraction
# Of a row of `RowPage`.
STORED_COLUMNS = ("number", *COLUMNS, *_FEEDBACK_FIELDS, "is_retracted", "import_id")
_COLUMNS = (
    decisions.c.number,
    *(decisions.c[name] for name in COLUMNS),
    *(feedback.c[name] for name in _FEEDBACK_FIELDS),
)
_WITH_FEEDBACK = decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number)
MAX_INDEXED_ROWS = 200_000  # of a time, whose numbers are looked up in the index

Result = TypeVar("Result")
Ranges = Sequence[tuple[int, int]]  # of numbers, first and last


class DecisionPage(NamedTuple):
    rows: list[StoredDecision]
    next_before: int | None  # where the next page begins; None on the last


class RowPage(NamedTuple):
    """Rows in the order of their numbers, each as STORED_COLUMNS; the feedback's are None without any."""

    rows: Sequence[Any]
    reached: int  # all that match up to this number have been read


class Recall(NamedTuple):
    """What decisions with a subject depend on."""

    decisions: dict[str, Decision]  # by id, those that exist
    latest_prices: dict[str, float]  # by subject


class Totals(NamedTuple):
    decisions: int
    feedback: int
    retractions: list[Retraction]  # the newest in force


class Reader:
    """Reads beside the writer. Every fault is a StorageUnavailable."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def decision(self, id_: str) -> StoredDecision | None:
        with self._connection() as connection:
            row = connection.execute(_with_feedback().where(decisions.c.id == id_)).first()
            return _stored_decision(row) if row else None

    def latest_decisions(self, *, limit: int) -> list[StoredDecision]:
        query = _with_feedback().order_by(decisions.c.number.desc()).limit(limit)
        with self._connection() as connection:
            return [_stored_decision(row) for row in connection.execute(query)]

    def page(
        self,
        *,
        limit: int,
        before: int | None = None,
        price: float | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> DecisionPage:
        """Decisions that match, newest first. Looks at no more than `MAX_SCANNED_ROWS`."""
        with self._connection() as connection:
            number = decisions.c.number
            if before is None:
                before = 1 + (connection.scalar(select(sa.func.max(number))) or 0)
            first = connection.scalar(select(sa.func.min(number))) or 1
            lowest = max(first, before - MAX_SCANNED_ROWS)
            query = page_query(limit, before, lowest, price, since, until)
            rows = [_stored_decision(row) for row in connection.execute(query)]
            if len(rows) == limit:
                return DecisionPage(rows, rows[-1].number)
            is_last = lowest == first or not connection.scalar(older_query(lowest, since, until))
            return DecisionPage(rows, None if is_last else lowest)

    def read(self, read: Callable[[Connection], Result]) -> Result:
        """What a function reads by a connection."""
        with self._connection() as connection:
            return read(connection)

    def read_at_once(self, read: Callable[[Connection], Result]) -> Result:
        """What a function reads by a connection that sees the tables at one moment."""
        with self._connection() as connection, self._backend.snapshot(connection):
            return read(connection)

    def number_range(self, *, since: float | None, until: float | None) -> tuple[int, int]:
        """The first and the last number between which all decisions of that time are; (0, 0) without any.
        Where there are many of them, the range of all."""
        number = decisions.c.number
        with self._connection() as connection:
            if since is not None or until is not None:
                few = _of_time(select(number), decisions.c.made_at, since, until).limit(MAX_INDEXED_ROWS + 1)
                rows = few.subquery().c.number
                query = select(sa.func.min(rows), sa.func.max(rows), sa.func.count())
                first, last, count = connection.execute(query).one()
                if count <= MAX_INDEXED_ROWS:
                    return first or 0, last or 0
            first, last = (connection.scalar(select(end(number))) or 0 for end in (sa.func.min, sa.func.max))
            return first, last

    def rows_after(
        self,
        number: int,
        *,
        through: int,
        limit: int,
        price: float | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> RowPage:
        """Decisions that match, after a number, through another. Looks at no more than `MAX_SCANNED_ROWS`."""
        highest = min(through, number + MAX_SCANNED_ROWS)
        with self._connection() as connection:
            rows = connection.execute(rows_query(limit, number, highest, price, since, until)).all()
        return RowPage(rows, rows[-1][0] if len(rows) == limit else highest)

    def latest_price(self, subject: str) -> float | None:
        with self._connection() as connection:
            price: float | None = connection.scalar(_LATEST_PRICE, {"subject": subject})
            return price

    def totals(self) -> Totals:
        """How many decisions and feedback there were, by their highest numbers: also those that were
        pruned. And what is retracted of them."""
        with self._connection() as connection:
            decision_count = connection.scalar(select(sa.func.max(decisions.c.number))) or 0
            feedback_count = connection.scalar(select(sa.func.max(feedback.c.number))) or 0
            return Totals(decision_count, feedback_count, retractions_in_force(connection))

    def selected(self, selection: Selection) -> SelectionCounts:
        """What a retraction would cover now, or its refusal."""
        with self._connection() as connection:
            counts = count_selected(connection, selection)
        if isinstance(counts, PricemeshError):
            raise counts
        return counts

    def retractions(self, *, limit: int, before: int | None = None) -> list[Retraction]:
        """Newest first, also those that were lifted."""
        with self._connection() as connection:
            return retractions_from(connection, before, limit)

    def reachable(self) -> bool:
        """Whether the database answers and its schema is the one this version needs."""
        try:
            with self._connection() as connection:
                return schema.is_usable(connection)
        except StorageUnavailable:
            return False

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        if (lost := self._backend.fault()) is not None:
            raise StorageUnavailable(lost)
        try:
            with self._backend.engine.connect() as connection:
                yield connection
        except SQLAlchemyError as fault:
            raise StorageUnavailable(f"the database cannot be read: {reason(fault)}") from None


def lessons_since(
    connection: Connection,
    version: int,
    limit: int = 1000,
    waiting: tuple[int, int] = (0, 0),
    more_waiting: Ranges = (),
) -> list[Lesson]:
    """At most `limit` lessons after `version`, in the order of their versions. Decisions after the first
    number of `waiting`, up to the second, waited for feedback, and those in the ranges of `more_waiting`."""
    waited = between(decisions.c.number, [(waiting[0] + 1, waiting[1]), *more_waiting])
    query = (
        select(
            decisions.c.arm,
            decisions.c.vectors,
            feedback.c.reward,
            feedback.c.version,
            feedback.c.sold,
            decisions.c.chance,
            sa.type_coerce(waited, sa.Boolean),
            decisions.c.price,
            decisions.c.terms,
            select(retracted.c.feedback).where(retracted.c.feedback == feedback.c.number).exists(),
        )
        .select_from(feedback.join(decisions, feedback.c.decision == decisions.c.number))
        .where(feedback.c.version > version)
        .order_by(feedback.c.version)
        .limit(limit)
    )
    return [Lesson(*row) for row in connection.execute(query)]


def between(number: sa.ColumnElement[Any], ranges: Ranges) -> sa.ColumnElement[bool]:
    return sa.or_(sa.false(), *(number.between(first, last) for first, last in ranges))


def decisions_by_id(backend: Backend, connection: Connection, ids: Sequence[str]) -> dict[str, Decision]:
    """Those of the decisions that exist."""
    rows = map(Decision.from_columns, backend.select_by_id(connection, _DECISIONS, ids))
    return {decision.id: decision for decision in rows}


def feedback_by_id(backend: Backend, connection: Connection, ids: Sequence[str]) -> dict[str, Any]:
    """For each decision that exists: id, number, made_at, arm, price, vectors, chance, reward, sold, version,
    by_default, terms. All from reward to by_default are None without feedback."""
    return {row[0]: row for row in backend.select_by_id(connection, _FEEDBACK, ids)}


def page_query(
    limit: int, before: int, lowest: int, price: float | None, since: float | None, until: float | None
) -> sa.Select[Any]:
    """Goes down the primary key from `before` to `lowest`. By price, because numbers of arms change with the
    ladder."""
    number = decisions.c.number
    query = _with_feedback().where(number < before, number >= lowest)
    return _matching(query, price, since, until).order_by(number.desc()).limit(limit)


def rows_query(
    limit: int, after: int, highest: int, price: float | None, since: float | None, until: float | None
) -> sa.Select[Any]:
    """As `page_query`, but up the primary key."""
    number, numbers = decisions.c.number, retracted.c.feedback
    is_retracted = select(numbers).where(numbers == feedback.c.number).exists()
    query = select(*_COLUMNS, is_retracted, decisions.c.import_id).select_from(_WITH_FEEDBACK)
    query = query.where(number > after, number <= highest)
    return _matching(query, price, since, until).order_by(number).limit(limit)


def _matching(
    query: sa.Select[Any], price: float | None, since: float | None, until: float | None
) -> sa.Select[Any]:
    """The sum keeps the databases from reading and sorting all rows of that time instead."""
    if price is not None:
        query = query.where(decisions.c.price == price)
    return _of_time(query, decisions.c.made_at + 0.0, since, until)


def _of_time(
    query: sa.Select[Any], made_at: sa.ColumnElement[float], since: float | None, until: float | None
) -> sa.Select[Any]:
    if since is not None:
        query = query.where(made_at >= since)
    if until is not None:
        query = query.where(made_at < until)
    return query


def older_query(lowest: int, since: float | None, until: float | None) -> sa.Select[Any]:
    """Whether a decision of that time is older than the rows of a page. Goes up the index of times: the first
    entry says so, unless a clock was set back."""
    query = select(decisions.c.number).where(decisions.c.number + 0 < lowest)
    return _of_time(query, decisions.c.made_at, since, until).order_by(decisions.c.made_at).limit(1)


def _with_feedback() -> sa.Select[Any]:
    newest = select(sa.func.max(retracted.c.retraction)).where(retracted.c.feedback == feedback.c.number)
    return select(
        *_COLUMNS,
        retractions.c.id,
        retractions.c.made_at.label("retracted_at"),
        retractions.c.made_by,
        retractions.c.reason,
    ).select_from(_WITH_FEEDBACK.outerjoin(retractions, retractions.c.id == newest.scalar_subquery()))


def _stored_decision(row: Any) -> StoredDecision:
    number, *values = row
    decision, answer = values[: len(COLUMNS)], values[len(COLUMNS) :]
    stored = None
    if answer[0] is not None:
        note = answer[len(_FEEDBACK_FIELDS) :]
        fields = dict(zip(_FEEDBACK_FIELDS, answer, strict=False))
        stored = Feedback(**fields, retracted=RetractionNote(*note) if note[0] else None)
    return StoredDecision(number, Decision.from_columns(decision), stored)
