"""What a city knows of itself, as `/state` and the dashboard show it."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pricemesh.store.commands import Retraction
from pricemesh.store.reads import Totals

if TYPE_CHECKING:
    from pricemesh.city.pricing import Pricing


def report(pricing: "Pricing", totals: Totals) -> dict[str, Any]:
    live, settings = pricing.live, pricing.settings
    return {
        "city": settings.city,
        "policy": live.policy_parameters,
        "version": live.version,
        "decisions": totals.decisions,
        "feedback": totals.feedback,
        "arms": live.arms(),
        "lessons": {
            "learned": live.lessons_learned,
            **asdict(live.counts),
            "relearning": pricing.relearner.is_behind,
        },
        "retractions": [_active(retraction) for retraction in totals.retractions],
        "reward": settings.reward.model_dump(),
        "display": settings.display.model_dump(),
        "features": settings.features.model_dump(),
        "guardrails": settings.guardrails.model_dump(),
        "controls": pricing.controls.as_dict(),
        "clock": pricing.clock.as_dict(),
        "replica": pricing.role.as_dict(),
        "warnings": [] if live.rewards.warning is None else [live.rewards.warning],
        "fingerprint": settings.fingerprint.hex(),
    }


def _active(retraction: Retraction) -> dict[str, Any]:
    return {
        "retraction": retraction.id,
        "at": retraction.made_at,
        "by": retraction.made_by,
        "reason": retraction.reason,
        "feedback": retraction.feedback_count,
    }
