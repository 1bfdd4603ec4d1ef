"""Which rows are old enough to leave, and how they do: what they taught takes their place as the base.

The newest decision, the newest feedback and the newest version always stay. The next ones are counted from
them, so no number and no version is ever used twice.
"""

from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, insert, select

from pricemesh.runtime import Runtime
from pricemesh.store import schema
from pricemesh.store.acts import Act, ActKind, record_act
from pricemesh.store.commands import SaveSnapshot
from pricemesh.store.replay import CountedReplay, Progress, Replay
from pricemesh.store.rewriting import REVISION_OF_YEARS
from pricemesh.store.sales_folding import fold_everything
from pricemesh.store.startup import StoredState, read_state
from pricemesh.store.state_writes import save_state
from pricemesh.store.tables import Serial, base, city, decisions, feedback, retracted, sales_retracted

_ROWS = decisions.outerjoin(feedback, feedback.c.decision == decisions.c.number)
_NEWEST_DECISION = select(sa.func.max(decisions.c.number)).scalar_subquery()
_NEWEST_FEEDBACK = select(sa.func.max(feedback.c.number)).scalar_subquery()
_NEWEST_VERSION = select(sa.func.max(feedback.c.version)).scalar_subquery()
_LEAVING = sa.Table(
    "leaving_decisions",
    sa.MetaData(),
    sa.Column("number", Serial, primary_key=True, autoincrement=False),
    prefixes=["TEMPORARY"],
)


class Age(NamedTuple):
    """What is old. A decision that can still get feedback never is."""

    made_before: float  # Unix seconds; at most the start of the oldest window that is open
    now: float
    # The city gives a default, or counts what waits: a decision without feedback stays until its window was
    # closed by the city itself.
    closes_windows: bool


class PrunePlan(NamedTuple):
    """What leaves."""

    version: int  # up to this one; 0 where no feedback has left yet
    decisions: int
    learned: int  # feedback
    retracted: int  # of the learned feedback
    unlearned: int  # feedback that came while learning was frozen
    first_made_at: float | None
    last_made_at: float | None
    old_left: int  # decisions that are old and stay

    @property
    def unanswered(self) -> int:
        return self.decisions - self.learned - self.unlearned

    @property
    def rows(self) -> int:
        return self.decisions + self.learned + self.unlearned


class PruneTransaction:
    """What a prune does in the one transaction that the caller opens and ends."""

    def __init__(self, connection: Connection, age: Age, runtime: Runtime) -> None:
        self._connection = connection
        self._age = age
        self._runtime = runtime

    def plan(self) -> PrunePlan:
        return plan_prune(self._connection, self._age)

    def replay(self, progress: Progress) -> Replay:
        """The rows and the base as they are now in this transaction."""
        return CountedReplay(self._connection, progress)

    def state(self) -> StoredState:
        return read_state(self._connection, self._runtime)

    def delete(self, plan: PrunePlan) -> None:
        """The sums of sales hold what leaves."""
        fold_everything(self._connection)
        delete_old_rows(self._connection, self._age, plan.version)
        detail = {"decisions": plan.decisions, "made_before": self._age.made_before}
        record_act(self._connection, Act(self._age.now, ActKind.PRUNE, detail=detail))

    def save(self, learned: SaveSnapshot, serving: SaveSnapshot) -> None:
        """What rows that left have taught; and the snapshot of a learner that has counted all rows, because
        an older one may have yet to count some that left."""
        save_state(self._connection, serving)
        if not learned.version:  # nothing was ever learned from rows that left
            return
        self._connection.execute(base.delete())
        self._connection.execute(
            insert(base).values(
                id=1, version=learned.version, tallies=learned.tallies, payload=learned.payload
            )
        )
        schema.require(self._connection, REVISION_OF_YEARS)


def plan_prune(connection: Connection, age: Age) -> PrunePlan:
    is_old = _is_old(connection, age)
    version = _last_version(connection, is_old)
    is_learned, is_answered = feedback.c.version.is_not(None), feedback.c.number.is_not(None)
    is_retracted = select(retracted.c.feedback).where(retracted.c.feedback == feedback.c.number).exists()
    query = (
        select(
            sa.func.count(),
            _count_if(is_learned),
            _count_if(is_learned & is_retracted),
            _count_if(is_answered & ~is_learned),
            sa.func.min(decisions.c.made_at),
            sa.func.max(decisions.c.made_at),
        )
        .select_from(_ROWS)
        .where(_leaves(age, is_old, version))
    )
    count, learned, retracted_count, unlearned, first, last = connection.execute(query).one()
    old = connection.scalar(select(sa.func.count()).select_from(decisions).where(is_old)) or 0
    return PrunePlan(version, count, learned, retracted_count, unlearned, first, last, old - count)


def _count_if(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.coalesce(sa.func.sum(sa.case((condition, 1), else_=0)), 0)


def _is_old(connection: Connection, age: Age) -> sa.ColumnElement[bool]:
    """Of a decision. A time in the future comes from a clock that was wrong then: that decision is as old as
    those after it. Otherwise it would keep all later rows for ever."""
    made_at, number = decisions.c.made_at, decisions.c.number
    last_old = connection.scalar(
        select(sa.func.max(number)).where(made_at < age.made_before, decisions.c.import_id.is_(None))
    )
    return (made_at < age.made_before) | ((made_at > age.now) & (number < (last_old or 0)))


def _last_version(connection: Connection, is_old: sa.ColumnElement[bool]) -> int:
    """The last version up to which all feedback leaves. Versions are not in the order of decisions, and a
    base can only hold the first ones."""
    pairs = feedback.join(decisions, feedback.c.decision == decisions.c.number)
    must_stay = (
        ~is_old
        | (feedback.c.version == _NEWEST_VERSION)
        | (feedback.c.number == _NEWEST_FEEDBACK)
        | (feedback.c.decision == _NEWEST_DECISION)
    )
    first = connection.scalar(
        select(feedback.c.version)
        .select_from(pairs)
        .where(feedback.c.version.is_not(None), must_stay)
        .order_by(feedback.c.version)
        .limit(1)
    )
    pruned: int = connection.scalar(select(base.c.version)) or 0
    return max(pruned, (first or 1) - 1)


def _leaves(age: Age, is_old: sa.ColumnElement[bool], version: int) -> sa.ColumnElement[bool]:
    """Of a decision beside its feedback: both leave together."""
    number, answer = decisions.c.number, feedback.c
    settled = select(city.c.settled_through).scalar_subquery()
    is_closed = number <= settled if age.closes_windows else sa.true()
    was_frozen = answer.number.is_not(None) & answer.version.is_(None)
    return (number < _NEWEST_DECISION) & (
        (answer.version <= version)
        | (was_frozen & is_old & (answer.number < _NEWEST_FEEDBACK))
        | (answer.number.is_(None) & (decisions.c.made_at < age.made_before) & is_closed)
    )


def delete_old_rows(connection: Connection, age: Age, version: int) -> None:
    """All that `plan_prune` counted up to this version."""
    leaving = select(decisions.c.number).select_from(_ROWS)
    _LEAVING.create(connection)
    query = leaving.where(_leaves(age, _is_old(connection, age), version))
    connection.execute(insert(_LEAVING).from_select(["number"], query))
    numbers = select(_LEAVING.c.number)
    answers = select(feedback.c.number).where(feedback.c.decision.in_(numbers))
    for table in (retracted, sales_retracted):
        connection.execute(table.delete().where(table.c.feedback.in_(answers)))
    connection.execute(feedback.delete().where(feedback.c.decision.in_(numbers)))
    connection.execute(decisions.delete().where(decisions.c.number.in_(numbers)))
    _LEAVING.drop(connection)
