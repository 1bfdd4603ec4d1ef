"""What is read from the tables, on connections of its own; a fault is one of ours."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, bindparam, select
from sqlalchemy.exc import SQLAlchemyError

from pricemesh.core.decision import COLUMNS, Decision
from pricemesh.errors import StorageUnavailable
from pricemesh.store import schema
from pricemesh.store.commands import Feedback, Lesson, StoredDecision
from pricemesh.store.faults import reason
from pricemesh.store.tables import decisions, feedback

_LATEST_PRICE = (
    select(decisions.c.price)
    .where(decisions.c.subject == bindparam("subject"))
    .order_by(decisions.c.number.desc())
    .limit(1)
)


class Reader:
    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def decision(self, id_: str) -> StoredDecision | None:
        with _Reading(self._engine) as connection:
            row = connection.execute(_with_feedback().where(decisions.c.id == id_)).first()
            return _kept(row) if row else None

    def latest_decisions(
        self,
        *,
        limit: int,
        before: int | None = None,
        arm: int | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[StoredDecision]:
        query = _with_feedback().order_by(decisions.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(decisions.c.number < before)
        if arm is not None:
            query = query.where(decisions.c.arm == arm)
        if since is not None:
            query = query.where(decisions.c.made_at >= since)
        if until is not None:
            query = query.where(decisions.c.made_at < until)
        with _Reading(self._engine) as connection:
            return [_kept(row) for row in connection.execute(query)]

    def latest_price(self, subject: str) -> float | None:
        with _Reading(self._engine) as connection:
            price: float | None = connection.scalar(_LATEST_PRICE, {"subject": subject})
            return price

    def totals(self) -> tuple[int, int]:
        """How many decisions and feedback there are; numbers are given out in order and never taken back."""
        with _Reading(self._engine) as connection:
            made = connection.scalar(select(sa.func.max(decisions.c.number))) or 0
            answered = connection.scalar(select(sa.func.max(feedback.c.number))) or 0
            return made, answered

    def reachable(self) -> bool:
        try:
            with _Reading(self._engine) as connection:
                has, wants = schema.revisions(connection)
        except StorageUnavailable:
            return False
        return has == wants


class _Reading:
    """A connection for reading whose faults are ours."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def __enter__(self) -> Connection:
        try:
            self._connection = self._engine.connect()
        except SQLAlchemyError as fault:
            raise StorageUnavailable(f"the database cannot be read: {reason(fault)}") from None
        return self._connection

    def __exit__(self, kind: Any, fault: BaseException | None, trace: Any) -> None:
        self._connection.close()
        if isinstance(fault, SQLAlchemyError):
            raise StorageUnavailable(f"the database cannot be read: {reason(fault)}") from None


def lessons_since(connection: Connection, version: int, most: int = 1000) -> list[Lesson]:
    """What was learned after `version`, in order, at most so many."""
    query = (
        select(decisions.c.arm, decisions.c.vectors, feedback.c.reward, feedback.c.version)
        .select_from(feedback.join(decisions, feedback.c.decision == decisions.c.number))
        .where(feedback.c.version > version)
        .order_by(feedback.c.version)
        .limit(most)
    )
    return [Lesson(*row) for row in connection.execute(query)]


def _with_feedback() -> sa.Select[Any]:
    return select(
        decisions.c.number,
        *(decisions.c[name] for name in COLUMNS),
        *(feedback.c[name] for name in Feedback._fields),
    ).select_from(decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number))


def _kept(row: Any) -> StoredDecision:
    number, *values = row
    decision, answer = values[: len(COLUMNS)], values[len(COLUMNS) :]
    return StoredDecision(
        number, Decision.from_columns(decision), Feedback(*answer) if answer[0] is not None else None
    )
