"""The scale of rewards, read from the data, so that their unit does not matter.

sigma^2 is the noise of rewards; v is the variance that the coefficients have around zero, per coordinate.
A ridge of sigma^2 / v is then the ridge of the posterior, and 2 sigma sqrt(x'V^-1 x) two of its standard
deviations. Multiplying all rewards by a constant multiplies sigma and sqrt(v) by it and leaves the ridge.

Axes: `...` any batch of cities, K arms, c shared features.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.comparison import median_of_positive

MIN_OBSERVATIONS = 60  # in all cities together; before, the scale of rewards stands in for their noise
MIN_RIDGE, MAX_RIDGE = 0.02, 20.0
RIDGE_STEPS = 30  # of the fixed-point iteration; each costs K c operations
DEVIATIONS = 2.0  # in a radius


class Scale(NamedTuple):
    """Zero where it is not known."""

    variance: Array  # sigma^2 (...)
    ridge: Array  # (...)


NO_SCALE = Scale(np.zeros(()), np.zeros(()))


def noise_of_mesh(noise: Array, count: Array) -> Array:
    """sigma^2, (...): the median over cities (..., J, K) of the mean noise of each, weighted by its counts;
    zero without any reward."""
    total = count.sum(axis=-1)
    city = (noise * count).sum(axis=-1) / np.maximum(total, 1.0)
    return median_of_positive(city[..., None])[..., 0]


def fitted_ridge(information: Array, response: Array, variance: Array) -> Array:
    """sigma^2 / v with v = mean over arms of (|theta|^2 + sigma^2 tr (Lambda + ridge I)^-1) / c, solved for
    the ridge by iteration from 1: empirical Bayes. Lambda (..., K, c, c), h (..., K, c), sigma^2 (...)."""
    values, vectors = np.linalg.eigh(information)
    values = np.maximum(values, 0.0)
    projection = np.vecmat(response, vectors) ** 2
    noise = np.where(variance > 0, variance, 1.0)[..., None, None]
    ridge = np.ones_like(variance)
    for _ in range(RIDGE_STEPS):
        sums = values + ridge[..., None, None]
        v = (projection / (sums * sums) / noise + 1.0 / sums).mean(axis=(-1, -2))
        ridge = np.clip(1.0 / v, MIN_RIDGE, MAX_RIDGE)
    return ridge


def is_due(count: int) -> bool:
    """Whether a city alone reads its scale anew after this many rewards: at 64, 96, 128, 192, 256 and so on,
    twice between powers of two. A restart meets the same counts."""
    return count >= MIN_OBSERVATIONS and count % (1 << (count.bit_length() - 2)) == 0


@dataclass
class Scales:
    """What a learner knows of the scale of rewards, and which of it is in force.

    `mesh` is what the last letters say; `alone` what the city's own rewards said when it was last due, which
    is in force without peers. Before either is known, the mean square of the city's rewards takes the place
    of sigma^2: all of them have the unit of a squared reward.
    """

    mesh: Scale
    alone: Scale

    @classmethod
    def unknown(cls, batch: tuple[int, ...]) -> "Scales":
        nothing = Scale(np.zeros(batch), np.zeros(batch))
        return cls(nothing, nothing)

    def in_force(self, squares: Array, count: Array) -> Scale:
        """By the city's sum of squared rewards and their number, (...) each."""
        mean_square = squares / np.maximum(count, 1.0)
        # Without any reward all estimates are zero, and any variance leads to the same choice.
        variance = np.where(self.mesh.variance > 0, self.mesh.variance, 1.0)
        variance = np.where(mean_square > 0, mean_square, variance)
        ridge = np.ones_like(variance)
        for scale in (self.alone, self.mesh):
            is_known = scale.ridge > 0
            variance = np.where(is_known, scale.variance, variance)
            ridge = np.where(is_known, scale.ridge, ridge)
        return Scale(variance, ridge)
