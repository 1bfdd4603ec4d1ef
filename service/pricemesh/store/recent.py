"""The newest decisions and feedback, as far as alerts and the value of the mesh need them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, select

from pricemesh.store.tables import decisions, feedback

ROWS = 1000


class Choice(NamedTuple):
    """A decision of this service."""

    arm: int
    limited_by: str
    vectors: bytes


class AnswerTimes(NamedTuple):
    """Of the newest feedback that callers gave."""

    size: int  # how many
    longest_seconds: float  # from a decision to its feedback
    newest_decision: int  # the highest number of those decisions
    decision_span: int  # how many decisions there were from the first of them to the last
    newest_made_at: float  # of those decisions


def recent_choices(connection: Connection, terms: int | None, limit: int = ROWS) -> list[Choice]:
    """Among the newest decisions those under these terms, newest first."""
    columns = [decisions.c[name] for name in (*Choice._fields, "terms", "import_id")]
    rows: Sequence[Any] = connection.execute(
        select(*columns).order_by(decisions.c.number.desc()).limit(limit)
    ).all()
    return [Choice(*row[:3]) for row in rows if row.terms == terms and row.import_id is None]


def answer_times(connection: Connection, limit: int = ROWS) -> AnswerTimes | None:
    """None without such feedback."""
    newest = (
        select(feedback.c.decision, feedback.c.received_at, feedback.c.by_default)
        .order_by(feedback.c.number.desc())
        .limit(limit)
        .subquery()
    )
    query = (
        select(
            sa.func.count(),
            sa.func.max(newest.c.received_at - decisions.c.made_at),
            sa.func.max(decisions.c.number),
            sa.func.min(decisions.c.number),
            sa.func.max(decisions.c.made_at),
        )
        .select_from(newest.join(decisions, decisions.c.number == newest.c.decision))
        .where(~newest.c.by_default, decisions.c.import_id.is_(None))
    )
    count, longest, last, first, made_at = connection.execute(query).one()
    if not count:
        return None
    return AnswerTimes(count, max(0.0, longest), last, last - first + 1, made_at)


def count_unanswered(connection: Connection, after: int, made_before: float, limit: int) -> int:
    """Decisions after a number that were made before a time, up to a limit."""
    some = select(decisions.c.number).where(
        decisions.c.number > after, decisions.c.made_at + 0.0 < made_before
    )
    return connection.scalar(select(sa.func.count()).select_from(some.limit(limit).subquery())) or 0
