"""Rows of decisions and feedback, as the audit reads them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from pricemesh.city.settings import Settings
from pricemesh.lab.torture.ledger import Violated


class DecisionRow(NamedTuple):
    number: int
    id: str
    made_at: float
    subject: str | None
    arm: int
    price: float
    vectors: bytes
    limited_by: str
    policy: str
    learner_version: int
    told_by: str
    propensity: float
    chance: float | None
    terms: int | None


class FeedbackRow(NamedTuple):
    number: int
    decision: int
    reward: float
    received_at: float
    sold: float | None
    by_default: int
    version: int | None


def _query(table: str, row: type[DecisionRow | FeedbackRow]) -> str:
    return f"SELECT {', '.join(row._fields)} FROM {table} WHERE number > ? ORDER BY number"


DECISIONS_QUERY = _query("decisions", DecisionRow)
FEEDBACK_QUERY = _query("feedback", FeedbackRow)


def difference(before: Collection[Any], stored: list[Any]) -> str:
    for row, other in zip(before, stored, strict=False):
        if tuple(row) != other:
            return f"{row} became {other}"
    return f"{len(before)} rows became {len(stored)}"


def check_money(
    settings: Settings, row: FeedbackRow, decision: DecisionRow, features: Mapping[str, float]
) -> None:
    """In a city of purchases a reward is the margin times the units sold. `features` are those of the
    decision, by their present names."""
    reward, expected = settings.reward, row.reward
    if reward.is_purchase and row.sold is not None:
        cost = reward.cost if isinstance(reward.cost, float) else features[reward.cost]
        expected = (decision.price - cost) * row.sold
    if (row.sold is not None) != reward.is_purchase or row.reward != expected:
        seen = f"{settings.city}: {row} for {decision.id} at {decision.price}"
        raise Violated("a reward is the money that a sale brought", seen)


def names_of(origins: Iterable[str]) -> dict[str, bool]:
    return dict.fromkeys(origins, True)


def times_of(controls: dict[str, dict[str, Any]]) -> dict[str, float]:
    """When each control was put in force."""
    return {name: control["since"] for name, control in controls.items()}
