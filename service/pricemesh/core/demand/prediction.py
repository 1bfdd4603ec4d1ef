"""What the demand model predicts at any price, arm or not: the chance of a sale and the expected money.

>>> row, theta, covariance = np.array([[1.0, 0.5]]), np.array([0.0, 0.0]), np.diag([0.0, 4.0])
>>> predict(row, theta, covariance, alpha=1.0, margins=np.array([10.0])).chance_high.round(3).tolist()
[0.731]
"""

from typing import NamedTuple

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.demand.sales import sigmoid


class Prediction(NamedTuple):
    """At m prices, (m,) each. The ends of a band are alpha_t standard deviations of the logit away, as in the
    choice of a price: the upper end of `revenue` is an arm's estimate + radius."""

    chance: Array
    chance_low: Array
    chance_high: Array
    revenue: Array  # margin times chance
    revenue_low: Array
    revenue_high: Array


def predict(
    rows: Array, theta: Array, covariance: Array, *, alpha: Array | float, margins: Array
) -> Prediction:
    """Of rows z (m, p), theta (p,), V^-1 (p, p) and what a sale of all units brings, (m,)."""
    logit = rows @ theta
    step = alpha * np.sqrt(np.maximum(np.vecdot(rows @ covariance, rows), 0.0))
    chance, low, high = sigmoid(logit), sigmoid(logit - step), sigmoid(logit + step)
    ends = margins * low, margins * high
    return Prediction(chance, low, high, margins * chance, np.minimum(*ends), np.maximum(*ends))
