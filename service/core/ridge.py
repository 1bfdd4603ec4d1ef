"""Ridge regression per arm, one observation at a time.

Owns W = ridge*I + sum x x', b = sum r x, the counts and sum r^2, and keeps the inverse of W and
theta = W^-1 b current. It knows nothing of peers, shared parts or exploration.
"""

from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from service.core.arrays import Array, Ints

# A rank-one update of the inverse adds rounding error; after this many of an arm's updates the
# inverse is recomputed from W.
REFRESH_EVERY = 128

Index = tuple[Ints | EllipsisType, ...]


def inverse_of_positive_definite(matrix: Array) -> Array:
    """Inverse by Cholesky, exactly symmetric; (..., d, d)."""
    lower = np.linalg.cholesky(matrix)
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
        inverse = inverse - outer(gain) / (1.0 + np.vecdot(x, gain))[..., None, None]
        due = self.count[at] % REFRESH_EVERY == 0
        if due.any():
            inverse[due] = inverse_of_positive_definite(self.gram[at][due])
        self.inverse[at] = inverse
        self.theta[at] = np.matvec(inverse, self.response[at])

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
