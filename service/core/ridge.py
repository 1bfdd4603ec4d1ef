"""Ridge regression per arm, one observation at a time.

Owns W = ridge*I + sum x x', b = sum r x, the counts and sum r^2, and keeps the inverse of W and
theta = W^-1 b current. It knows nothing of peers, shared parts or exploration.
"""

from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from service.core.arrays import Array, Ints

# A rank-one update of the inverse adds rounding error, the more the further the context reaches beyond
# all seen before (x'W^-1 x). The inverse is recomputed from W after so many of an arm's updates, and at
# once when a context reaches far.
REFRESH_EVERY = 128
REFRESH_BEYOND = 100.0

# What a fit is loosened by to see the noise, and how many observations the coarser guess counts for.
LOOSENED = 0.01
GUESS_COUNTS_FOR = 4.0

Index = tuple[Ints | EllipsisType, ...]


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


def outer(x: Array) -> Array:
    return x[..., :, None] * x[..., None, :]


@dataclass
class Ridge:
    """State of all arms of one city, or of a batch of cities: every array starts with (..., K)."""

    gram: Array  # W (..., K, d, d)
    response: Array  # b (..., K, d)
    count: Array  # (..., K)
    squares: Array  # sum r^2 (..., K)
    inverse: Array  # W^-1
    theta: Array  # W^-1 b

    @classmethod
    def fresh(cls, batch: tuple[int, ...], arms: int, dim: int, ridge: float) -> "Ridge":
        eye = np.broadcast_to(np.eye(dim), (*batch, arms, dim, dim))
        zeros = np.zeros((*batch, arms, dim))
        return cls(
            gram=eye * ridge,
            response=zeros,
            count=np.zeros((*batch, arms)),
            squares=np.zeros((*batch, arms)),
            inverse=eye / ridge,
            theta=zeros.copy(),
        )

    def learn(self, at: Index, x: Array, reward: Array) -> None:
        """Add one observation where `at` picks one arm in every city; x (..., d), reward (...)."""
        self.gram[at] += outer(x)
        self.response[at] += reward[..., None] * x
        self.squares[at] += reward * reward
        self.count[at] += 1.0

        inverse = self.inverse[at]
        gain = np.matvec(inverse, x)
        reach = np.vecdot(x, gain)
        inverse = inverse - outer(gain) / (1.0 + reach)[..., None, None]
        due = (self.count[at] % REFRESH_EVERY == 0) | (reach > REFRESH_BEYOND)
        if due.any():
            inverse[due] = inverse_of_positive_definite(self.gram[at][due])
        self.inverse[at] = inverse
        self.theta[at] = np.matvec(inverse, self.response[at])

    def noise(self, ridge: float) -> Array:
        """The variance of the noise in each arm's rewards, (..., K); zero before any reward.

        A ridge fit leaves part of the signal in its residuals, which at low noise is most of them. So the
        fit is loosened until only directions never seen are held, and the residuals are divided by the
        degrees of freedom it then has. Where those are few, an arm leans on all arms of the city, and
        the city on its penalised fit.
        """
        dim = self.gram.shape[-1]
        loose = LOOSENED * ridge
        fit = inverse_of_positive_definite(self.gram - (ridge - loose) * np.eye(dim))
        residual, freedom = self._residual(fit, np.matvec(fit, self.response), loose)
        coarse, coarse_freedom = self._residual(self.inverse, self.theta, ridge)
        guess = coarse.sum(axis=-1) / np.maximum(coarse_freedom.sum(axis=-1), 1e-9)
        some = GUESS_COUNTS_FOR
        city = (residual.sum(axis=-1) + some * guess) / (freedom.sum(axis=-1) + some)
        arm = (residual + some * city[..., None]) / (freedom + some)
        size = self.squares.sum(axis=-1) / np.maximum(self.count.sum(axis=-1), 1.0)
        floored: Array = np.maximum(arm, 1e-8 * size[..., None])
        return floored

    def _residual(self, fit: Array, theta: Array, ridge: float) -> tuple[Array, Array]:
        """Sum of squared residuals of a ridge fit, and n - 2 tr H + tr H^2 = n - d + ridge^2 |fit|^2."""
        penalty = ridge * np.vecdot(theta, theta)
        residual = self.squares - np.vecdot(self.response, theta) - penalty
        freedom = self.count - theta.shape[-1] + (ridge * ridge) * (fit * fit).sum(axis=(-1, -2))
        return np.maximum(residual, 0.0), np.maximum(freedom, 0.0)

    def state(self) -> dict[str, Array]:
        """The natural parameters; everything else is derived from them."""
        return {
            "gram": self.gram,
            "response": self.response,
            "count": self.count,
            "squares": self.squares,
        }

    def restore(self, state: dict[str, Array]) -> None:
        self.gram, self.response = state["gram"], state["response"]
        self.count, self.squares = state["count"], state["squares"]
        self.refresh()

    def refresh(self) -> None:
        """Derive the inverse and theta of every arm from W and b."""
        self.inverse = inverse_of_positive_definite(self.gram)
        self.theta = np.matvec(self.inverse, self.response)
