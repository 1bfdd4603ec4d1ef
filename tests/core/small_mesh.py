"""A mesh of three cities with unequal numbers of local features, and the raw history of each.

The cities learn at random for 200 rounds and exchange summaries, in wire form, at some of them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.policies import Learner, Policy, Shape
from pricemesh.core.summary import Summaries, Summary, merge
from tests.core.histories import History, random_observation

ARMS, SHARED, LOCALS, ROUNDS = 3, 4, (2, 0, 3), 200
CITIES = ("a", "b", "c")

Expected = Callable[[int, Array], tuple[list[Any], list[Any]]]


class SmallMesh:
    """Three cities that learn at random and exchange summaries, and the raw history of each."""

    def __init__(self, policy: Policy, gossip_every: int, seed: int = 11, rounds: int = ROUNDS) -> None:
        rng = np.random.default_rng(seed)
        self.learners: list[Learner] = [policy.learner(Shape(ARMS, SHARED, s)) for s in LOCALS]
        self.histories = [History(ARMS, SHARED, s) for s in LOCALS]
        self.exchanges: list[list[int]] = []  # the number of rows of each city at each exchange
        for index in range(rounds):
            if index % gossip_every == 0:
                self.exchange(index)
            for learner, history in zip(self.learners, self.histories, strict=True):
                x, arm, reward = random_observation(rng, SHARED + history.local, ARMS)
                learner.learn(x, arm, reward)
                history.add(x, arm, reward)
        self.probes = [rng.normal(size=(5, SHARED + s)) for s in LOCALS]

    def exchange(self, version: int) -> None:
        self.exchanges.append([len(history.rows) for history in self.histories])
        if not self.learners[0].fields:
            return
        summaries = [
            Summary.of(city, 1, version, bytes(16), learner.numbers())
            for city, learner in zip(CITIES, self.learners, strict=True)
        ]
        newest: Summaries = merge({}, [Summary.from_bytes(summary.to_bytes()) for summary in summaries])
        for city, learner in zip(CITIES, self.learners, strict=True):
            learner.absorb_summaries(city, newest)

    def cut(self, city: int, rows: int) -> History:
        """The first rows of a city's history."""
        history = self.histories[city]
        return History(ARMS, SHARED, history.local, history.rows[:rows])

    def at_last_exchange(self, city: int) -> History:
        """The rows that the city's newest summary covers."""
        return self.cut(city, self.exchanges[-1][city])

    def check(self, expected: Expected) -> None:
        """Compare the scores of all cities with `expected(city, x)`: the estimates and radii of all arms."""
        for i, learner in enumerate(self.learners):
            for x in self.probes[i]:
                score = learner.score(x)
                estimates, radii = expected(i, x)
                np.testing.assert_allclose(score.estimate, estimates, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(score.radius, radii, rtol=1e-9, atol=1e-9)
