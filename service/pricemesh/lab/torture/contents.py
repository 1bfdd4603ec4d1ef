"""What letters say: a version names one content, whoever published it, and that is what was learned."""

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.policies import Learner
from pricemesh.gossip.letter import Letter
from pricemesh.lab.torture.ledger import Violated
from pricemesh.lab.torture.liar import NAME as LIAR
from pricemesh.lab.torture.simulated_city import SimulatedCity

Name = tuple[str, bytes, tuple[int, int]]  # origin, key, edition
TOLERANCE = 1e-6  # replicas learn the same lessons, not always in the same groups


def check_letter(city: SimulatedCity, learner: Learner) -> None:
    """Whether a city has told its peers what it has learned: this learner has, too."""
    gossip = None if city.publisher is None else city.publisher.app.gossip.publisher
    if gossip is None or gossip.letter is None or gossip.unpublished_lessons:
        return
    told, known = gossip.letter.summary.numbers, learner.numbers()
    layout = learner.layout
    names = [field.name for field in layout.fields if field.name != "noise"]  # of an arm without news: older
    if not all(_are_close(layout.part(name, told), layout.part(name, known)) for name in names):
        seen = f"{city.name}: the letter {gossip.letter.edition} tells otherwise"
        raise Violated("peers are told what was learned", seen)


def _are_close(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(
        one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
    )


class Contents:
    """Of all letters that any process has had."""

    def __init__(self) -> None:
        self._letters: dict[Name, Letter] = {}
        self._known: dict[int, Letter] = {}  # by identity, which no other object gets while it is here

    def check(self, cities: list[SimulatedCity]) -> None:
        """A city that goes on from a backup uses versions again, until it hears of it; a liar as it likes."""
        skipped = {city.name for city in cities if city.lineage} | {LIAR}
        for city in cities:
            for process in city.serving:
                for letter in process.app.gossip.node.letters.values():
                    if id(letter) not in self._known and letter.origin not in skipped:
                        self._add(letter, process.name)

    def _add(self, letter: Letter, holder: str) -> None:
        known = self._letters.setdefault((letter.origin, letter.key, letter.edition), letter)
        self._known[id(letter)] = letter
        if not _are_close(known.summary.numbers, letter.summary.numbers):
            seen = f"{holder} has another letter {letter.edition} of {letter.origin} than was seen before"
            raise Violated("a version names one content", seen)
