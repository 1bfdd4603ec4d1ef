"""Sums of sales at one moment: the rollups, and the rows that they do not hold yet. So they always equal the
sums over rows, also right after a crash. In a snapshot that the caller opens and ends."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, select

from pricemesh.store.calendar import Calendar, Per
from pricemesh.store.pending import newest_position
from pricemesh.store.sales import SUM_COLUMNS, GroupKey, SalesProgress, SalesSums, total_of
from pricemesh.store.sales_folding import read_progress
from pricemesh.store.sales_queries import (
    newly_restored,
    newly_retracted,
    sums_of_decisions,
    sums_of_feedback,
    sums_of_numbers,
)
from pricemesh.store.tables import city, sales_days, sales_quarters

MAX_TAIL_ROWS = 50_000  # that a read adds up itself: with more the sums are incomplete
ALL_PRICES = 0.0  # in place of an arm's price, where arms are added up


class SalesRead(NamedTuple):
    groups: dict[GroupKey, SalesSums]  # by the starts of the calendar
    is_complete: bool  # False while rows of an older database are being counted


def read_sales(
    connection: Connection, time_zone: str, per: Per, since: int, until: int, *, by_arm: bool
) -> SalesRead:
    """Of decisions made from `since` on and before `until`, each the start of an hour, day or week."""
    progress = read_progress(connection)
    tail, is_complete = _tail(connection, progress)
    is_by_day = per is not Per.HOUR and progress.time_zone == time_zone
    table = sales_days if is_by_day else sales_quarters
    columns = [sa.func.sum(table.c[name]) for name in SUM_COLUMNS] + [sa.func.min(table.c.lowest_price)]
    keys = [table.c.start, table.c.arm_price] if by_arm else [table.c.start]
    query = select(*keys, *columns).where(table.c.start >= since, table.c.start < until).group_by(*keys)
    calendar = Calendar(time_zone, per)
    stored = (
        ((calendar.start_of(row[0]), row[1] if by_arm else ALL_PRICES), _sums(row[len(keys) :]))
        for row in connection.execute(query)
    )
    unstored = (
        ((calendar.start_of(start), price if by_arm else ALL_PRICES), sums)
        for (start, price), sums in tail.items()
        if since <= start < until
    )
    return SalesRead(total_of(stored, unstored), is_complete)


def read_lowest_price(connection: Connection, since: float) -> tuple[float | None, bool]:
    """Of decisions since the start of the day in which this moment is; and whether all were looked at."""
    progress = read_progress(connection)
    tail, is_complete = _tail(connection, progress)
    start = Calendar(progress.time_zone, Per.DAY).start_of(since)
    lowest = connection.scalar(
        select(sa.func.min(sales_days.c.lowest_price)).where(sales_days.c.start >= start)
    )
    prices = [sums.lowest_price for (at, _), sums in tail.items() if at >= start]
    found = [price for price in (lowest, *prices) if price is not None]
    return min(found, default=None), is_complete


def read_arm_counts(connection: Connection) -> dict[float, int]:
    """Decisions ever made, by the price of their arm."""
    tail, _ = _tail(connection, read_progress(connection))
    query = select(sales_days.c.arm_price, sa.func.sum(sales_days.c.decisions)).group_by(
        sales_days.c.arm_price
    )
    counts = {price: int(count) for price, count in connection.execute(query)}
    for (_, price), sums in tail.items():
        counts[price] = counts.get(price, 0) + sums.decisions
    return counts


def _tail(connection: Connection, progress: SalesProgress) -> tuple[dict[GroupKey, SalesSums], bool]:
    """Of the rows that the rollups do not hold, by quarter of an hour; nothing and False where they are
    many."""
    newest = newest_position(connection)
    rows = newest.decision - progress.decision + newest.feedback - progress.feedback
    gone: list[int] = []
    back: list[int] = []
    if (connection.scalar(select(city.c.rewrites)) or 0) != progress.rewrites:
        gone, back = (read(connection, MAX_TAIL_ROWS + 1) for read in (newly_retracted, newly_restored))
    if rows + len(gone) + len(back) > MAX_TAIL_ROWS:
        return {}, False
    parts: Iterable[Iterable[tuple[GroupKey, SalesSums]]] = (
        sums_of_decisions(connection, progress.decision, newest.decision),
        sums_of_feedback(connection, progress.feedback, newest.feedback),
        ((key, sums.of_feedback_taken_back()) for key, sums in sums_of_numbers(connection, gone)),
        ((key, sums.of_feedback_restored()) for key, sums in sums_of_numbers(connection, back)),
    )
    return total_of(*parts), True


def _sums(values: Sequence[Any]) -> SalesSums:
    """Postgres adds integers up as decimals."""
    decisions, price_total, answered, defaults, bought, sold, revenue, reward, retracted, lowest = values
    return SalesSums(
        int(decisions),
        price_total,
        int(answered),
        int(defaults),
        int(bought),
        sold,
        revenue,
        reward,
        int(retracted),
        lowest,
    )
