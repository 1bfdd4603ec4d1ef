"""The features of a demand curve: what the chance of a sale at a price and in a context may depend on.

With u the position of a price in [-1, 1], x_c the shared and x_s the local features, the logit of the chance
is linear in z_k = [1, u_k | x_c | u_k x_c | r_k || x_s | u_k x_s]. r_k are the coordinates of an arm effect:
what a single price has beyond the curve; effects of neighbouring arms resemble each other. Left of || is
what cities share. If their ladders differ, r_k is not shared.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pricemesh.core.arrays import Array, Ints
from pricemesh.core.ladder import Ladder

# Prior variances of the coefficients.
INTERCEPT, SLOPE, MAIN, INTERACTION, ARM = 4.0, 4.0, 1.0, 0.5, 0.05
LOCAL_MAIN, LOCAL_INTERACTION = 1.0, 0.25

MAX_ARM_SQUARE = 1.0  # |r_k|^2, the diagonal of the kernel
ARM_NUGGET = 0.3  # the part of an arm effect that its neighbours know nothing of
ARM_REACH = 1.5  # in arms: how far the rest of it reaches


def arm_kernel(arms: int) -> Array:
    """The correlation of the arm effects, (K, K)."""
    distance = np.subtract.outer(np.arange(arms), np.arange(arms)) / ARM_REACH
    return ARM_NUGGET * np.eye(arms) + (1.0 - ARM_NUGGET) * np.exp(-0.5 * distance**2)


@dataclass(frozen=True)
class Basis:
    """The places of the coefficients, and the map from a context to z."""

    ladder: Ladder
    arms: int
    shared: int
    local: int

    @property
    def size(self) -> int:
        """p, of all coefficients."""
        return 2 + 2 * (self.shared + self.local) + self.arms

    @property
    def common_size(self) -> int:
        """n, of those that cities share; they come first."""
        return 2 + 2 * self.shared + (self.arms if self.ladder.is_common else 0)

    @property
    def main(self) -> slice:
        return slice(2, 2 + self.shared)

    @property
    def interaction(self) -> slice:
        return slice(2 + self.shared, 2 + 2 * self.shared)

    @property
    def arm_effects(self) -> slice:
        return slice(2 + 2 * self.shared, 2 + 2 * self.shared + self.arms)

    @cached_property
    def prior_variance(self) -> Array:
        """(p,)"""
        variance = np.empty(self.size)
        variance[0], variance[1] = INTERCEPT, SLOPE
        variance[self.main], variance[self.interaction], variance[self.arm_effects] = MAIN, INTERACTION, ARM
        first = self.arm_effects.stop
        variance[first : first + self.local] = LOCAL_MAIN
        variance[first + self.local :] = LOCAL_INTERACTION
        return variance

    @cached_property
    def arm_coordinates(self) -> Array:
        """r (K, K)."""
        return np.asarray(np.linalg.cholesky(arm_kernel(self.arms)), dtype=np.float64)

    @cached_property
    def maps(self) -> Array:
        """A (..., K, p, 1 + d): z_k = A_k [1, x]."""
        c, s, positions = self.shared, self.local, self.ladder.positions
        maps = np.zeros((*positions.shape, self.size, 1 + c + s))
        u = positions[..., None]
        shared, local = 1 + np.arange(c), 1 + c + np.arange(s)
        first = self.arm_effects.stop + np.arange(s)
        maps[..., 0, 0] = 1.0
        maps[..., 1, 0] = positions
        maps[..., self.main.start + np.arange(c), shared] = 1.0
        maps[..., self.interaction.start + np.arange(c), shared] = u
        maps[..., self.arm_effects, 0] = self.arm_coordinates
        maps[..., first, local] = 1.0
        maps[..., first + s, local] = u
        return maps

    def rows(self, x: Array, arms: Ints) -> Array:
        """z (..., p) of contexts x (..., d) at the chosen arms (...)."""
        maps = self.maps
        if maps.ndim == 3:
            chosen = maps[arms]
        else:
            at = np.indices(arms.shape, sparse=True)
            chosen = np.broadcast_to(maps, (*arms.shape, *maps.shape[-3:]))[(*at, arms)]
        rows: Array = np.matvec(chosen[..., 1:], x)
        return rows + chosen[..., 0]

    def rows_at(self, x: Array, prices: Array) -> Array:
        """z (m, p) of one context x (d,) of one city at any prices (m,). Between two arms the arm effect is
        interpolated linearly; beyond the outer arms it stays as theirs. At an arm's price z is that arm's."""
        u, c = self.ladder.positions_of(prices)[:, None], self.shared
        place = np.interp(prices, self.ladder.prices, np.arange(self.arms))
        below = place.astype(np.int64)
        above, part = np.minimum(below + 1, self.arms - 1), (place - below)[:, None]
        effects = (1.0 - part) * self.arm_coordinates[below] + part * self.arm_coordinates[above]
        one = np.ones_like(u)
        shared, local = x[None, :c], x[None, c:]
        return np.hstack([one, u, one * shared, u * shared, effects, one * local, u * local])
