"""The body of `GET /alerts`: what the rows say, the health of this process, and the peers."""

from typing import Any

from pricemesh.city.alerts import Alert, Facts, alerts_of_rows, read_facts
from pricemesh.city.pricing import Pricing
from pricemesh.errors import StorageUnavailable
from pricemesh.gossip.mesh import Gossip
from pricemesh.gossip.view import peers_of

SEVERITIES = ("critical", "warning", "info")


async def alerts_of(pricing: Pricing, gossip: Gossip) -> dict[str, Any]:
    now = pricing.runtime.clock()
    alerts = [*_of_process(pricing), *_of_peers(gossip)]
    fault = await pricing.health.check()
    try:
        if fault is None:
            alerts += alerts_of_rows(pricing.settings, pricing.live, await _facts(pricing, now))
    except StorageUnavailable as unavailable:
        fault = str(unavailable)
    if fault is not None:
        advice = "Look at the database server or the disk; callers of /price get a 503 until it is back."
        alerts.append(Alert("database", "critical", None, None, fault, advice))
    alerts.sort(key=lambda alert: SEVERITIES.index(alert.severity))
    return {"at": now, "alerts": [alert._asdict() for alert in alerts]}


async def _facts(pricing: Pricing, now: float) -> Facts:
    settings, terms = pricing.settings, pricing.live.terms
    facts: Facts = await pricing.read_many(
        pricing.database.reader.read_at_once, lambda connection: read_facts(connection, settings, terms, now)
    )
    return facts


def _of_process(pricing: Pricing) -> list[Alert]:
    alerts = []
    clock = pricing.clock
    if clock.steps and not clock.read().is_steady:  # not the minute after every start
        advice = "Look at the machine's clock (NTP); feedback windows close again once it is steady."
        alerts.append(Alert("clock", "warning", None, None, str(clock.reason), advice))
    if (warning := pricing.live.rewards.warning) is not None:
        alerts.append(Alert("reward scale", "info", None, None, warning, "Set reward.scale and restart."))
    return alerts


def _of_peers(gossip: Gossip) -> list[Alert]:
    alerts = []
    for peer in peers_of(gossip):
        name = peer["origin"] or peer["address"]
        heard_at = None
        if peer["age_seconds"] is not None:
            heard_at = gossip.pricing.runtime.clock() - peer["age_seconds"]
        if peer["status"] == "quarantined":
            text = f"{name} is quarantined: {peer['reason']}"
            advice = f"It ends by itself ({peer['quarantine_ends']}). Ask the operator of {name}; or drop it."
            alerts.append(Alert("peer quarantined", "warning", name, None, text, advice))
        elif peer["status"] in ("silent", "not reached"):
            text = f"{name} does not answer: {peer['reason'] or 'it is silent'}"
            advice = "Look whether it runs and can be reached; what it told before still counts."
            alerts.append(Alert("peer silent", "warning", name, heard_at, text, advice))
        elif peer["status"] == "other terms":
            text = f"{name} has other prices, shared features, policy or group: its new letters do not count"
            advice = "Bring both configurations to the same terms."
            alerts.append(Alert("peer with other terms", "warning", name, None, text, advice))
    if (impostor := gossip.intake.quarantine.impostor) is not None:
        text = f"{impostor.via} brought letters in this city's own name under another key: {impostor.reason}"
        advice = "Look for a second city of this name in the mesh."
        alerts.append(Alert("impostor", "critical", impostor.via, None, text, advice))
    return alerts
