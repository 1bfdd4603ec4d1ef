"""The curves by which prices are chosen: every arm's logit y'm_k and its variance y'M_k y, with y = [1, x].

m_k = A_k'theta and M_k = A_k'V^-1 A_k, where z_k = A_k y. A score costs as much as that of a learner with one
regression for each arm, whatever the number of coefficients.
"""

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.ridge import REFRESH_INTERVAL_UPDATES, inverse_of_positive_definite, outer
from pricemesh.core.ucb import Score, score_dense

MAX_ROWS_TO_ADD = 40  # for more, a new inverse costs less


class Curves:
    """theta (..., p) and V (..., p, p) of one city or of a batch; `maps` are A (..., K, p, 1 + d)."""

    def __init__(self, maps: Array, theta: Array, precision: Array) -> None:
        self._maps = maps
        self._maps_transposed = np.ascontiguousarray(maps.swapaxes(-1, -2))
        self.move(theta)
        self.spread(precision)

    def move(self, theta: Array) -> None:
        """Use another theta, as it is at the next score: a group of feedback changes it many times."""
        self._theta = theta
        self._logits: Array | None = None

    @property
    def logits(self) -> Array:
        """m (..., K, 1 + d)"""
        if self._logits is None:
            self._logits = np.matvec(self._maps_transposed, self._theta[..., None, :])
        return self._logits

    def spread(self, precision: Array) -> None:
        """Use another V."""
        self.covariance = inverse_of_positive_definite(precision)
        between = self.covariance[..., None, :, :]
        self.variances = np.matmul(np.matmul(self._maps_transposed, between), self._maps)  # M
        self._updates = 0

    def narrow(self, rows: Array) -> bool:
        """V gains R'R: rows (m, p) of one city, or one row (..., p) in every city of a batch. False when it
        is to be computed anew, because rounding adds up, or because that costs less."""
        self._updates += 1
        is_one_city = self.covariance.ndim == 2
        if self._updates >= REFRESH_INTERVAL_UPDATES or (is_one_city and len(rows) > MAX_ROWS_TO_ADD):
            return False
        if is_one_city:
            self._narrow_one_city(rows)
            return True
        gain = np.matvec(self.covariance, rows)
        gain /= np.sqrt(1.0 + np.vecdot(rows, gain))[..., None]
        self.covariance -= outer(gain)
        self.variances -= outer(np.matvec(self._maps_transposed, gain[..., None, :]))
        return True

    def _narrow_one_city(self, rows: Array) -> None:
        """V^-1 - V^-1 R'(I + R V^-1 R')^-1 R V^-1."""
        gain = rows @ self.covariance  # (m, p)
        inner = gain @ rows.T
        if len(rows) == 1:
            half = gain / np.sqrt(1.0 + inner)
        else:
            inner.flat[:: len(rows) + 1] += 1.0
            half = np.linalg.solve(np.linalg.cholesky(inner), gain)
        self.covariance -= half.T @ half
        part = half @ self._maps  # (K, m, 1 + d)
        self.variances -= np.matmul(part.swapaxes(-1, -2), part)

    def score(self, x: Array) -> Score:
        """Every arm's logit and its standard deviation."""
        return score_dense(self.logits, self.variances, with_one(x), 1.0)


def with_one(x: Array) -> Array:
    """[1, x] of contexts x (..., d)."""
    extended = np.empty((*x.shape[:-1], x.shape[-1] + 1))
    extended[..., 0] = 1.0
    extended[..., 1:] = x
    return extended
