"""The choice of an arm in the simulator and the service: the highest upper bound, or an arm drawn at random.

An arm is drawn from the probabilities that are computed here, so that the one that is recorded is exact,
whatever the error of its integral.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pricemesh.core.arrays import Array, Ints
from pricemesh.core.thompson import draw, propensities
from pricemesh.core.ucb import Score, choose


class Randomness(NamedTuple):
    """What makes a choice random: the deviation of every arm's estimate, and a number in [0, 1)."""

    deviation: Array  # (..., K)
    uniform: Array  # (...)


class Choice(NamedTuple):
    arm: Ints  # (...)
    propensity: Array  # (...), the probability with which the arm was chosen


def decide(score: Score, randomness: Randomness | None, allowed: NDArray[np.bool_] | None = None) -> Choice:
    """Without `randomness` the highest upper bound, with certainty."""
    if randomness is None:
        arm = choose(score, allowed)
        return Choice(arm, np.ones(np.shape(arm)))
    p = propensities(score.estimate, randomness.deviation, allowed)
    arm = draw(p, randomness.uniform)
    return Choice(arm, np.take_along_axis(p, arm[..., None], axis=-1)[..., 0])
