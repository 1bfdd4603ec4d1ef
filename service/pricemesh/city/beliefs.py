"""What a city believes of one context: every arm pooled and by own data alone. Nothing is decided."""

import json
from collections.abc import Mapping
from typing import Any

from pricemesh.city.pricing import Pricing
from pricemesh.core.choice import probabilities


def beliefs_of(pricing: Pricing, shared: Mapping[str, float], local: Mapping[str, float]) -> dict[str, Any]:
    settings, learner, limits = pricing.settings, pricing.learner, pricing.limits
    x = settings.features.space.vector(shared, local)
    score, alone = learner.score(x), learner.score_alone(x)
    p = probabilities(score, learner.sampling, limits.allowed)
    ruled_out = {arm: limit["rule"] for limit in json.loads(limits.rules) for arm in limit["arms"]}
    return {
        "policy": settings.policy.name,
        "version": pricing.version,
        "chosen": int(p.argmax()),
        "chosen_alone": int(probabilities(alone, learner.sampling, limits.allowed).argmax()),
        "separable": not learner.mixes_peers,
        "told_by": list(learner.attribution.origins),
        "arms": [
            {
                "arm": arm,
                "price": price,
                "estimate": float(score.estimate[arm]),
                "radius": float(score.radius[arm]),
                "own": {"estimate": float(alone.estimate[arm]), "radius": float(alone.radius[arm])},
                "propensity": float(p[arm]),
                "ruled_out_by": ruled_out.get(arm),
            }
            for arm, price in enumerate(settings.arms.prices)
        ],
    }
