"""Who the other cities are, where they are reached, and how it went: counts and times, no sockets."""

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pricemesh.gossip.envelope import Digest
from pricemesh.gossip.letters import Letter
from pricemesh.gossip.node import Sent

MISSES_UNTIL_SILENT = 3
LONGEST_BACKOFF = 32  # ticks
TICKS_UNTIL_SENT_AGAIN = 8
MISSES_UNTIL_FORGOTTEN = 6  # of an address that others told and where nobody ever answered


@dataclass
class Peer:
    """An address, and what is known of the city there."""

    address: str
    configured: bool = True
    origin: str = ""
    known: Digest | None = None  # what it held when last heard
    agreed: bytes = b""  # the state both had when they last held the same
    misses: int = 0
    wait_ticks: int = 0
    heard_at: float | None = None
    left: bool = False
    busy: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    fault: str = ""
    _sent: dict[Sent, int] = field(default_factory=dict)

    def reached(self, now: float) -> None:
        self.misses = self.wait_ticks = 0
        self.heard_at = now
        self.fault = ""

    def missed(self, fault: str) -> None:
        self.misses += 1
        self.wait_ticks = min(LONGEST_BACKOFF, 2 ** min(self.misses - 1, 10))
        self.fault = fault

    def remember(self, letters: Iterable[Letter], there: Digest | None, tick: int) -> None:
        """That it was sent these letters when it held what `there` says."""
        if there is not None:
            self._sent |= {
                (letter.origin, letter.edition, there.get(letter.origin)): tick for letter in letters
            }

    def sent_lately(self, tick: int) -> Collection[Sent]:
        """What it was sent and, if it holds what it held then, did not take: worth another try only later."""
        self._sent = {sent: at for sent, at in self._sent.items() if tick - at < TICKS_UNTIL_SENT_AGAIN}
        return self._sent

    @property
    def silent(self) -> bool:
        return self.misses >= MISSES_UNTIL_SILENT


@dataclass
class Book:
    """All addresses known."""

    own_address: str
    fan_out: int
    peers: dict[str, Peer] = field(default_factory=dict)
    _probe: int = 0

    def add(self, addresses: Iterable[str], *, configured: bool) -> list[Peer]:
        fresh = []
        for address in addresses:
            if address not in self.peers and address != self.own_address:
                self.peers[address] = Peer(address, configured)
                fresh.append(self.peers[address])
        return fresh

    def forget_unreached(self) -> list[str]:
        gone = [
            peer.address
            for peer in self.peers.values()
            if not peer.configured and peer.heard_at is None and peer.misses >= MISSES_UNTIL_FORGOTTEN
        ]
        for address in gone:
            del self.peers[address]
        return gone

    def of(self, origin: str) -> Peer | None:
        return next((peer for peer in self.peers.values() if peer.origin == origin), None)

    def turn(self, rng: random.Random) -> list[Peer]:
        """Whom to exchange with at this tick: all that answer up to the fan-out, else a random few; those
        that do not answer ever more rarely, but always one of them, so that the end of a cut is noticed."""
        here = [peer for peer in self.peers.values() if not peer.left and not peer.busy]
        for peer in here:
            peer.wait_ticks = max(0, peer.wait_ticks - 1)
        waiting = [peer for peer in here if peer.wait_ticks]
        ready = [peer for peer in here if not peer.wait_ticks]
        chosen = ready if len(ready) <= self.fan_out else rng.sample(ready, self.fan_out)
        if waiting and all(not peer.misses for peer in chosen):
            self._probe += 1
            chosen = [*chosen, waiting[self._probe % len(waiting)]]
        return chosen
