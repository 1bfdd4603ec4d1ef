"""Sums over rows of decisions and feedback, grouped by quarter of an hour and price of the arm. In a
transaction that the caller opens and ends."""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, select

from pricemesh.store.sales import NO_ARM_PRICE, QUARTER_SECONDS, GroupKey, SalesSums
from pricemesh.store.tables import decisions, feedback, retracted, sales_retracted

LAST_START = 253_370_764_800  # the year 9999: a clock or a file may say any time
NUMBERS_PER_STATEMENT = 1000

_ANSWERS = feedback.join(decisions, feedback.c.decision == decisions.c.number)
_SOLD = sa.func.coalesce(feedback.c.sold, 0.0)
_FEEDBACK_SUMS = (
    sa.func.sum(sa.case((feedback.c.by_default, 0), else_=1)),
    sa.func.sum(sa.case((feedback.c.by_default, 1), else_=0)),
    sa.func.sum(sa.case((_SOLD > 0, 1), else_=0)),
    sa.func.sum(_SOLD),
    sa.func.sum(decisions.c.price * _SOLD),
    sa.func.sum(feedback.c.reward),
)

KeyedSums = tuple[GroupKey, SalesSums]


def sums_of_decisions(connection: Connection, after: int, through: int) -> Iterator[KeyedSums]:
    """Decisions after a number, through another."""
    price = decisions.c.price
    query = _grouped(connection, sa.func.count(), sa.func.sum(price), sa.func.min(price))
    number = decisions.c.number
    for start, arm_price, count, total, lowest in connection.execute(
        query.select_from(decisions).where(number > after, number <= through)
    ):
        yield (int(start), float(arm_price)), SalesSums(count, total, lowest_price=lowest)


def sums_of_feedback(connection: Connection, after: int, through: int) -> Iterator[KeyedSums]:
    """Feedback after a number, through another, whether it is retracted or not."""
    number = feedback.c.number
    return _sums_of_answers(connection, (number > after) & (number <= through))


def sums_of_numbers(connection: Connection, numbers: Sequence[int]) -> Iterator[KeyedSums]:
    """Of the feedback with these numbers, as far as it is there."""
    for start in range(0, len(numbers), NUMBERS_PER_STATEMENT):
        some = feedback.c.number.in_(numbers[start : start + NUMBERS_PER_STATEMENT])
        yield from _sums_of_answers(connection, some)


def _sums_of_answers(connection: Connection, condition: sa.ColumnElement[bool]) -> Iterator[KeyedSums]:
    query = _grouped(connection, *_FEEDBACK_SUMS).select_from(_ANSWERS).where(condition)
    for start, arm_price, *values in connection.execute(query):
        answered, defaults, bought, *amounts = values
        yield (
            (int(start), float(arm_price)),
            SalesSums(0, 0.0, int(answered), int(defaults), int(bought), *amounts),
        )


def newly_retracted(connection: Connection, limit: int) -> list[int]:
    """Numbers of feedback that is retracted, and still in the rollups."""
    number = retracted.c.feedback
    is_subtracted = select(sales_retracted.c.feedback).where(sales_retracted.c.feedback == number).exists()
    query = select(number).where(~is_subtracted).distinct().order_by(number).limit(limit)
    return list(connection.scalars(query))


def newly_restored(connection: Connection, limit: int) -> list[int]:
    """Numbers of feedback that is not in the rollups, and not retracted any more."""
    number = sales_retracted.c.feedback
    is_retracted = select(retracted.c.feedback).where(retracted.c.feedback == number).exists()
    query = select(number).where(~is_retracted).order_by(number).limit(limit)
    return list(connection.scalars(query))


def _grouped(connection: Connection, *sums: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Postgres rounds when it makes an integer of a number, SQLite cuts."""
    made_at = decisions.c.made_at
    possible = sa.case((made_at < 0, 0.0), (made_at > LAST_START, float(LAST_START)), else_=made_at)
    places = possible / QUARTER_SECONDS
    whole = places if connection.dialect.name == "sqlite" else sa.func.floor(places)
    start = sa.cast(whole, sa.BigInteger) * QUARTER_SECONDS
    arm_price = sa.case((decisions.c.arm < 0, NO_ARM_PRICE), else_=decisions.c.price)
    keys = start.label("start"), arm_price.label("arm_price")
    return select(*keys, *sums).group_by(sa.text("1"), sa.text("2"))
