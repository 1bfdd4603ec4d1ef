"""The body of `GET /state`: what the city knows of itself, and what gossip adds. The dashboard's frames hold
the same, so that the page never disagrees with the API."""

from typing import Any

from pricemesh.city.pricing import Pricing
from pricemesh.gossip.mesh import Gossip
from pricemesh.gossip.view import peers_of


async def state_of(pricing: Pricing, gossip: Gossip) -> dict[str, Any]:
    impostor = gossip.intake.quarantine.impostor
    own = gossip.node.letters.get(gossip.city)
    return {
        **await pricing.state(),
        "peers": peers_of(gossip),
        "gossip": {
            "group": gossip.settings.group,
            "epoch": own.summary.epoch if own else None,
            "published_version": own.summary.version if own else None,
            "unpublished_lessons": gossip.publisher.unpublished_lessons,
            "ticks": gossip.ticks,
            "left": gossip.left,
            "key": gossip.publisher.seal.key.hex(),
            "impostor": f"{impostor.via} brought a letter: {impostor.reason}" if impostor else None,
        },
    }
