"""Momentum stochastic gradient descent per arm with accumulated squared gradients (Net-SGD-UCB).

Owns theta, the momentum v, the diagonal of G and the counts. With the gradient g = -(r - x'theta) x:
v <- mu v + (1-mu) g; theta <- theta - eta v; G <- G + g^2 (`sum`) or gamma G + (1-gamma) g^2 (`ema`).
"""

from dataclasses import dataclass

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.ridge import Index


@dataclass
class Sgd:
    """The state of all arms of one city or of a batch of cities."""

    theta: Array  # (..., K, d)
    momentum: Array  # v (..., K, d)
    accumulator: Array  # diag G (..., K, d), starts at 1
    count: Array  # (..., K)

    @classmethod
    def fresh(cls, batch: tuple[int, ...], arms: int, dim: int) -> "Sgd":
        shape = (*batch, arms, dim)
        return cls(np.zeros(shape), np.zeros(shape), np.ones(shape), np.zeros(shape[:-1]))

    def learn(
        self, at: Index, x: Array, reward: Array, *, mu: float, eta: float, gamma: float | None
    ) -> None:
        """One gradient step. Without `gamma` the squared gradients are summed, with it averaged."""
        theta = self.theta[at]
        gradient = (np.vecdot(x, theta) - reward)[..., None] * x
        # The paper assumes contexts no longer than 1; with longer ones the step would overshoot.
        step = gradient / np.maximum(1.0, np.vecdot(x, x))[..., None]
        momentum = mu * self.momentum[at] + (1.0 - mu) * step
        squares = gradient * gradient
        self.momentum[at] = momentum
        self.theta[at] = theta - eta * momentum
        if gamma is None:
            self.accumulator[at] += squares
        else:
            self.accumulator[at] = gamma * self.accumulator[at] + (1.0 - gamma) * squares
        self.count[at] += 1.0
