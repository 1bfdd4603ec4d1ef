"""One city's place in the mesh: the letters it has, and both sides of an exchange. Pure: no socket, no clock.

The newest letter of each origin wins, so cities that have exchanged have the same letters, whatever was lost,
duplicated, delayed or relayed before.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pricemesh.city.addresses import CITY_NAME
from pricemesh.core.arrays import Ints
from pricemesh.core.summary import Summaries, Summary, merge
from pricemesh.errors import BadSummary
from pricemesh.gossip.bounds import LAST_VERSION
from pricemesh.gossip.difference import Difference, Unbuildable, difference, rebuild
from pricemesh.gossip.digests import changed_entries
from pricemesh.gossip.letter import Leave, Letter
from pricemesh.gossip.message import (
    ABSENT,
    UNWANTED,
    Digest,
    Edition,
    Message,
    number_of_entry,
    state_of_sum,
)

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
    unbuilt_origins: frozenset[str] = frozenset()  # of differences from letters that this city does not have


@dataclass
class _Checking:
    """How far the check of one letter came."""

    origin: str = ""
    is_sealed: bool = False


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
        blocks: Ints | None = None,
    ) -> None:
        """`blocks` has the block of every number of a summary; without it letters travel whole."""
        self.origin = origin
        self.fingerprint = fingerprint
        self.check_summary = check_summary
        self._cities = cities
        # Known before the first letter. A city's own key is in its database, whatever a configuration says.
        self.named_keys = {name: key for name, key in (city_keys or {}).items() if name != origin}
        self.max_cities = max_cities
        self.max_bytes = max_bytes  # of letters in one message
        self._blocks = blocks
        self.letters: dict[str, Letter] = {}
        self.dropped_origins: set[str] = set()
        self.trusted_keys: dict[str, bytes] = {}  # named by an operator
        self.digest: dict[str, Edition] = {}  # another object with every change: others remember it
        self._sum = 0  # of the digest's entries, see `state_of_sum`
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
    def state(self) -> bytes:
        if self._state is None:
            self._state = state_of_sum(self.fingerprint, self._sum)
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
        changed = {
            letter.origin: letter.edition
            for letter in admitted
            if self.letters[letter.origin] is letter and self.digest.get(letter.origin) != letter.edition
        }
        if changed:
            digest = {**self.digest, **changed}
            self._sum += sum(number_of_entry(*entry) for entry in changed.items())
            replaced = ((origin, self.digest[origin]) for origin in changed if origin in self.digest)
            self._sum -= sum(number_of_entry(*entry) for entry in replaced)
            self.digest, self._state = digest, None

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
        editions = {origin: letter.edition for origin, letter in self.letters.items()}
        self.digest = editions | dict.fromkeys(self.dropped_origins, UNWANTED)
        self._sum = sum(number_of_entry(*entry) for entry in self.digest.items())
        self._state = None

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

    def full_message(
        self,
        letters: Iterable[Letter] = (),
        receiver: tuple[bytes, Digest] | None = None,
        whole: Collection[str] = (),
        asks_whole: Collection[str] = (),
    ) -> Message:
        """The editions of all letters that this city has, and these letters themselves. Of a receiver whose
        state and digest are known, only what differs is said: entries of the digest, and of a letter that it
        has older, the difference, except of the origins in `whole`. `asks_whole` are letters that this city
        could not build from a difference."""
        state, digest = receiver or (b"", {})
        wires: list[bytes] = []
        differences: list[Difference] = []
        for letter in letters:
            epoch, since = digest.get(letter.origin, NOTHING)
            item = None
            if self._blocks is not None and epoch == letter.summary.epoch and letter.origin not in whole:
                item = difference(letter, since, self._blocks)
            if item is None:
                wires.append(letter.wire)
            else:
                differences.append(item)
        return Message(
            self.origin,
            self.fingerprint,
            changed_entries(self.digest, digest) if receiver else self.digest,
            tuple(wires),
            tuple(differences),
            tuple(sorted(asks_whole)),
            state,
            state=self.state,
        )

    def own_letter_missing_in(self, digest: Digest) -> list[Letter]:
        """This city's own letter, if the owner of `digest` lacks it or has it older."""
        letter, edition = self.letters.get(self.origin), digest.get(self.origin, NOTHING)
        return [] if letter is None or edition == UNWANTED or edition >= letter.edition else [letter]

    def letters_missing_in(
        self, digest: Digest, was_delivered: Callable[[Delivery], bool] = lambda _: False
    ) -> list[Letter]:
        """The letters that the owner of `digest` lacks or has older, except those that were delivered, as
        many as one message carries; this city's own first."""
        missing = [
            origin
            for origin, edition in self.digest.items()
            if edition != digest.get(origin, NOTHING) and edition != UNWANTED
        ]
        letters: list[Letter] = []
        size = 0
        for origin in sorted(missing, key=lambda origin: (origin != self.origin, origin)):
            letter = self.letters[origin]
            edition = digest.get(origin, NOTHING)
            if edition == UNWANTED or edition >= letter.edition:
                continue
            if was_delivered((origin, letter.edition, digest.get(origin))):
                continue
            size += len(letter.wire) + LETTER_HEADER_BYTES
            if letters and size > self.max_bytes:
                break
            letters.append(letter)
        return letters

    def origins_newer_in(self, digest: Digest) -> set[str]:
        """The origins of which the owner of `digest` has a letter that this city lacks or has older."""
        own = self.digest
        newer = {
            origin
            for origin, edition in digest.items()
            if edition > own.get(origin, NOTHING) and edition not in (UNWANTED, ABSENT)
        }
        return newer - self.dropped_origins

    def is_leaving(self, message: Message, now: float) -> bool:
        """Whether the sender says so under its own seal."""
        letter = self.letters.get(message.sender)
        return bool(message.leave) and letter is not None and Leave.is_valid(message.leave, letter, now)

    # Checking letters

    def check_letters(self, wires: Iterable[bytes], differences: Iterable[Difference] = ()) -> CheckedLetters:
        """Which of the letters received may count; a letter is checked completely before it does."""
        fresh: dict[str, Letter] = {}
        refusals: list[Refusal] = []
        unbuilt: set[str] = set()
        own = None
        items: list[bytes | Difference] = [*wires, *differences]
        for item in items:
            if len(refusals) >= MAX_REFUSALS:
                break
            checking = _Checking()
            try:
                letter = self._check(item, fresh, checking)
            except Unbuildable:
                unbuilt.add(checking.origin)
                continue
            except BadSummary as fault:
                refusals.append(Refusal(checking.origin, str(fault), checking.is_sealed))
                continue
            if letter is None:
                continue
            if letter.origin == self.origin:
                own = letter
            else:
                fresh[letter.origin] = letter
        return CheckedLetters(list(fresh.values()), refusals, own, frozenset(unbuilt))

    def _check(
        self, item: bytes | Difference, fresh: Mapping[str, Letter], checking: "_Checking"
    ) -> Letter | None:
        """The letter, if it may count; None if it is passed over."""
        named = item if isinstance(item, Difference) else read_letter(item)
        origin = checking.origin = named.origin
        if origin in self.dropped_origins:
            return None
        newest = fresh.get(origin) or self.letters.get(origin)
        letter = self._rebuild(named, newest) if isinstance(named, Difference) else named
        if letter is None:
            return None
        is_old = newest is not None and letter.order <= newest.order
        if is_old and letter.key == self.key_of(origin, newest):
            return None
        letter.verify()
        checking.is_sealed = True
        if letter.summary.fingerprint != self.fingerprint and origin != self.origin:
            return None  # of other terms: nobody's fault
        self.admit(letter, newest, len(fresh))
        if origin != self.origin:
            self.check_summary(letter.summary)
        return letter

    def _rebuild(self, item: Difference, newest: Letter | None) -> Letter | None:
        if newest is not None and item.edition <= newest.edition:
            return None  # this city has it, or a newer one
        if self._blocks is None:
            raise Unbuildable
        return rebuild(item, newest, self._blocks)

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
    letter = read_letter(wire)
    try:
        other = read_letter(stored)
    except BadSummary:  # of a format that is read no more
        return True
    return letter.key != other.key or letter.order > other.order
