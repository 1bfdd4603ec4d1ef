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


class Sampling(NamedTuple):
    """Thompson sampling from normal rewards of mean estimate + optimism radius, deviation scale radius."""

    optimism: float
    scale: float

    def propensities(self, score: Score, allowed: NDArray[np.bool_] | None = None) -> Array:
        """The probability of each arm, (..., K)."""
        mean = score.estimate + self.optimism * score.radius
        return propensities(mean, self.scale * score.radius, allowed)


class Randomness(NamedTuple):
    """How an arm is drawn, and a number in [0, 1) for each choice, (...)."""

    sampling: Sampling
    uniform: Array


class Choice(NamedTuple):
    arm: Ints  # (...)
    propensity: Array  # (...), the probability with which the arm was chosen


def decide(score: Score, randomness: Randomness | None, allowed: NDArray[np.bool_] | None = None) -> Choice:
    """Without `randomness` the highest upper bound, with certainty."""
    if randomness is None:
        arm = choose(score, allowed)
        return Choice(arm, np.ones(np.shape(arm)))
    p = randomness.sampling.propensities(score, allowed)
    arm = draw(p, randomness.uniform)
    return Choice(arm, np.take_along_axis(p, arm[..., None], axis=-1)[..., 0])


def probabilities(score: Score, sampling: Sampling | None, allowed: NDArray[np.bool_] | None = None) -> Array:
    """With which each arm would be chosen, (..., K)."""
    if sampling is not None:
        return sampling.propensities(score, allowed)
    certain: Array = np.eye(score.estimate.shape[-1])[choose(score, allowed)]
    return certain
