"""How the other cities look from here: what `/state`, the metrics and the dashboard show of them."""

from typing import Any

from pricemesh.gossip.mesh import Gossip
from pricemesh.gossip.peers import MISSES_UNTIL_SILENT, Peer


def peers_of(gossip: Gossip) -> list[dict[str, Any]]:
    """Every city known, whether it is reached, relayed, refused or dropped."""
    node, book = gossip.node, gossip.book
    by_origin = book.callers | {peer.origin: peer for peer in book.peers.values() if peer.origin}
    names = set(node.letters) | set(by_origin) | set(gossip.intake.quarantine.marks) | node.dropped_origins
    shares = gossip.pricing.learner.shares()
    rows = [_row(gossip, origin, by_origin.get(origin), shares) for origin in sorted(names - {gossip.city})]
    return rows + [_row(gossip, "", peer, shares) for peer in book.peers.values() if not peer.origin]


def _row(gossip: Gossip, origin: str, peer: Peer | None, shares: dict[str, float]) -> dict[str, Any]:
    now = gossip.pricing.runtime.clock()
    letter, mark = gossip.node.letters.get(origin), gossip.intake.quarantine.marks.get(origin)
    heard_at = max(gossip.intake.received_at.get(origin, 0.0), (peer.heard_at if peer else None) or 0.0)
    fault = peer.fault if peer and gossip.pricing.role.is_publisher else ""
    return {
        "origin": origin or None,
        "address": (peer.address or None) if peer else None,
        "epoch": letter.summary.epoch if letter else None,
        "version": letter.summary.version if letter else None,
        "age_seconds": max(0.0, round(now - heard_at, 3)) if heard_at else None,
        "status": _status(gossip, origin, peer, heard_at),
        "reason": mark.reason if mark else fault or None,
        "via": mark.via if mark else None,
        "quarantine_ends": mark.ending(origin) if mark else None,
        "weights": gossip.pricing.learner.weights_of(origin) if letter else [],
        "share": shares.get(origin) if letter else None,
        "bytes_in": peer.bytes_in if peer else 0,
        "bytes_out": peer.bytes_out if peer else 0,
    }


def _status(gossip: Gossip, origin: str, peer: Peer | None, heard_at: float) -> str:
    if origin in gossip.node.dropped_origins:
        return "dropped"
    if origin in gossip.intake.quarantine.marks:
        return "quarantined"
    if peer is not None and peer.has_left:
        return "left"
    if peer is not None and peer.has_other_terms:
        return "other terms"
    if not gossip.pricing.role.is_publisher:
        return _status_at_replica(gossip, origin, heard_at)
    if peer is None:
        return "relayed"
    if peer.silent or (not peer.address and _is_overdue(gossip, peer.heard_at or 0.0)):
        return "silent"
    return "fresh" if origin else "not reached"


def _status_at_replica(gossip: Gossip, origin: str, heard_at: float) -> str:
    """Where the publisher, another process, calls the peers: their letters come through the database, and a
    peer that does not call this replica may call another one."""
    if not origin:
        return "not called"
    return "relayed" if _is_overdue(gossip, heard_at) else "fresh"


def _is_overdue(gossip: Gossip, heard_at: float) -> bool:
    """Whether a city was not heard for several ticks."""
    patience_seconds = (MISSES_UNTIL_SILENT + 1) * gossip.settings.interval_seconds
    return not gossip.settings.lockstep and gossip.pricing.runtime.clock() - heard_at > patience_seconds
