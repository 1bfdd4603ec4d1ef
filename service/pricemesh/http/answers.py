"""Makes response bodies from stored rows and results of feedback."""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict

from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.settings import Settings
from pricemesh.core.decision import IMPORTED, NO_ARM, UNKNOWN_PROPENSITY, Decision, DecisionCodec, Vectors
from pricemesh.core.features import Feature, FeatureSpace
from pricemesh.core.policies import Shape
from pricemesh.core.terms import Terms
from pricemesh.errors import ConflictingReward, PricemeshError, TooLate, UnknownDecision
from pricemesh.http.problems import STATUSES
from pricemesh.store.commands import Feedback, FeedbackResult, FeedbackStatus, StoredDecision


class DecisionBody(msgspec.Struct, gc=False):
    """As `schemas.Decision`; `limited_by` is JSON already."""

    decision_id: str
    city: str
    arm: int | None
    price: float
    estimate: float | None
    radius: float | None
    policy: str
    limited_by: msgspec.Raw
    propensity: float | None


class DecisionBodies(msgspec.Struct, gc=False):
    decisions: list[DecisionBody]


class RowLayout(NamedTuple):
    codec: DecisionCodec
    space: FeatureSpace
    prices: tuple[float, ...]

    @classmethod
    def of(cls, terms: Terms) -> "RowLayout":
        shared, local = (tuple(map(Feature, names)) for names in (terms.shared, terms.local))
        shape = Shape(len(terms.prices), len(shared), len(local))
        return cls(DecisionCodec(shape), FeatureSpace(shared, local), terms.prices)


RESOLUTION = 1e-12  # of a chance: closer to 0 and 1 rounding determines its logit
_LEARNED = FeedbackStatus.LEARNED  # a name of its own: Python 3.11 finds a member of an enumeration slowly


def feedback_fault(decision_id: str, result: FeedbackResult) -> PricemeshError | None:
    if result.status is _LEARNED:  # as most are
        return None
    match result.status:
        case FeedbackStatus.UNKNOWN:
            return UnknownDecision(f"there is no decision {decision_id!r}")
        case FeedbackStatus.OTHER_REWARD:
            stored = f"the reward {result.reward}" if result.sold is None else f"sold {result.sold:g}"
            why = ", which was retracted" if result.is_retracted else ""
            return ConflictingReward(f"decision {decision_id!r} has {stored} already{why}")
        case FeedbackStatus.TOO_LATE:
            return TooLate(f"the reward window of decision {decision_id!r} has closed")
        case _:
            return None


def feedback_outcome(decision_id: str, result: FeedbackResult) -> dict[str, Any]:
    fault = feedback_fault(decision_id, result)
    return {
        "decision_id": decision_id,
        "status": 200 if fault is None else STATUSES[type(fault)],
        "learned": fault is None and result.version is not None and not result.is_retracted,
        "version": result.version if fault is None else None,
        "detail": None if fault is None else str(fault),
    }


class Answers:
    """Rows as the bodies that callers get, in the terms they were made under."""

    def __init__(self, city: str, live: LiveLearner) -> None:
        self._city = city
        self._live = live
        self._layouts: dict[int | None, RowLayout] = {}  # by terms

    def decision(self, row: Decision) -> DecisionBody:
        id_, _, arm, price, limited_by, vectors, propensity, _, occasion = row
        if occasion.policy == IMPORTED:
            return self._imported(row)
        layout = self._layouts.get(occasion.terms) or self._layout(occasion.terms)
        estimate, radius = layout.codec.chosen(arm, vectors)
        rules = msgspec.Raw(limited_by.encode())
        policy = occasion.policy
        return DecisionBody(id_, self._city, arm, price, estimate, radius, policy, rules, propensity)

    def _imported(self, row: Decision) -> DecisionBody:
        """Nothing was estimated, and the price may be no arm's."""
        arm = None if row.arm == NO_ARM else row.arm
        propensity = None if row.propensity == UNKNOWN_PROPENSITY else row.propensity
        rules = msgspec.Raw(row.limited_by.encode())
        return DecisionBody(row.id, self._city, arm, row.price, None, None, IMPORTED, rules, propensity)

    def decisions(self, rows: Sequence[Decision]) -> DecisionBodies:
        return DecisionBodies([self.decision(row) for row in rows])

    def record(self, stored: StoredDecision) -> dict[str, Any]:
        row = stored.decision
        layout = self._layout(row.occasion.terms)
        vectors = layout.codec.unpack(row.vectors)
        is_imported = row.occasion.policy == IMPORTED
        estimates, radii = vectors.estimates.tolist(), vectors.radii.tolist()
        if is_imported:
            estimates = radii = [None] * len(layout.prices)
        short = self.decision(row)
        return asdict(short) | {
            "limited_by": json.loads(row.limited_by),
            "number": stored.number,
            "imported": is_imported,
            "chance": row.chance,
            "made_at": row.occasion.made_at,
            "subject": row.subject,
            "context": layout.space.named(vectors.context),
            "arms": [
                {"arm": arm, "price": price, "estimate": estimates[arm], "radius": radii[arm]}
                for arm, price in enumerate(layout.prices)
            ],
            "learner_version": row.occasion.learner_version,
            "feedback": _feedback_record(stored.feedback) if stored.feedback else None,
            "scale": "money" if row.chance is None else "logit",
            "contributions": [] if is_imported else self._contributions(row, short, vectors),
        }

    def _layout(self, terms: int | None) -> RowLayout:
        """Of the rows that were made under these terms."""
        if terms not in self._layouts:
            self._layouts[terms] = RowLayout.of(self._live.terms_by_id[terms or 1])
        return self._layouts[terms]

    def _contributions(self, row: Decision, short: DecisionBody, vectors: Vectors) -> list[dict[str, Any]]:
        """Each peer's part of the chosen arm's estimate and radius, or of their logits; what is left is the
        city's own."""
        peers = row.occasion.told_by.split(",") if row.occasion.told_by else []
        estimates, radii = vectors.peer_estimates.tolist(), vectors.peer_radii.tolist()
        estimate, radius = short.estimate, short.radius
        assert estimate is not None
        assert radius is not None
        if row.chance is not None:
            estimate, radius = _logits(row.chance, estimate, radius)
        own = {
            "origin": self._city,
            "estimate": estimate - sum(estimates),
            "radius": None if radius is None else radius - sum(radii),
        }
        return [
            own,
            *(
                {"origin": origin, "estimate": estimate, "radius": radius}
                for origin, estimate, radius in zip(peers, estimates, radii, strict=True)
            ),
        ]


def _feedback_record(feedback: Feedback) -> dict[str, Any]:
    note = feedback.retracted
    return feedback._asdict() | {"retracted": None if note is None else note._asdict()}


def _logits(chance: float, estimate: float, radius: float) -> tuple[float, float | None]:
    """The logit of a chance, and its radius. The estimate is the margin times the chance; the radius is the
    margin times the step to the upper bound, by which the arm was chosen. None where rounding hides it."""
    bound = chance * (1.0 + radius / estimate) if estimate else chance
    logit = _logit(chance)
    if not estimate or not all(RESOLUTION < each < 1.0 - RESOLUTION for each in (chance, bound)):
        return logit, None
    return logit, abs(_logit(bound) - logit)


def _logit(chance: float) -> float:
    """Of a chance at least RESOLUTION away from 0 and 1."""
    inside = min(max(chance, RESOLUTION), 1.0 - RESOLUTION)
    return math.log(inside / (1.0 - inside))


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
