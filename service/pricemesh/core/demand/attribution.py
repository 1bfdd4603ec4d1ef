"""Each peer's part of a pool, in the units of the coefficients."""

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.attribution import Attribution
from pricemesh.core.pooling import Pool
from pricemesh.core.ridge import outer


def attribution_of(result: Pool, origins: tuple[str, ...] | None, scale: Array) -> Attribution:
    """Each peer's term of L and e."""
    if origins is None or len(origins) == 1:
        return Attribution()
    information, response = result.city_information[1:], result.city_response[1:]
    spread = result.heterogeneity[:, None, None] * information.sum(axis=0)
    shrink = np.linalg.inv(np.eye(len(scale)) + spread)
    return Attribution.of_peers(
        origins[1:],
        np.matvec(shrink, response) / scale,
        np.matmul(shrink, information) / outer(scale),
        result.trust[1:],
    )
