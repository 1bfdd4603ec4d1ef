"""Removes a subject from decisions. The rows stay: the learner does not depend on whose price it was."""

import sqlalchemy as sa
from sqlalchemy import Connection, select

from pricemesh.store.tables import decisions


def forget_subject(connection: Connection, subject: str, limit: int | None = None) -> int:
    """Of its oldest decisions, or of all. Returns of how many."""
    oldest = (
        select(decisions.c.number)
        .where(decisions.c.subject == subject)
        .order_by(decisions.c.number)
        .limit(limit)
    )
    result = connection.execute(
        decisions.update().where(decisions.c.number.in_(oldest)).values(subject=sa.null())
    )
    return result.rowcount


def count_decisions(connection: Connection, subject: str) -> int:
    query = select(sa.func.count()).select_from(decisions).where(decisions.c.subject == subject)
    return connection.scalar(query) or 0
