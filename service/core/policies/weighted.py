"""What the paper's two algorithms share: weights Omega, and peers folded into one vector and one
matrix (or diagonal) per arm when summaries arrive, so that a score costs the same with any number.

theta_c = sum_j omega_ji theta_j,c and variance_c = sum_j omega_ji^2 V_j; the own term j = i is kept
apart, because own learning must show in the next score.
"""

from dataclasses import dataclass

import numpy as np

from service.core import weights as omega
from service.core.arrays import Array, fraction
from service.core.policies.learner import Learner, Shape
from service.core.summary import Parts
from service.core.weights import Weighting


@dataclass(frozen=True, kw_only=True)
class WeightedParameters(Weighting):
    """Weights, and how long a city remembers the shared contexts whose mean it tells its peers."""

    context_memory: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("context_memory", self.context_memory)


class WeightedLearner(Learner):
    def __init__(self, weighting: WeightedParameters, shape: Shape, spread: tuple[int, ...]) -> None:
        """`spread` is the shape of a city's variance of theta_c per arm: (c, c) or (c,)."""
        super().__init__(shape)
        self._weighting = weighting
        self.context = np.zeros((*shape.batch, shape.shared))
        self.weights = omega.identity(
            shape.batch[:-1], shape.arms, 1 if shape.alone else shape.batch[-1], self._receivers
        )
        per_arm = (*shape.batch, shape.arms)
        self._own_weight = np.ones(per_arm)
        self._peers_theta = np.zeros((*per_arm, shape.shared))
        self._peers_variance = np.zeros((*per_arm, *spread))

    def _remember(self, x: Array) -> None:
        kept = self._weighting.context_memory
        self.context = kept * self.context + (1.0 - kept) * x[..., : self.shape.shared]

    def _fold(self, group: Parts, origins: tuple[str, ...] | None, theta: Array, variance: Array) -> None:
        """Move the weights one step and fold theta (..., J, K, c) and variance (..., J, K, ...)."""
        if origins is not None and origins != self.origins:
            self.weights = omega.realigned(self.weights, self.origins or origins[:1], origins)
            self.origins = origins
        self.weights = self._weighting.step(
            self.weights, group["count"] + 1.0, group["context"], self._receivers
        )
        cities = theta.shape[-3]
        own = np.eye(cities, dtype=bool)[self._receivers]
        others = np.where(own, 0.0, self.weights)  # (..., K, I, J)
        self._own_weight = self._per_city(np.where(own, self.weights, 0.0).sum(axis=-1).swapaxes(-1, -2))
        self._peers_theta = self._per_city(_mix(others, theta))
        flat = variance.reshape(*theta.shape[:-1], -1)
        mixed = self._per_city(_mix(others * others, flat))
        self._peers_variance = mixed.reshape(self._peers_variance.shape)


def _mix(weights: Array, values: Array) -> Array:
    """sum_j weights[..., k, i, j] values[..., j, k, :] as (..., i, k, :)."""
    mixed: Array = np.matmul(weights, values.swapaxes(-2, -3)).swapaxes(-2, -3)
    return mixed
