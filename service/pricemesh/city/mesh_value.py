"""What the mesh contributes, by this city's own estimates: the prices that it would choose now for the
contexts of its newest decisions, against those that it would choose by its own data alone. Both are valued by
the estimates with the peers, so this is what the learner believes and not a measurement."""

import asyncio
from typing import Any

import numpy as np

from pricemesh.city.pricing import Pricing
from pricemesh.core.arrays import Array
from pricemesh.core.choice import probabilities
from pricemesh.core.decision import DecisionCodec
from pricemesh.store.recent import Choice, recent_choices

CONTEXTS_AT_ONCE = 100  # between two turns of the event loop, which also prices


async def mesh_value(pricing: Pricing) -> dict[str, Any]:
    learner, terms = pricing.learner, pricing.live.terms
    choices: list[Choice] = await pricing.read_short(
        pricing.database.reader.read, lambda connection: recent_choices(connection, terms)
    )
    codec = DecisionCodec(pricing.settings.shape)
    together = alone = others = 0.0
    for start in range(0, len(choices), CONTEXTS_AT_ONCE):
        some = choices[start : start + CONTEXTS_AT_ONCE]
        parts = _value(pricing, codec.contexts([choice.vectors for choice in some]))
        together, alone, others = together + parts[0], alone + parts[1], others + parts[2]
        await asyncio.sleep(0)
    count, is_separable = len(choices), not learner.mixes_peers
    known = bool(count) and is_separable
    gain = (together - alone) / count if known else None
    return {
        "decisions": count,
        "peers": list(learner.attribution.origins),
        "separable": is_separable,
        "together": together / count if known else None,
        "alone": alone / count if known else None,
        "gain": gain,
        "gain_share": gain * count / alone if gain is not None and alone > 0 else None,
        "other_choices": others / count if known else None,
        "currency": pricing.settings.display.currency,
    }


def _value(pricing: Pricing, contexts: Array) -> tuple[float, float, float]:
    """Expected rewards of contexts (m, d) with the peers and alone, and in how many the likeliest arm
    differs."""
    learner, allowed = pricing.learner, pricing.limits.allowed
    score, own = learner.score(contexts), learner.score_alone(contexts)
    chosen = probabilities(score, learner.sampling, allowed)
    chosen_alone = probabilities(own, learner.sampling, allowed)
    values = [float(np.sum(p * score.estimate)) for p in (chosen, chosen_alone)]
    others = float(np.sum(chosen.argmax(axis=-1) != chosen_alone.argmax(axis=-1)))
    return values[0], values[1], others
