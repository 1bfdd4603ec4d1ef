"""One city's place in the mesh: the letters it has, and both sides of an exchange. Pure: no socket, no clock.

The newest letter of each origin wins, so cities that have exchanged have the same letters, whatever was lost,
duplicated, delayed or relayed before.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from pricemesh.city.addresses import CITY_NAME
from pricemesh.core.summary import Summaries, Summary, merge
from pricemesh.errors import BadSummary
from pricemesh.gossip.letter import Leave, Letter
from pricemesh.gossip.message import LAST_VERSION, UNWANTED, Digest, Edition, Message, state_of

NAME = re.compile(CITY_NAME)
MAX_REFUSALS = 8  # in one message; after that the rest is not read
NOTHING: Edition = (0, -1)  # older than every letter
LETTER_HEADER_BYTES = 5  # at most, in front of a letter in a message

Delivery = tuple[str, Edition, Edition | None]  # origin, edition, and the edition the receiver had then


class Refusal(NamedTuple):
    """Why a letter does not count; `origin` is a city's name, empty where the letter could not be read."""

    origin: str
    reason: str
    is_sealed: bool  # with the key that it names, so that no relay has changed it


class CheckedLetters(NamedTuple):
    fresh: list[Letter]  # valid, and newer than those the city has
    refusals: list[Refusal]
    own: Letter | None  # this city's own, newer than its database: it was restored from a backup


class Node:
    def __init__(
        self,
        origin: str,
        fingerprint: bytes,
        check_summary: Callable[[Summary], None],
        *,
        cities: Collection[str] | None = None,
        city_keys: Mapping[str, bytes] | None = None,
        max_cities: int = 256,
        max_bytes: int = 4_000_000,
    ) -> None:
        self.origin = origin
        self.fingerprint = fingerprint
        self._check_summary = check_summary
        self._cities = cities
        # Known before the first letter. A city's own key is in its database, whatever a configuration says.
        self.named_keys = {name: key for name, key in (city_keys or {}).items() if name != origin}
        self.max_cities = max_cities
        self.max_bytes = max_bytes  # of letters in one message
        self.letters: dict[str, Letter] = {}
        self.dropped_origins: set[str] = set()
        self.trusted_keys: dict[str, bytes] = {}  # named by an operator
        self._digest: dict[str, Edition] | None = None
        self._state: bytes | None = None

    @property
    def max_entries(self) -> int:
        """Of a digest, an address list or a bundle of letters in one message."""
        return 2 * self.max_cities + 16

    # The letters

    @property
    def summaries(self) -> Summaries:
        return {origin: letter.summary for origin, letter in self.letters.items()}

    @property
    def digest(self) -> dict[str, Edition]:
        """One object until a letter changes: all peers that have the same letters share it."""
        if self._digest is None:
            editions = {origin: letter.edition for origin, letter in self.letters.items()}
            self._digest = editions | dict.fromkeys(self.dropped_origins, UNWANTED)
        return self._digest

    def known_part(self, digest: Digest) -> Digest:
        """What is worth remembering of another city's digest: a name that this city has no letter of may be
        invented, and is asked for by the digest itself."""
        own = self.digest
        known = {origin: edition for origin, edition in digest.items() if origin in own}
        return own if known == own else known

    @property
    def state(self) -> bytes:
        if self._state is None:
            self._state = state_of(self.fingerprint, self.digest)
        return self._state

    def restore(self, dropped_origins: Iterable[str], trusted_keys: dict[str, bytes]) -> None:
        """What an operator decided before the last stop."""
        self.dropped_origins, self.trusted_keys = set(dropped_origins), dict(trusted_keys)
        self._changed()

    def recover(self, dropped_origins: Iterable[str], trusted_keys: dict[str, bytes]) -> set[str]:
        """As `drop`, `readmit` and `trust` would have done, had their commit been answered. Returns the
        origins that were dropped or trusted."""
        dropped = set(dropped_origins) - self.dropped_origins
        trusted = {origin for origin, key in trusted_keys.items() if self.trusted_keys.get(origin) != key}
        for origin in dropped | trusted:
            letter = self.letters.get(origin)
            if letter is not None and (origin in dropped or letter.key != trusted_keys[origin]):
                self._forget(origin)
        self.restore(dropped_origins, trusted_keys)
        return dropped | trusted

    def take(self, letters: Iterable[Letter]) -> None:
        """Keep these letters in place of older ones."""
        admitted = [letter for letter in letters if letter.origin not in self.dropped_origins]
        self.letters = merge(self.letters, admitted)
        self._changed()

    def drop(self, origin: str) -> None:
        """Forget this city's letter, and take none from now on, not even from a relay."""
        self._forget(origin)
        self.dropped_origins.add(origin)
        self._changed()

    def readmit(self, origin: str) -> None:
        self.dropped_origins.discard(origin)
        self._changed()

    def trust(self, origin: str, key: bytes) -> None:
        """Know a city by this key; its letter under another key counts no more."""
        self.trusted_keys[origin] = key
        if origin in self.letters and self.letters[origin].key != key:
            self._forget(origin)
        self.readmit(origin)

    def _forget(self, origin: str) -> None:
        self.letters = {other: letter for other, letter in self.letters.items() if other != origin}

    def _changed(self) -> None:
        self._digest = self._state = None

    def is_known(self, origin: str) -> bool:
        """Whether this is a city of the mesh, as far as this city can tell, and not just a name."""
        return origin in self.letters or origin in self.trusted_keys or origin in (self._cities or ())

    def key_of(self, origin: str, newest: Letter | None = None) -> bytes | None:
        """The key by which a city is known: as the configuration names it, or an operator, or its letter."""
        newest = newest or self.letters.get(origin)
        key = self.named_keys.get(origin) or self.trusted_keys.get(origin)
        return key or (newest.key if newest is not None else None)

    # An exchange

    def brief_message(self) -> Message:
        """Only this city's state."""
        return Message(self.origin, state=self.state)

    def full_message(self, letters: Iterable[Letter]) -> Message:
        """The editions of all letters that this city has, and these letters themselves."""
        wires = tuple(letter.wire for letter in letters)
        return Message(self.origin, self.fingerprint, self.digest, wires, state=self.state)

    def reply(self, message: Message, letters: Iterable[Letter]) -> Message | None:
        """The answer to a message whose letters have been taken, with the letters that its sender lacks.
        Where both have the same letters: None to a brief message, a brief message to a full one."""
        if message.state == self.state:
            return None if message.digest is None else self.brief_message()
        return self.full_message(letters)

    def letters_missing_in(self, digest: Digest | None, skip: Collection[Delivery] = ()) -> list[Letter]:
        """The letters that the owner of `digest` lacks or has older, except those in `skip`, as many as one
        message carries; this city's own first. Where its digest is not known yet, this city's own only."""
        if digest is None:
            return [self.letters[self.origin]] if self.origin in self.letters else []
        letters: list[Letter] = []
        size = 0
        for origin in sorted(self.letters, key=lambda origin: (origin != self.origin, origin)):
            letter = self.letters[origin]
            edition = digest.get(origin, NOTHING)
            if edition == UNWANTED or edition >= letter.edition:
                continue
            if (origin, letter.edition, digest.get(origin)) in skip:
                continue
            size += len(letter.wire) + LETTER_HEADER_BYTES
            if letters and size > self.max_bytes:
                break
            letters.append(letter)
        return letters

    def origins_newer_in(self, digest: Digest) -> set[str]:
        """The origins of which the owner of `digest` has a letter that this city lacks or has older."""
        own = self.digest
        newer = {origin for origin, edition in digest.items() if edition > own.get(origin, NOTHING)}
        return newer - self.dropped_origins

    def is_leaving(self, message: Message, now: float) -> bool:
        """Whether the sender says so under its own seal."""
        letter = self.letters.get(message.sender)
        return bool(message.leave) and letter is not None and Leave.is_valid(message.leave, letter, now)

    # Checking letters

    def check_letters(self, wires: Iterable[bytes]) -> CheckedLetters:
        """Which of the letters received may count; a letter is checked completely before it does."""
        fresh: dict[str, Letter] = {}
        refusals: list[Refusal] = []
        own = None
        for wire in wires:
            if len(refusals) >= MAX_REFUSALS:
                break
            origin = ""
            is_sealed = False
            try:
                letter = read_letter(wire)
                origin = letter.origin
                if origin in self.dropped_origins:
                    continue
                newest = fresh.get(origin) or self.letters.get(origin)
                is_old = newest is not None and letter.order <= newest.order
                if is_old and letter.key == self.key_of(origin, newest):
                    continue
                letter.verify()
                is_sealed = True
                self.admit(letter, newest, len(fresh))
                if origin != self.origin:
                    self._check_summary(letter.summary)
            except BadSummary as fault:
                refusals.append(Refusal(origin, str(fault), is_sealed))
                continue
            if origin == self.origin:
                own = letter
            else:
                fresh[origin] = letter
        return CheckedLetters(list(fresh.values()), refusals, own)

    def _check_key(self, letter: Letter, newest: Letter | None) -> None:
        origin = letter.origin
        if letter.key == (self.key_of(origin, newest) or letter.key):
            return
        remedy = f"POST /peers/{origin}/trust"
        if origin in self.named_keys:
            remedy = "change it in gossip.cities"
        raise BadSummary(
            "it is sealed with another key than the one this city is known by. If the city was set up "
            f"anew, every other city has to trust its new key: {remedy} (its own GET /state shows the key)"
        )

    def admit(self, letter: Letter, newest: Letter | None, incoming: int = 0) -> None:
        """Check that letters of this kind are taken at all; BadSummary says why not."""
        origin, summary = letter.origin, letter.summary
        self._check_key(letter, newest)
        if self._cities is not None and origin not in self._cities and origin != self.origin:
            raise BadSummary("it is not among the cities that gossip.cities admits")
        if newest is None and origin != self.origin and len(self.letters) + incoming >= self.max_cities:
            raise BadSummary(f"too many cities: gossip.most_cities admits {self.max_cities}")
        if not 0 < summary.epoch < LAST_VERSION or summary.version >= LAST_VERSION:
            raise BadSummary("its epoch or version is out of range: no city could have reached it")
        if summary.fingerprint != self.fingerprint:
            raise BadSummary("it was made for other prices, shared features, policy or group")


def read_letter(wire: bytes) -> Letter:
    """A letter whose origin is a city's name, so that it may be kept, shown and logged."""
    letter = Letter.read(wire)
    if not NAME.fullmatch(letter.origin):
        raise BadSummary(f"{letter.origin!r:.50} is not a city's name")
    return letter


def is_newer(wire: bytes, stored: bytes) -> bool:
    """Whether a letter is to replace the one that is stored. A key that an operator trusts now may begin
    anew."""
    letter, other = read_letter(wire), read_letter(stored)
    return letter.key != other.key or letter.order > other.order
