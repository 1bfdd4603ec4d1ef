"""Whether a version of a city's letters names one content, whoever published it."""

import numpy as np

from pricemesh.gossip.letter import Letter
from pricemesh.lab.torture.ledger import Violated
from pricemesh.lab.torture.simulated_city import SimulatedCity

Name = tuple[str, bytes, tuple[int, int]]  # origin, key, edition
TOLERANCE = 1e-6  # replicas learn the same lessons, not always in the same groups


class Contents:
    """Of all letters that any process has had."""

    def __init__(self) -> None:
        self._letters: dict[Name, Letter] = {}
        self._known: dict[int, Letter] = {}  # by identity, which no other object gets while it is here

    def check(self, cities: list[SimulatedCity]) -> None:
        """A city that goes on from a backup uses versions again, until it hears of it."""
        skipped = {city.name for city in cities if city.lineage}
        for city in cities:
            for process in city.serving:
                for letter in process.app.gossip.node.letters.values():
                    if id(letter) not in self._known and letter.origin not in skipped:
                        self._add(letter, process.name)

    def _add(self, letter: Letter, holder: str) -> None:
        known = self._letters.setdefault((letter.origin, letter.key, letter.edition), letter)
        self._known[id(letter)] = letter
        one, other = known.summary.numbers, letter.summary.numbers
        is_same = one.shape == other.shape and np.allclose(
            one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
        )
        if not is_same:
            seen = f"{holder} has another letter {letter.edition} of {letter.origin} than was seen before"
            raise Violated("a version names one content", seen)
