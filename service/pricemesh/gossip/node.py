"""One city's place in the mesh: the letters it holds, and both sides of an exchange. No socket, no clock.

Newest letter per origin wins, so that whatever is lost, doubled, late or relayed, cities that have
exchanged hold the same.
"""

import re
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from pricemesh.city.addresses import CITY_NAME
from pricemesh.core.summary import Summaries, Summary, merge
from pricemesh.errors import BadSummary
from pricemesh.gossip.envelope import UNWANTED, Digest, Edition, Message, state_of
from pricemesh.gossip.letters import Letter

NAME = re.compile(CITY_NAME)
LAST_VERSION = 1 << 62
MOST_REFUSED = 8  # in one message; after that the rest is not looked at


Sent = tuple[str, Edition, Edition | None]  # origin, edition, and what the receiver held of it then


class Refusal(NamedTuple):
    """Why a letter did not count; `origin` is empty where it could not even be read."""

    origin: str
    reason: str
    sealed: bool  # whether its origin's own seal is on it


class Sifted(NamedTuple):
    fresh: list[Letter]  # checked, and newer than what is held
    refused: list[Refusal]
    own: Letter | None  # this city's own, from a life it does not remember


class Node:
    def __init__(
        self,
        origin: str,
        fingerprint: bytes,
        check: Callable[[Summary], None],
        *,
        cities: Collection[str] | None = None,
        most_cities: int = 256,
        most_bytes: int = 4_000_000,
    ) -> None:
        self.origin = origin
        self.fingerprint = fingerprint
        self._check = check
        self._cities = cities
        self.most_cities = most_cities
        self.most_bytes = most_bytes  # of letters in one message
        self.held: dict[str, Letter] = {}
        self.dropped: set[str] = set()
        self.trusted: dict[str, bytes] = {}  # keys that an operator has named
        self._state: bytes | None = None

    # What is held

    @property
    def summaries(self) -> Summaries:
        return {origin: letter.summary for origin, letter in self.held.items()}

    @property
    def digest(self) -> dict[str, Edition]:
        held = {origin: letter.edition for origin, letter in self.held.items()}
        return held | dict.fromkeys(self.dropped, UNWANTED)

    @property
    def state(self) -> bytes:
        if self._state is None:
            self._state = state_of(self.fingerprint, self.digest)
        return self._state

    def take(self, letters: Iterable[Letter]) -> None:
        """Hold these from now on, where they are newer."""
        self.held = merge(self.held, [letter for letter in letters if letter.origin not in self.dropped])
        self._state = None

    def drop(self, origin: str) -> None:
        """Hold nothing of this city any more, and take nothing, whoever relays it."""
        self.held = {other: letter for other, letter in self.held.items() if other != origin}
        self.dropped.add(origin)
        self._state = None

    def readmit(self, origin: str) -> None:
        self.dropped.discard(origin)
        self._state = None

    def trust(self, origin: str, key: bytes) -> None:
        """Know a city by this key; what it told under another counts no more."""
        self.trusted[origin] = key
        if origin in self.held and self.held[origin].key != key:
            self.held = {other: letter for other, letter in self.held.items() if other != origin}
        self.readmit(origin)

    # An exchange

    def brief(self) -> Message:
        """Only what this city's state is."""
        return Message(self.origin, self.state)

    def full(self, letters: Iterable[Letter]) -> Message:
        """All that it holds by name, and these letters."""
        wires = tuple(letter.wire for letter in letters)
        return Message(self.origin, self.state, self.fingerprint, self.digest, letters=wires)

    def reply(self, heard: Message, letters: Iterable[Letter]) -> Message | None:
        """To a message whose letters have been taken, with those that its sender lacks. When both hold the
        same, nothing to a brief one, and to another briefly who says so."""
        if heard.state == self.state:
            return None if heard.digest is None else self.brief()
        return self.full(letters)

    def lacking(self, digest: Digest | None, but: Collection[Sent] = ()) -> list[Letter]:
        """The letters that a holder of `digest` has not, or has older, save those in `but`, as far as one
        message carries them; one's own first. Of a stranger nothing is known: it gets one's own only."""
        if digest is None:
            return [self.held[self.origin]] if self.origin in self.held else []
        letters: list[Letter] = []
        size = 0
        for origin in sorted(self.held, key=lambda origin: (origin != self.origin, origin)):
            letter = self.held[origin]
            there = digest.get(origin, (0, -1))
            if there == UNWANTED or there >= letter.edition:
                continue
            if (origin, letter.edition, digest.get(origin)) in but:
                continue
            size += len(letter.wire) + 4
            if letters and size > self.most_bytes:
                break
            letters.append(letter)
        return letters

    def lacked(self, digest: Digest) -> set[str]:
        """Of which origins a holder of `digest` has what this city has not, or has older."""
        own = self.digest
        newer = {origin for origin, edition in digest.items() if edition > own.get(origin, (0, -1))}
        return newer - self.dropped

    def sift(self, wires: Iterable[bytes]) -> Sifted:
        """Which of the letters received may count; everything is checked before it does."""
        fresh: dict[str, Letter] = {}
        refused: list[Refusal] = []
        own = None
        for wire in wires:
            origin = ""
            if len(refused) >= MOST_REFUSED:
                break
            sealed = False
            try:
                letter = Letter.read(wire)
                origin = letter.origin
                if origin in self.dropped:
                    continue
                newest = fresh.get(origin) or self.held.get(origin)
                self._recognise(letter, newest)
                if newest is not None and letter.order <= newest.order:
                    continue
                letter.verify()
                sealed = True
                self.admit(letter, newest, len(fresh))
                if origin != self.origin:
                    self._check(letter.summary)
            except BadSummary as fault:
                refused.append(Refusal(origin, str(fault), sealed))
                continue
            if origin == self.origin:
                own = letter
            else:
                fresh[origin] = letter
        return Sifted(list(fresh.values()), refused, own)

    def _recognise(self, letter: Letter, newest: Letter | None) -> None:
        """By the key its origin is known by."""
        origin = letter.origin
        known = self.trusted.get(origin) or (newest.key if newest is not None else letter.key)
        if letter.key != known:
            raise BadSummary(
                "it is sealed with another key than the one this city is known by. If it was set up anew, "
                f"let every city trust its key: POST /peers/{origin}/trust (its own GET /state shows it)"
            )

    def admit(self, letter: Letter, newest: Letter | None, incoming: int = 0) -> None:
        """Whether letters of this kind are taken at all; BadSummary says why not."""
        origin, summary = letter.origin, letter.summary
        if not NAME.fullmatch(origin):
            raise BadSummary(f"{origin!r:.50} is no city's name")
        if self._cities is not None and origin not in self._cities and origin != self.origin:
            raise BadSummary("it is not among the cities that gossip.cities admits")
        if newest is None and origin != self.origin and len(self.held) + incoming >= self.most_cities:
            raise BadSummary(f"too many cities: gossip.most_cities admits {self.most_cities}")
        if not 0 < summary.epoch < LAST_VERSION or summary.version >= LAST_VERSION:
            raise BadSummary("its epoch or version is none that a city could have reached")
        if summary.fingerprint != self.fingerprint:
            raise BadSummary("it was made for other arms, shared features, policy or group")
