"""Rows of decisions and feedback, as the audit reads them."""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from pricemesh.city.settings import Settings
from pricemesh.core.decision import DecisionCodec
from pricemesh.lab.torture.ledger import Violated

DECISIONS_QUERY = (
    "SELECT number, id, subject, arm, price, limited_by, vectors, propensity, chance "
    "FROM decisions WHERE number > ? ORDER BY number"
)
FEEDBACK_QUERY = (
    "SELECT number, decision, reward, sold, by_default, version "
    "FROM feedback WHERE number > ? ORDER BY number"
)


class DecisionRow(NamedTuple):
    number: int
    id: str
    subject: str | None
    arm: int
    price: float
    limited_by: str
    vectors: bytes
    propensity: float
    chance: float | None


class FeedbackRow(NamedTuple):
    number: int
    decision: int
    reward: float
    sold: float | None
    by_default: int
    version: int | None


def difference(before: Collection[Any], stored: list[Any]) -> str:
    for row, other in zip(before, stored, strict=False):
        if tuple(row) != other:
            return f"{row} became {other}"
    return f"{len(before)} rows became {len(stored)}"


def check_money(settings: Settings, row: FeedbackRow, decision: DecisionRow) -> None:
    """In a city of purchases a reward is the margin times the units sold."""
    reward, expected = settings.reward, row.reward
    if reward.is_purchase and row.sold is not None:
        named = settings.features.space.named(DecisionCodec(settings.shape).context(decision.vectors))
        cost = reward.cost if isinstance(reward.cost, float) else named["local"][reward.cost]
        expected = (decision.price - cost) * row.sold
    if (row.sold is not None) != reward.is_purchase or row.reward != expected:
        seen = f"{settings.city}: {row} for {decision.id} at {decision.price}"
        raise Violated("a reward is the money that a sale brought", seen)


def names_of(origins: Iterable[str]) -> dict[str, bool]:
    return dict.fromkeys(origins, True)


def times_of(controls: dict[str, dict[str, Any]]) -> dict[str, float]:
    """When each control was put in force."""
    return {name: control["since"] for name, control in controls.items()}
