"""Ridge regression per arm, updated one observation at a time.

`RidgeStatistics` are W = ridge*I + sum x x', b = sum r x, the counts and sum r^2; `Ridge` also keeps the
inverse of W and theta = W^-1 b current. Neither knows of peers, shared features or exploration.
"""

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from math import sqrt
from types import EllipsisType
from typing import NamedTuple, Self

import numpy as np

from pricemesh.core.arrays import Array, Ints

# A rank-one update of the inverse adds rounding error, the more the larger the leverage x'W^-1 x. The inverse
# is recomputed from W after this many updates of an arm, and at once when the leverage is above the limit or
# rounding made it negative.
REFRESH_INTERVAL_UPDATES = 128
MAX_LEVERAGE = 100.0

# The noise is estimated from a fit with this fraction of the ridge; the coarser estimate that it falls back
# on counts for this many observations.
NOISE_RIDGE_FRACTION = 0.01
PRIOR_OBSERVATIONS = 4.0

Index = tuple[Ints | int | EllipsisType, ...]


def inverse_of_positive_definite(matrix: Array) -> Array:
    """Inverse by Cholesky, exactly symmetric; (..., d, d). Where rounding made the matrix singular, the
    smallest eigenvalues are raised until it is not."""
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
    """Whether `at` is the arm of a single city, so that indexing by it gives views."""
    return len(at) == 1 and isinstance(at[0], int)


class Terms(NamedTuple):
    """What one observation per city adds to the statistics."""

    gram: Array  # x x' (..., d, d)
    response: Array  # r x (..., d)
    square: Array  # r^2 (...)


def terms(x: Array, reward: Array) -> Terms:
    """Of x (..., d) and reward (...)."""
    response = float(reward) * x if x.ndim == 1 else reward[..., None] * x
    return Terms(outer(x), response, reward * reward)


def outer(x: Array) -> Array:
    """x x' for x (..., d)."""
    if x.ndim == 1:  # by BLAS, in half the time
        one: Array = x[:, None].dot(x[None, :])
        return one
    product: Array = x[..., None] * x[..., None, :]
    return product


@dataclass
class RidgeStatistics:
    """The sufficient statistics of all arms of one city or of a batch; arrays start with (..., K)."""

    gram: Array  # W (..., K, d, d)
    response: Array  # b (..., K, d)
    count: Array  # (..., K)
    squares: Array  # sum r^2 (..., K)

    @classmethod
    def fresh(cls, batch: tuple[int, ...], arms: int, dim: int, ridge: float) -> Self:
        eye = np.broadcast_to(np.eye(dim), (*batch, arms, dim, dim))
        per_arm = (*batch, arms)
        return cls(eye * ridge, np.zeros((*per_arm, dim)), np.zeros(per_arm), np.zeros(per_arm))

    def add(self, at: Index, added: Terms) -> None:
        """Add one observation per city, at the arm that `at` selects."""
        if is_one_city(at):
            gram, response = self.gram[at], self.response[at]  # views, updated in place
            gram += added.gram
            response += added.response
        else:
            self.gram[at] += added.gram
            self.response[at] += added.response
        self.squares[at] += added.square
        self.count[at] += 1.0

    def noise(self, ridge: float) -> Array:
        """The variance of the noise in each arm's rewards, (..., K); zero before any reward.

        A ridge fit leaves part of the signal in its residuals; at low noise that part dominates. So the fit
        uses a small fraction of the ridge, which then holds back only directions without data, and the
        residuals are divided by its degrees of freedom. Where those are few, an arm falls back on all arms
        of the city, and the city on the fit with the full ridge.
        """
        residual, freedom = self._residual(ridge, NOISE_RIDGE_FRACTION * ridge)
        full_residual, full_freedom = self._residual(ridge, ridge)
        prior = full_residual.sum(axis=-1) / np.maximum(full_freedom.sum(axis=-1), 1e-9)
        extra = PRIOR_OBSERVATIONS
        city = (residual.sum(axis=-1) + extra * prior) / (freedom.sum(axis=-1) + extra)
        arm = (residual + extra * city[..., None]) / (freedom + extra)
        mean_square = self.squares.sum(axis=-1) / np.maximum(self.count.sum(axis=-1), 1.0)
        variance: Array = np.maximum(arm, 1e-8 * mean_square[..., None])
        return variance

    def _residual(self, ridge: float, fit_ridge: float) -> tuple[Array, Array]:
        """Of the fit with `fit_ridge` in place of `ridge`: the sum of squared residuals and the degrees of
        freedom n - 2 tr H + tr H^2 = n - d + fit_ridge^2 |(X'X + fit_ridge I)^-1|^2."""
        dim = self.gram.shape[-1]
        inverse = inverse_of_positive_definite(self.gram - (ridge - fit_ridge) * np.eye(dim))
        theta = np.matvec(inverse, self.response)
        penalty = fit_ridge * np.vecdot(theta, theta)
        residual = self.squares - np.vecdot(self.response, theta) - penalty
        freedom = self.count - dim + fit_ridge**2 * (inverse * inverse).sum(axis=(-1, -2))
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
class Ridge(RidgeStatistics):
    """The statistics with the inverse of W and theta = W^-1 b kept current."""

    inverse: Array = dataclass_field(init=False)
    theta: Array = dataclass_field(init=False)

    def __post_init__(self) -> None:
        self.refresh()

    def learn(self, at: Index, x: Array, reward: Array) -> None:
        """Add one observation per city, x (..., d) and reward (...), at the arm that `at` selects."""
        self.learn_terms(at, x, terms(x, reward))

    def learn_terms(self, at: Index, x: Array, added: Terms) -> None:
        """As `learn`, for a caller that has the terms. The inverse follows by Sherman and Morrison."""
        self.add(at, added)
        if is_one_city(at):
            self._update_one_city(at, x)
            return
        inverse = self.inverse[at]
        gain = np.matvec(inverse, x)
        leverage = np.vecdot(x, gain)
        inverse = inverse - outer(gain / np.sqrt(1.0 + np.maximum(leverage, 0.0))[..., None])
        due = (self.count[at] % REFRESH_INTERVAL_UPDATES == 0) | ~(
            (leverage >= 0.0) & (leverage <= MAX_LEVERAGE)
        )
        if np.count_nonzero(due):
            inverse[due] = inverse_of_positive_definite(self.gram[at][due])
        self.inverse[at] = inverse
        self.theta[at] = np.matvec(inverse, self.response[at])

    def _update_one_city(self, at: Index, x: Array) -> None:
        """The same update for one city, in place and with plain products, because numpy's overhead per call
        dominates at this size."""
        inverse: Array = self.inverse[at]
        gain = inverse.dot(x)
        leverage = float(x.dot(gain))
        if self.count[at] % REFRESH_INTERVAL_UPDATES == 0 or not 0.0 <= leverage <= MAX_LEVERAGE:
            inverse[:] = inverse_of_positive_definite(self.gram[at])
        else:
            gain /= sqrt(1.0 + leverage)
            inverse -= outer(gain)
        inverse.dot(self.response[at], self.theta[at])

    def restore(self, state: dict[str, Array]) -> None:
        super().restore(state)
        self.refresh()

    def refresh(self) -> None:
        """Compute the inverse and theta of every arm from W and b."""
        self.inverse = inverse_of_positive_definite(self.gram)
        self.theta = np.matvec(self.inverse, self.response)
