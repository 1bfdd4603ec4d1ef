"""What is kept, as the bodies that callers get."""

import json
import struct
from typing import Any

import numpy as np

from service.core.arrays import Array
from service.errors import OtherReward, PricemeshError, TooLate, UnknownDecision
from service.problems import STATUSES
from service.settings import Settings
from service.store.operations import Decided, FeedbackResult, FeedbackStatus, Kept

_NUMBER = struct.Struct("<d")


def feedback_fault(decision_id: str, result: FeedbackResult) -> PricemeshError | None:
    match result.status:
        case FeedbackStatus.UNKNOWN:
            return UnknownDecision(f"there is no decision {decision_id!r}")
        case FeedbackStatus.OTHER_REWARD:
            return OtherReward(f"decision {decision_id!r} has the reward {result.kept_reward} already")
        case FeedbackStatus.TOO_LATE:
            return TooLate(f"the reward window of decision {decision_id!r} has closed")
        case _:
            return None


def feedback_outcome(decision_id: str, result: FeedbackResult) -> dict[str, Any]:
    fault = feedback_fault(decision_id, result)
    return {
        "decision_id": decision_id,
        "status": 200 if fault is None else STATUSES[type(fault)],
        "learned": fault is None and result.version is not None,
        "version": result.version if fault is None else None,
        "detail": None if fault is None else str(fault),
    }


class Answers:
    """Rows as the bodies that callers get."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._space = settings.features.space
        self._dim, self._arms = settings.shape.dim, settings.shape.arms

    def decision(self, row: Decided) -> dict[str, Any]:
        arm = row.arm
        return {
            "decision_id": row.id,
            "city": self._settings.city,
            "arm": arm,
            "price": row.price,
            "estimate": _NUMBER.unpack_from(row.vectors, 8 * (self._dim + arm))[0],
            "radius": _NUMBER.unpack_from(row.vectors, 8 * (self._dim + self._arms + arm))[0],
            "policy": row.policy,
            "limited_by": [] if row.limited_by == "[]" else json.loads(row.limited_by),
        }

    def record(self, kept: Kept) -> dict[str, Any]:
        row = kept.decision
        vectors = np.frombuffer(row.vectors)
        ends = np.cumsum((self._dim, self._arms, self._arms))
        context, estimates, radii, parts = np.split(vectors, ends)
        short = self.decision(row)
        return short | {
            "number": kept.number,
            "made_at": row.made_at,
            "subject": row.subject,
            "context": self._space.named(context),
            "arms": [
                {"arm": arm, "price": price, "estimate": float(estimates[arm]), "radius": float(radii[arm])}
                for arm, price in enumerate(self._settings.arms.prices)
            ],
            "learner_version": row.learner_version,
            "feedback": kept.feedback._asdict() if kept.feedback else None,
            "contributions": self._contributions(row, short, parts),
        }

    def _contributions(self, row: Decided, short: dict[str, Any], parts: Array) -> list[dict[str, Any]]:
        """Each peer's part of the chosen arm's estimate and radius; what is left is the city's own."""
        peers = row.told_by.split(",") if row.told_by else []
        estimates, radii = parts.reshape(2, -1).tolist() if peers else ([], [])
        own = {
            "origin": self._settings.city,
            "estimate": short["estimate"] - sum(estimates),
            "radius": short["radius"] - sum(radii),
        }
        return [
            own,
            *(
                {"origin": origin, "estimate": estimate, "radius": radius}
                for origin, estimate, radius in zip(peers, estimates, radii, strict=True)
            ),
        ]


def example_request(settings: Settings) -> dict[str, Any]:
    """A request that this city accepts as it stands."""
    space = settings.features.space

    def middle(low: float, high: float) -> float:
        return (low + high) / 2 if high - low < 1e4 else min(max(0.5, low), high)

    return {
        "shared": {feature.name: middle(feature.min, feature.max) for feature in space.shared},
        "local": {feature.name: middle(feature.min, feature.max) for feature in space.local},
        "decision_id": "order-1",
    }
