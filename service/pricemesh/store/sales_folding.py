"""Brings the rollups of sales up to date with the rows: by position, so that every row is counted once,
whatever happens between two steps.

A step is read beside the writer, because rows never change, and added by the writer in one transaction with
the new position. Retractions are subtracted by comparing `retracted` with what was subtracted before: so it
does not matter which version of pricemesh, or which replica, has retracted.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Table, insert, select

from pricemesh.store.calendar import Calendar, Per
from pricemesh.store.pending import newest_position
from pricemesh.store.sales import (
    SUM_COLUMNS,
    FoldRetractions,
    FoldSales,
    GroupKey,
    Groups,
    SalesProgress,
    SalesSums,
    total_of,
)
from pricemesh.store.sales_queries import (
    newly_restored,
    newly_retracted,
    sums_of_decisions,
    sums_of_feedback,
    sums_of_numbers,
)
from pricemesh.store.tables import (
    city,
    retracted,
    sales_days,
    sales_progress,
    sales_quarters,
    sales_retracted,
)

ROWS_PER_FOLD = 20_000  # of decisions, and of feedback
RETRACTIONS_PER_COMMIT = 2_000
RETRACTIONS_PER_READ = 20_000
GROUPS_PER_READ = 50_000

_KEYS = ("start", "arm_price")
_COLUMNS = (*_KEYS, *SUM_COLUMNS, "lowest_price")


def read_progress(connection: Connection) -> SalesProgress:
    columns = (sales_progress.c[name] for name in SalesProgress._fields)
    return SalesProgress(*connection.execute(select(*columns)).one())


# What the next step is, read beside the writer


def next_fold(connection: Connection, max_rows: int = ROWS_PER_FOLD) -> FoldSales | None:
    """Of the oldest rows that the rollups do not hold; None where they hold all."""
    before, newest = read_progress(connection), newest_position(connection)
    decision = min(newest.decision, before.decision + max_rows)
    feedback = min(newest.feedback, before.feedback + max_rows)
    after = before._replace(decision=max(decision, before.decision), feedback=max(feedback, before.feedback))
    if after == before:
        return None
    made = sums_of_decisions(connection, before.decision, after.decision)
    answered = sums_of_feedback(connection, before.feedback, after.feedback)
    return FoldSales(before, after, total_of(made, answered))


def next_retractions(connection: Connection, max_rows: int = RETRACTIONS_PER_READ) -> list[FoldRetractions]:
    """What was retracted or restored since; nothing where the past was not rewritten."""
    rewrites = connection.scalar(select(city.c.rewrites)) or 0
    if rewrites == read_progress(connection).rewrites:
        return []
    numbers = newly_retracted(connection, max_rows)
    are_all = len(numbers) < max_rows
    if are_all:
        numbers += newly_restored(connection, max_rows - len(numbers))
        are_all = len(numbers) < max_rows
    starts = range(0, max(1, len(numbers)), RETRACTIONS_PER_COMMIT)
    steps = [FoldRetractions(numbers[start : start + RETRACTIONS_PER_COMMIT], None) for start in starts]
    if are_all:
        steps[-1] = FoldRetractions(steps[-1].numbers, rewrites)
    return steps


# What the writer does


def fold_sales(connection: Connection, command: FoldSales) -> bool:
    before, after = command.before, command.after
    is_there = [
        sales_progress.c[name] == getattr(before, name) for name in ("decision", "feedback", "time_zone")
    ]
    step = sales_progress.update().where(*is_there).values(decision=after.decision, feedback=after.feedback)
    if not connection.execute(step).rowcount:
        return False
    _add(connection, command.groups, before.time_zone)
    return True


def fold_retractions(connection: Connection, command: FoldRetractions) -> bool:
    """Only what is still to be done now counts, not what was when the numbers were read."""
    zone = connection.scalar(select(sales_progress.c.time_zone).with_for_update())
    numbers = list(command.numbers)
    is_retracted, is_subtracted = (
        set(connection.scalars(select(table.c.feedback).where(table.c.feedback.in_(numbers))))
        for table in (retracted, sales_retracted)
    )
    gone, back = sorted(is_retracted - is_subtracted), sorted(is_subtracted - is_retracted)
    groups = total_of(
        ((key, sums.of_feedback_taken_back()) for key, sums in sums_of_numbers(connection, gone)),
        ((key, sums.of_feedback_restored()) for key, sums in sums_of_numbers(connection, back)),
    )
    _add(connection, groups, str(zone))
    if gone:
        connection.execute(insert(sales_retracted), [{"feedback": number} for number in gone])
    if back:
        connection.execute(sales_retracted.delete().where(sales_retracted.c.feedback.in_(back)))
    if command.rewrites is not None:
        connection.execute(sales_progress.update().values(rewrites=command.rewrites))
    return True


def fold_everything(connection: Connection) -> None:
    """In one transaction: before rows leave."""
    while (fold := next_fold(connection)) is not None:
        fold_sales(connection, fold)
    while steps := next_retractions(connection):
        for step in steps:
            fold_retractions(connection, step)


def use_time_zone(connection: Connection, time_zone: str | None) -> None:
    """Let the days be those of this zone, from the quarters of an hour. A start does so, after a change of
    the configuration; None changes nothing."""
    if (
        time_zone is None
        or connection.scalar(select(sales_progress.c.time_zone).with_for_update()) == time_zone
    ):
        return
    connection.execute(sales_progress.update().values(time_zone=time_zone))
    connection.execute(sales_days.delete())
    calendar, last = Calendar(time_zone, Per.DAY), (-1, 0.0)
    start, arm_price = sales_quarters.c.start, sales_quarters.c.arm_price
    query = select(*(sales_quarters.c[name] for name in _COLUMNS)).order_by(start, arm_price)
    while True:
        after = (start > last[0]) | ((start == last[0]) & (arm_price > last[1]))
        rows = connection.execute(query.where(after).limit(GROUPS_PER_READ)).all()
        if not rows:
            return
        days = total_of(((calendar.start_of(row[0]), row[1]), SalesSums(*row[2:])) for row in rows)
        _upsert(connection, sales_days, days.items())
        last = rows[-1][0], rows[-1][1]


def _add(connection: Connection, groups: Groups, time_zone: str) -> None:
    calendar = Calendar(time_zone, Per.DAY)
    days = total_of(((calendar.start_of(start), price), sums) for (start, price), sums in groups.items())
    _upsert(connection, sales_quarters, groups.items())
    _upsert(connection, sales_days, days.items())


def _upsert(connection: Connection, table: Table, groups: Iterable[tuple[GroupKey, SalesSums]]) -> None:
    rows = [dict(zip(_COLUMNS, (*key, *sums), strict=True)) for key, sums in sorted(groups)]
    if rows:
        connection.execute(_STATEMENTS[table.name], rows)


def _statement(name: str) -> sa.TextClause:
    sums = ", ".join(f"{column} = {name}.{column} + excluded.{column}" for column in SUM_COLUMNS)
    lower = f"{name}.lowest_price IS NULL OR excluded.lowest_price < {name}.lowest_price"
    lowest = f"CASE WHEN {lower} THEN excluded.lowest_price ELSE {name}.lowest_price END"
    values = ", ".join(f":{column}" for column in _COLUMNS)
    return sa.text(
        f"INSERT INTO {name} ({', '.join(_COLUMNS)}) VALUES ({values}) "
        f"ON CONFLICT (start, arm_price) DO UPDATE SET {sums}, lowest_price = {lowest}"
    )


_STATEMENTS: Mapping[str, Any] = {
    table.name: _statement(table.name) for table in (sales_quarters, sales_days)
}
