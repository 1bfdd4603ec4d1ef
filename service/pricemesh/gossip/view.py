"""How the other cities look from here: what `/state`, the metrics and the page show of them."""

import time
from typing import Any

from pricemesh.gossip.exchange import Gossip
from pricemesh.gossip.peers import MISSES_UNTIL_SILENT, Peer


def peers_of(gossip: Gossip) -> list[dict[str, Any]]:
    """Every city known, whether heard, relayed, refused or dropped."""
    by_origin = gossip.callers | {peer.origin: peer for peer in gossip.book.peers.values() if peer.origin}
    node = gossip.node
    names = set(node.held) | set(by_origin) | set(gossip.intake.quarantined) | node.dropped
    shares = gossip.pricing.learner.shares()
    rows = [_row(gossip, origin, by_origin.get(origin), shares) for origin in sorted(names - {gossip.city})]
    return rows + [_row(gossip, "", peer, shares) for peer in gossip.book.peers.values() if not peer.origin]


def _row(gossip: Gossip, origin: str, peer: Peer | None, shares: dict[str, float]) -> dict[str, Any]:
    letter, quarantine = gossip.node.held.get(origin), gossip.intake.quarantined.get(origin)
    heard = max(gossip.intake.received_at.get(origin, 0.0), (peer.heard_at if peer else None) or 0.0)
    return {
        "origin": origin or None,
        "address": (peer.address or None) if peer else None,
        "epoch": letter.summary.epoch if letter else None,
        "version": letter.summary.version if letter else None,
        "age_seconds": max(0.0, round(time.time() - heard, 3)) if heard else None,
        "status": _status(gossip, origin, peer),
        "reason": quarantine.reason if quarantine else (peer.fault or None) if peer else None,
        "via": quarantine.via if quarantine else None,
        "weights": gossip.pricing.learner.weights_of(origin) if letter else [],
        "share": shares.get(origin) if letter else None,
        "bytes_in": peer.bytes_in if peer else 0,
        "bytes_out": peer.bytes_out if peer else 0,
    }


def _status(gossip: Gossip, origin: str, peer: Peer | None) -> str:
    if origin in gossip.node.dropped:
        return "dropped"
    if origin in gossip.intake.quarantined:
        return "quarantined"
    if peer is None:
        return "relayed"
    if peer.left:
        return "left"
    if peer.silent or _calls_no_more(gossip, peer):
        return "silent"
    return "fresh" if origin else "not reached"


def _calls_no_more(gossip: Gossip, peer: Peer) -> bool:
    """Of a city that we cannot call: whether it has missed its ticks."""
    if peer.address or gossip.settings.lockstep:
        return False
    patience = (MISSES_UNTIL_SILENT + 1) * gossip.settings.interval_seconds
    return time.time() - (peer.heard_at or 0.0) > patience
