"""The other cities: their addresses, and how exchanges with them went. Counts and times, no sockets."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from heapq import nsmallest

from pricemesh.gossip.bounds import make_room, shortened
from pricemesh.gossip.letter import Letter
from pricemesh.gossip.message import Digest
from pricemesh.gossip.node import Delivery
from pricemesh.runtime import Rng

MISSES_UNTIL_SILENT = 3
MAX_BACKOFF_TICKS = 32
TICKS_UNTIL_SENT_AGAIN = 8
OTHER_TERMS_WAIT_TICKS = 8  # until a city that had other terms is called again
MIN_PARTNERS = 4  # with fewer calls a tick, always the same peers might not connect the whole mesh
TICKS_UNTIL_STRANGER = 16  # from one call of a peer that is not called at every tick to the next
MISSES_UNTIL_FORGOTTEN = 6  # of an address that came from another city and never answered

Counts = Counter[tuple[str, str]]  # (what, which), for the metrics


@dataclass
class Peer:
    """An address, and what is known of the city there."""

    address: str  # empty: a city that calls here and whose address is not known
    is_configured: bool = True
    origin: str = ""
    receiver: str = ""  # the name it introduced itself by: messages to this address are signed for it
    misses: int = 0
    wait_ticks: int = 0
    heard_at: float | None = None
    has_left: bool = False
    has_other_terms: bool = False  # it answers, and its letters cannot be read here
    is_busy: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    fault: str = ""
    _deliveries: dict[str, tuple[Delivery, int]] = field(default_factory=dict)  # by origin, with their ticks

    @property
    def silent(self) -> bool:
        return self.misses >= MISSES_UNTIL_SILENT

    def record_contact(self, now: float) -> None:
        self.misses = self.wait_ticks = 0
        self.heard_at = now
        self.fault = ""
        self.has_other_terms = False

    def record_other_terms(self, now: float, fault: str) -> None:
        """It is called now and then, until both cities agree again."""
        self.record_contact(now)
        self.has_other_terms, self.wait_ticks = True, OTHER_TERMS_WAIT_TICKS
        self.fault = shortened(fault)

    def record_miss(self, fault: str) -> None:
        self.misses += 1
        self.wait_ticks = min(MAX_BACKOFF_TICKS, 2 ** min(self.misses - 1, 10))
        self.fault = shortened(fault)

    def record_postponement(self, fault: str) -> None:
        """It is there and will answer soon: it is called again at the next tick, with the same letters."""
        self.misses = self.wait_ticks = 0
        self._deliveries.clear()
        self.fault = shortened(fault)

    def record_deliveries(self, letters: Iterable[Letter], digest: Digest, tick: int) -> None:
        """These letters were sent to it when it had the editions of `digest`."""
        recent = {
            origin: (delivery, at)
            for origin, (delivery, at) in self._deliveries.items()
            if tick - at < TICKS_UNTIL_SENT_AGAIN
        }
        sent = {
            letter.origin: ((letter.origin, letter.edition, digest.get(letter.origin)), tick)
            for letter in letters
        }
        self._deliveries = recent | sent

    def forget_deliveries(self, origins: Iterable[str]) -> None:
        """It asks for these letters again."""
        for origin in origins:
            self._deliveries.pop(origin, None)

    def was_delivered(self, delivery: Delivery, tick: int) -> bool:
        """Whether it was sent this letter lately. Where its digest has not changed since, it did not take it:
        it is sent again only later."""
        last, at = self._deliveries.get(delivery[0], (None, tick))
        return last == delivery and tick - at < TICKS_UNTIL_SENT_AGAIN


@dataclass
class AddressBook:
    """All peers, and the count of ticks by which they are called."""

    own_address: str
    fan_out: int
    max_callers: int = 512
    peers: dict[str, Peer] = field(default_factory=dict)  # by address
    is_known: Callable[[str], bool] = lambda _: False  # whether a name belongs to a city of the mesh
    callers: dict[str, Peer] = field(default_factory=dict)  # by origin: cities whose address is not known
    ticks: int = 0
    city: str = ""  # this one
    _probes: int = 0
    _ranks: dict[str, bytes] = field(default_factory=dict)  # by address

    def add(self, addresses: Iterable[str], *, is_configured: bool) -> list[Peer]:
        """The peers that are new."""
        fresh = []
        for address in addresses:
            if address not in self.peers and address != self.own_address:
                self.peers[address] = Peer(address, is_configured)
                fresh.append(self.peers[address])
        return fresh

    def forget_unreached(self) -> list[str]:
        """Remove the addresses that came from other cities and never answered."""
        addresses = [
            peer.address
            for peer in self.peers.values()
            if not peer.is_configured and peer.heard_at is None and peer.misses >= MISSES_UNTIL_FORGOTTEN
        ]
        for address in addresses:
            del self.peers[address]
            self._ranks.pop(address, None)
        return addresses

    def sender(self, origin: str, address: str) -> Peer:
        """The peer that sent a message: known by its name, else by its address, else only as a caller."""
        peer = next((peer for peer in self.peers.values() if peer.origin == origin), None)
        peer = peer or self.peers.get(address)
        if peer is None:
            peer = self._caller(origin)
        peer.origin = peer.origin or origin
        return peer

    def _caller(self, origin: str) -> Peer:
        """Strangers make room for others; the cities of the mesh stay."""
        peer = self.callers.pop(origin, None) or Peer("")
        if make_room(self.callers, self.max_callers, self.is_known) or self.is_known(origin):
            self.callers[origin] = peer  # those who called last are the last to go
        return peer

    def choose(self, rng: Rng) -> list[Peer]:
        """The peers to call at this tick: all that answer, or `fan_out` of them. Of many, always the same
        ones, because cities that meet again tell each other only what changed; now and then one of them makes
        room for a random other peer. Peers that do not answer are called ever more rarely, but always one of
        them, so that the end of a cut is noticed."""
        present = [peer for peer in self.peers.values() if not peer.has_left and not peer.is_busy]
        for peer in present:
            peer.wait_ticks = max(0, peer.wait_ticks - 1)
        waiting = [peer for peer in present if peer.wait_ticks]
        due = [peer for peer in present if not peer.wait_ticks]
        selection = due if len(due) <= self.fan_out else self._partners(due, rng)
        if waiting and all(not peer.misses for peer in selection):
            self._probes += 1
            selection = [*selection, waiting[self._probes % len(waiting)]]
        return selection

    def _partners(self, due: list[Peer], rng: Rng) -> list[Peer]:
        """By a hash of both names: every city has others, and who comes or goes changes few pairs."""
        if self.fan_out < MIN_PARTNERS:
            return rng.sample(due, self.fan_out)
        ranked = nsmallest(self.fan_out, due, key=lambda peer: self._rank(peer.address))
        if self.ticks % TICKS_UNTIL_STRANGER == 0:
            ranked[-1] = rng.choice([peer for peer in due if peer not in ranked])
        return ranked

    def _rank(self, address: str) -> bytes:
        rank = self._ranks.get(address)
        if rank is None:
            rank = self._ranks[address] = sha256(f"{self.city} calls {address}".encode()).digest()[:8]
        return rank


def count_bytes(counts: Counts, peer: Peer | None, received: int, transmitted: int) -> None:
    if peer is not None:
        peer.bytes_in += received
        peer.bytes_out += transmitted
    counts["bytes", "in"] += received
    counts["bytes", "out"] += transmitted
