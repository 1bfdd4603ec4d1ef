"""What pooling needs of one city alone: its information, decomposed. A fold makes it again only for cities
whose summary changed.

Axes: (..., J, K, c, c) and the like: J cities of the group, K arms, c shared features.
"""

from typing import NamedTuple

import numpy as np

from pricemesh.core.arrays import Array

MIN_RELATIVE_VALUE = 1e-10  # of an eigenvalue; below, a city has no information on that direction


class Spectrum(NamedTuple):
    """Lambda_j = U diag(l) U' of every city and arm, and the estimate in those coordinates."""

    values: Array  # l (..., J, K, c), not negative
    vectors: Array  # U' (..., J, K, c, c)
    estimate: Array  # sqrt(l) U' theta_j (..., J, K, c), zero in directions without information
    rank: Array  # (..., J, K)

    @classmethod
    def of(cls, information: Array, response: Array) -> "Spectrum":
        """Of Lambda (..., J, K, c, c) and h (..., J, K, c)."""
        values, columns = np.linalg.eigh(information)
        values = np.maximum(values, 0.0)
        informative = values > MIN_RELATIVE_VALUE * np.maximum(values[..., -1:], 1e-300)
        vectors = columns.swapaxes(-1, -2)
        # Ignore what a city reports on directions on which it has no information.
        projection = np.where(informative, np.matvec(vectors, response), 0.0)
        return cls(
            values,
            vectors,
            np.where(informative, projection / np.sqrt(np.where(informative, values, 1.0)), 0.0),
            informative.sum(axis=-1).astype(np.float64),
        )
