"""Which cities sent what no honest city could have sent: the mark on each, its reason, and when it ends.

A well-sealed letter is its origin's own, whoever brings it: only its origin is asked about it. A letter that
cannot be read or whose seal is broken is the work of the city that brought it. A mark is shown and logged; it
keeps no letter out, because every letter is checked for itself. Pure: the clock is passed in.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pricemesh.gossip.bounds import make_room, shortened
from pricemesh.gossip.node import Node, Refusal

log = logging.getLogger("pricemesh.gossip")

CLEAN_EXCHANGES = 16  # after which a city that brought a damaged letter is believed to be in order again
LOG_AGAIN_SECONDS = 60.0  # the log repeats what it said of a city no sooner


@dataclass
class Mark:
    reason: str
    since: float
    via: str  # the city that sent the letter
    is_bringer: bool  # the city is to blame for what it brought, not for a letter of its own
    logged_at: float
    clean_exchanges: int = 0

    def ending(self, city: str) -> str:
        """What ends it, for people."""
        if self.is_bringer:
            return f"after {CLEAN_EXCHANGES - self.clean_exchanges} more exchanges without a damaged letter"
        return f"with the next acceptable letter of {city}, or when an operator trusts its key or drops it"


class Quarantine:
    def __init__(self, node: Node, clock: Callable[[], float]) -> None:
        self._node = node
        self._clock = clock
        self._max_marks = 2 * node.max_cities
        self.marks: dict[str, Mark] = {}  # by city
        self.impostor: Mark | None = None  # letters in this city's own name under another key

    def record(self, refusals: Iterable[Refusal], sender: str) -> bool:
        """These letters of one message were refused; whether its sender is not to blame for any of them."""
        is_clean = True
        for refusal in refusals:
            if refusal.is_sealed:
                self._mark(refusal.origin, refusal.reason, sender, is_bringer=False)
                continue
            is_clean = False
            reason = refusal.reason
            if refusal.origin != sender:
                reason = f"it sent a letter of {refusal.origin or 'an unknown city'}: {reason}"
            self._mark(sender, reason, sender, is_bringer=True)
        if is_clean:
            self.record_clean_exchange(sender)
        return is_clean

    def record_clean_exchange(self, sender: str) -> None:
        """A message of this city had no damaged letter."""
        mark = self.marks.get(sender)
        if mark is not None and mark.is_bringer:
            mark.clean_exchanges += 1
            if mark.clean_exchanges >= CLEAN_EXCHANGES:
                self.lift(sender)

    def record_letter(self, origin: str, sender: str, *, is_clean: bool) -> None:
        """An acceptable letter ends the mark of its origin. Where that had brought damaged letters, it has to
        bring this one itself, with no damaged one: others' relaying says nothing about it."""
        mark = self.marks.get(origin)
        if mark is not None and (not mark.is_bringer or (sender == origin and is_clean)):
            self.lift(origin)

    def lift(self, city: str) -> None:
        if self.marks.pop(city, None) is not None:
            log.info("a city is out of quarantine", extra={"peer": city})

    def _mark(self, city: str, reason: str, sender: str, *, is_bringer: bool) -> None:
        now = self._clock()
        current = self.impostor if city == self._node.origin else self.marks.get(city)
        is_new = current is None or abs(now - current.logged_at) >= LOG_AGAIN_SECONDS
        mark = Mark(
            shortened(reason),
            current.since if current else now,
            sender,
            is_bringer,
            now if current is None or is_new else current.logged_at,
        )
        if city == self._node.origin:
            self.impostor = mark
            if is_new:
                log.error(
                    "letters in this city's name are sealed with another key: if its database was set up "
                    "anew, its peers have to trust its new key",
                    extra={"via": sender, "fault": mark.reason},
                )
            return
        if current is not None or make_room(self.marks, self._max_marks, self._node.is_known):
            self.marks[city] = mark
        if is_new:
            log.warning("a city is in quarantine", extra={"peer": city, "reason": mark.reason, "via": sender})
