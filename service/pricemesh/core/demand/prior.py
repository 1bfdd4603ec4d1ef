"""Empirical Bayes: prior variances of the coefficients that fit what a group of cities has learned."""

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.demand.basis import Basis

PASSES = 6  # from the prior variances on
PRIOR_OBSERVATIONS = 4.0  # for which the prior variance counts
MIN_VARIANCE, MAX_VARIANCE = 0.001, 25.0


def fitted_variances(basis: Basis, information: Array, response: Array) -> Array:
    """v (..., p) from the sums over all cities of a group, (..., n, n) and (..., n), in units in which all
    prior variances are one. Blocks of coefficients get one variance each:
    v_b = (4 v_b0 + sum theta^2) / (4 + d_b - sum C_jj / v_b), with theta and C under the present v."""
    prior, n = basis.prior_variance, basis.common_size
    blocks = [basis.main, basis.interaction, *([basis.arm_effects] if basis.ladder.is_common else [])]
    ratio = np.ones(response.shape)  # of a variance to its prior one
    for _ in range(PASSES):
        covariance = np.linalg.inv(information + np.eye(n) / ratio[..., None, :])
        theta = np.matvec(covariance, response)
        unknown = np.diagonal(covariance, axis1=-2, axis2=-1) / ratio
        for block in blocks:
            known = PRIOR_OBSERVATIONS + (1.0 - unknown[..., block]).sum(axis=-1)
            squares = PRIOR_OBSERVATIONS + (theta[..., block] ** 2).sum(axis=-1)
            value = np.clip(prior[block.start] * squares / known, MIN_VARIANCE, MAX_VARIANCE)
            ratio[..., block] = (value / prior[block.start])[..., None]
    variance = np.broadcast_to(prior, (*response.shape[:-1], basis.size)).copy()
    variance[..., :n] *= ratio
    return variance
