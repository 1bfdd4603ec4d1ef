"""Digests as differences: which entries changed since a state that both cities know. Pure.

A digest has the edition of every letter that a city has. Cities that exchange again and again remember the
digests they last told each other, by their states; a message then names such a state and has only the entries
that differ. A city that does not remember the state says so with its complete digest.
"""

from collections.abc import Callable

from pricemesh.gossip.message import ABSENT, Digest, Edition, Message

MAX_STATES = 2  # remembered of one city: a message may be on its way while another is answered


class DigestMemory:
    """Digests that this city and another one both know, by the other city's name and the digest's state.
    Whoever was not heard for longest makes room; names that belong to no city are not remembered."""

    def __init__(self, max_cities: int, is_known: Callable[[str], bool]) -> None:
        self._max_cities = max_cities
        self._is_known = is_known
        self._digests: dict[str, dict[bytes, Digest]] = {}

    def __len__(self) -> int:
        return len(self._digests)

    def remember(self, city: str, state: bytes, digest: Digest) -> None:
        digests = self._digests.pop(city, {})
        if not self._is_known(city):
            return
        digests.pop(state, None)
        while len(digests) >= MAX_STATES:
            del digests[next(iter(digests))]
        while len(self._digests) >= self._max_cities:
            del self._digests[next(iter(self._digests))]
        self._digests[city] = {**digests, state: digest}

    def find(self, city: str, state: bytes) -> Digest | None:
        return self._digests.get(city, {}).get(state)

    def newest(self, city: str) -> tuple[bytes, Digest] | None:
        """The state that was remembered last, and its digest."""
        digests = self._digests.get(city)
        return None if not digests else next(reversed(digests.items()))

    def all(self) -> list[Digest]:
        """All digests that are remembered."""
        return [digest for digests in self._digests.values() for digest in digests.values()]

    def forget(self) -> None:
        self._digests.clear()

    def digest_in(self, message: Message) -> Digest | None:
        """The complete digest of a message's sender; None where its base is not remembered."""
        if message.digest is None:  # it says only that its letters are those of its state
            return self.find(message.sender, message.state)
        if not message.base:
            return message.digest
        base = self.find(message.sender, message.base)
        return None if base is None else with_entries(base, message.digest)


def changed_entries(digest: Digest, base: Digest) -> dict[str, Edition]:
    """What makes `base` into `digest`."""
    changed = {origin: edition for origin, edition in digest.items() if base.get(origin) != edition}
    if len(digest) - sum(origin not in base for origin in changed) < len(base):
        changed |= {origin: ABSENT for origin in base if origin not in digest}
    return changed


def with_entries(base: Digest, entries: Digest) -> Digest:
    """The inverse of `changed_entries`."""
    digest = {**base, **entries}
    for origin, edition in entries.items():
        if edition == ABSENT:
            del digest[origin]
    return digest
