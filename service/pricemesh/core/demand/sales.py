"""A sale as a weighted observation of the logit: one Newton step of logistic regression."""

import numpy as np

from pricemesh.core.arrays import Array

MAX_LOGIT = 6.0  # of the chance at which a sale is linearised
MIN_WEIGHT, MAX_WEIGHT = 0.05, 0.25  # of an observation
MAX_RESIDUAL = 6.0  # of `residual` within these bounds


def sigmoid(logit: Array) -> Array:
    """1 / (1 + exp(-logit)), without overflow."""
    chance: Array = 0.5 + 0.5 * np.tanh(0.5 * logit)
    return chance


def linearise(chance: Array, sold: Array) -> tuple[Array, Array]:
    """sqrt(w) and (w eta + sold - pi) / sqrt(w) at the chance pi = sigma(eta) that a decision assumed. A row
    sqrt(w) z with this residual adds w zz' and z (w eta + sold - pi) to the sums of a regression.

    >>> root, residual = linearise(np.float64(0.5), np.float64(1.0))  # eta = 0, w = 1/4
    >>> float(root), float(residual)
    (0.5, 1.0)
    """
    # minimum and maximum, because numpy's `clip` takes several times as long for one number.
    inside = np.minimum(np.maximum(chance, 1e-9), 1.0 - 1e-9)
    logit = np.minimum(np.maximum(np.log(inside / (1.0 - inside)), -MAX_LOGIT), MAX_LOGIT)
    chance = sigmoid(logit)
    weight = np.maximum(chance * (1.0 - chance), MIN_WEIGHT)
    root = np.sqrt(weight)
    return root, (weight * logit + sold - chance) / root
