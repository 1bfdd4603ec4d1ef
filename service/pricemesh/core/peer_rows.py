"""What a fold needs of each city, kept from one fold to the next: only what changed is computed again.

One row for each city: this city first, then its peers in the order of their names, so that the result does
not depend on who joined first. A peer that leaves takes its row with it.
"""

from typing import NamedTuple, Protocol

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.summary import Layout, Parts, Summary
from pricemesh.errors import BadSummary


class Group(NamedTuple):
    """This city and its peers at one moment."""

    city: str
    own: Array  # its numbers, a copy
    peers: tuple[Summary, ...]  # in the order of their origins

    @property
    def origins(self) -> tuple[str, ...]:
        return (self.city, *(peer.origin for peer in self.peers))


class Reader(Protocol):
    """A learner, which reads summaries."""

    layout: Layout

    def prepare(self, parts: Parts) -> Parts: ...


class PeerRows:
    """Not for two folds at once: the arrays that `stack` returns are the rows themselves."""

    def __init__(self) -> None:
        self._peers: dict[str, tuple[int, Summary]] = {}  # by origin, with the row
        self._parts: Parts = {}  # (1 + peers, ...), as `prepare` returns them

    def stack(self, reader: Reader, group: Group) -> Parts:
        """The prepared parts of all cities of the group. BadSummary, which leaves the rows as they were, if a
        summary is not of this layout or not finite."""
        rows = [self._row_of(peer) for peer in group.peers]
        changed = [row for row, former in enumerate(rows) if former is None]
        numbers = [group.own, *(_checked(group.peers[i], reader.layout) for i in changed)]
        fresh = reader.prepare(reader.layout.unpack(np.stack(numbers)))
        if not self._parts or self._peers.keys() != {peer.origin for peer in group.peers}:
            self._parts = self._moved(fresh, [row or 0 for row in rows])
        at = np.array([0, *(i + 1 for i in changed)])
        for name, values in fresh.items():
            self._parts[name][at] = values
        self._peers = {peer.origin: (i + 1, peer) for i, peer in enumerate(group.peers)}
        return self._parts

    def _row_of(self, peer: Summary) -> int | None:
        """None unless it was made from this very summary."""
        row, summary = self._peers.get(peer.origin, (0, None))
        return row if summary is peer or summary == peer else None

    def _moved(self, fresh: Parts, rows: list[int]) -> Parts:
        """The rows at their places in a group of other cities."""
        former = np.array([0, *rows])
        if not self._parts:
            return {name: np.empty((len(former), *value.shape[1:])) for name, value in fresh.items()}
        return {name: value[former] for name, value in self._parts.items()}


def _checked(peer: Summary, layout: Layout) -> Array:
    numbers = peer.numbers
    if numbers.size != layout.size:
        raise BadSummary(f"{peer.origin} sent {numbers.size} numbers; a summary must have {layout.size}")
    if not np.isfinite(numbers).all():
        raise BadSummary(f"{peer.origin} sent numbers that are not finite")
    return numbers
