"""What a city believes of one context: every arm pooled and by own data alone, and, where the policy has one,
its demand curve. Nothing is decided."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from pricemesh.city.pricing import Pricing
from pricemesh.core.arrays import Array
from pricemesh.core.choice import probabilities
from pricemesh.core.demand.prediction import Prediction
from pricemesh.core.ladder import Ladder

CURVE_PRICES = 41  # evenly spaced over the ladder's range; the arms' own prices come on top
CHANCES = Prediction._fields[:3]


def beliefs_of(pricing: Pricing, shared: Mapping[str, float], local: Mapping[str, float]) -> dict[str, Any]:
    settings, learner, limits = pricing.settings, pricing.learner, pricing.limits
    x = settings.features.space.vector(shared, local)
    score, alone = learner.score(x), learner.score_alone(x)
    p = probabilities(score, learner.sampling, limits.allowed)
    ruled_out = {arm: limit["rule"] for limit in json.loads(limits.rules) for arm in limit["arms"]}
    curve = _curve(pricing, x)
    points = {point["price"]: point for point in curve or ()}
    arms = []
    for arm, price in enumerate(settings.arms.prices):
        point = points.get(price, {})
        own = {"estimate": float(alone.estimate[arm]), "radius": float(alone.radius[arm])}
        arms.append(
            {
                "arm": arm,
                "price": price,
                "estimate": float(score.estimate[arm]),
                "radius": float(score.radius[arm]),
                **_chances(point),
                "own": own | _chances(point.get("own", {})),
                "propensity": float(p[arm]),
                "ruled_out_by": ruled_out.get(arm),
            }
        )
    return {
        "policy": settings.policy.name,
        "version": pricing.version,
        "chosen": int(p.argmax()),
        "chosen_alone": int(probabilities(alone, learner.sampling, limits.allowed).argmax()),
        "separable": not learner.mixes_peers,
        "told_by": list(learner.attribution.origins),
        "arms": arms,
        "curve": curve,
    }


def _curve(pricing: Pricing, x: Array) -> list[dict[str, Any]] | None:
    """The demand curve, a point for each price in ascending order."""
    ladder = pricing.settings.shape.ladder
    if ladder is None:
        return None
    prices = curve_prices(ladder)
    predictions = pricing.learner.curve_at(x, prices)
    if predictions is None:
        return None
    pooled, own = (_points(prediction) for prediction in predictions)
    return [
        {"price": price, **point, "own": alone}
        for price, point, alone in zip(prices.tolist(), pooled, own, strict=True)
    ]


def curve_prices(ladder: Ladder) -> Array:
    """CURVE_PRICES over the range and every arm's own price, ascending, none twice."""
    even = np.linspace(ladder.low, ladder.high, CURVE_PRICES)
    distance = np.abs(even[:, None] - ladder.prices).min(axis=1)
    between = even[distance > 1e-9 * (ladder.high - ladder.low)]
    return np.union1d(between, ladder.prices)


def _chances(point: dict[str, Any]) -> dict[str, Any]:
    """The chances of a point of the curve; None where there is no curve."""
    return {name: point.get(name) for name in CHANCES}


def _points(prediction: Prediction) -> list[dict[str, float]]:
    columns = (column.tolist() for column in prediction)
    return [dict(zip(Prediction._fields, values, strict=True)) for values in zip(*columns, strict=True)]
