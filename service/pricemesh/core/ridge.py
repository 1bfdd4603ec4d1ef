"""Ridge regression per arm, one observation at a time.

`Tallies` are W = ridge*I + sum x x', b = sum r x, the counts and sum r^2; `Ridge` keeps the inverse of W
and theta = W^-1 b current besides. They know nothing of peers, shared parts or exploration.
"""

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from math import sqrt
from types import EllipsisType
from typing import Self

import numpy as np

from pricemesh.core.arrays import Array, Ints

# A rank-one update of the inverse adds rounding error, the more the further the context reaches beyond
# all seen before (x'W^-1 x). The inverse is recomputed from W after so many of an arm's updates, and at
# once when a context reaches far, or rounding has let it reach less far than nowhere.
REFRESH_EVERY = 128
REFRESH_BEYOND = 100.0

# What a fit is loosened by to see the noise, and how many observations the coarser guess counts for.
LOOSENED = 0.01
GUESS_COUNTS_FOR = 4.0

Index = tuple[Ints | int | EllipsisType, ...]


def inverse_of_positive_definite(matrix: Array) -> Array:
    """Inverse by Cholesky, exactly symmetric; (..., d, d). A matrix that rounding has made singular gets
    the inverse of the nearest one that is not."""
    try:
        lower = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        floor = values[..., -1:] * matrix.shape[-1] * np.finfo(np.float64).eps
        half = vectors / np.sqrt(np.maximum(values, floor))[..., None, :]
        return np.asarray(np.matmul(half, half.swapaxes(-1, -2)))
    root = np.linalg.solve(lower, np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape))
    inverse: Array = np.matmul(root.swapaxes(-1, -2), root)
    return inverse


def is_one_city(at: Index) -> bool:
    return len(at) == 1 and isinstance(at[0], int)


def outer(x: Array) -> Array:
    product: Array = x[..., None] * x[..., None, :]
    return product


@dataclass
class Tallies:
    """The natural parameters of all arms of one city, or of a batch of cities: arrays start with (..., K)."""

    gram: Array  # W (..., K, d, d)
    response: Array  # b (..., K, d)
    count: Array  # (..., K)
    squares: Array  # sum r^2 (..., K)

    @classmethod
    def fresh(cls, batch: tuple[int, ...], arms: int, dim: int, ridge: float) -> Self:
        eye = np.broadcast_to(np.eye(dim), (*batch, arms, dim, dim))
        per_arm = (*batch, arms)
        return cls(eye * ridge, np.zeros((*per_arm, dim)), np.zeros(per_arm), np.zeros(per_arm))

    def add(self, at: Index, x: Array, reward: Array, square: Array | None = None) -> None:
        """Add one observation where `at` picks one arm in every city; x (..., d), reward (...). `square` is
        x x' where it is known already."""
        square = outer(x) if square is None else square
        if is_one_city(at):
            gram, response = self.gram[at], self.response[at]  # views: nothing to be put back
            gram += square
            response += float(reward) * x
        else:
            self.gram[at] += square
            self.response[at] += reward[..., None] * x
        self.squares[at] += reward * reward
        self.count[at] += 1.0

    def noise(self, ridge: float) -> Array:
        """The variance of the noise in each arm's rewards, (..., K); zero before any reward.

        A ridge fit leaves part of the signal in its residuals, which at low noise is most of them. So the
        fit is loosened until only directions never seen are held, and the residuals are divided by the
        degrees of freedom it then has. Where those are few, an arm leans on all arms of the city, and
        the city on its penalised fit.
        """
        residual, freedom = self._residual(ridge, LOOSENED * ridge)
        coarse, coarse_freedom = self._residual(ridge, ridge)
        guess = coarse.sum(axis=-1) / np.maximum(coarse_freedom.sum(axis=-1), 1e-9)
        some = GUESS_COUNTS_FOR
        city = (residual.sum(axis=-1) + some * guess) / (freedom.sum(axis=-1) + some)
        arm = (residual + some * city[..., None]) / (freedom + some)
        size = self.squares.sum(axis=-1) / np.maximum(self.count.sum(axis=-1), 1.0)
        floored: Array = np.maximum(arm, 1e-8 * size[..., None])
        return floored

    def _residual(self, ridge: float, loosened: float) -> tuple[Array, Array]:
        """Sum of squared residuals of the fit with the ridge `loosened` in place of `ridge`, and its
        n - 2 tr H + tr H^2 = n - d + loosened^2 |fit|^2."""
        dim = self.gram.shape[-1]
        fit = inverse_of_positive_definite(self.gram - (ridge - loosened) * np.eye(dim))
        theta = np.matvec(fit, self.response)
        penalty = loosened * np.vecdot(theta, theta)
        residual = self.squares - np.vecdot(self.response, theta) - penalty
        freedom = self.count - dim + loosened**2 * (fit * fit).sum(axis=(-1, -2))
        return np.maximum(residual, 0.0), np.maximum(freedom, 0.0)

    def state(self) -> dict[str, Array]:
        return {
            "gram": self.gram,
            "response": self.response,
            "count": self.count,
            "squares": self.squares,
        }

    def restore(self, state: dict[str, Array]) -> None:
        self.gram, self.response = state["gram"], state["response"]
        self.count, self.squares = state["count"], state["squares"]


@dataclass
class Ridge(Tallies):
    """Tallies with the inverse of W and theta = W^-1 b kept current."""

    inverse: Array = dataclass_field(init=False)
    theta: Array = dataclass_field(init=False)

    def __post_init__(self) -> None:
        self.refresh()

    def learn(self, at: Index, x: Array, reward: Array, square: Array | None = None) -> None:
        """Add one observation and follow it with the inverse and theta."""
        self.add(at, x, reward, square)
        if is_one_city(at):
            self._follow_one(at, x)
            return
        inverse = self.inverse[at]
        gain = np.matvec(inverse, x)
        reach = np.vecdot(x, gain)
        inverse = inverse - outer(gain / np.sqrt(1.0 + np.maximum(reach, 0.0))[..., None])
        due = (self.count[at] % REFRESH_EVERY == 0) | ~((reach >= 0.0) & (reach <= REFRESH_BEYOND))
        if np.count_nonzero(due):
            inverse[due] = inverse_of_positive_definite(self.gram[at][due])
        self.inverse[at] = inverse
        self.theta[at] = np.matvec(inverse, self.response[at])

    def _follow_one(self, at: Index, x: Array) -> None:
        """The same for one city, in place and by plain products: numpy takes most of its time to begin."""
        inverse: Array = self.inverse[at]
        gain = inverse.dot(x)
        reach = float(x.dot(gain))
        if self.count[at] % REFRESH_EVERY == 0 or not 0.0 <= reach <= REFRESH_BEYOND:
            inverse[:] = inverse_of_positive_definite(self.gram[at])
        else:
            gain /= sqrt(1.0 + reach)
            inverse -= outer(gain)
        inverse.dot(self.response[at], self.theta[at])

    def restore(self, state: dict[str, Array]) -> None:
        super().restore(state)
        self.refresh()

    def refresh(self) -> None:
        """Derive the inverse and theta of every arm from W and b."""
        self.inverse = inverse_of_positive_definite(self.gram)
        self.theta = np.matvec(self.inverse, self.response)
