"""What the paper's two algorithms share: weights Omega, and peers folded into one vector and one
matrix (or diagonal) per arm when summaries arrive, so that a score costs the same with any number.

theta_c = sum_j omega_ji theta_j,c and variance_c = sum_j omega_ji^2 V_j; the own term j = i is kept
apart, because own learning must show in the next score.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pricemesh.core import weights as omega
from pricemesh.core.arrays import Array, fraction
from pricemesh.core.attribution import Attribution
from pricemesh.core.policies.learner import Learner, Shape, refuse_if, refuse_infinite
from pricemesh.core.summary import Parts
from pricemesh.core.weights import Weighting


@dataclass(frozen=True, kw_only=True)
class WeightedParameters(Weighting):
    """Weights, and how long a city remembers the shared contexts whose mean it tells its peers."""

    context_memory: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("context_memory", self.context_memory)


class Folded(NamedTuple):
    weights: Array  # Omega (..., K, I, J)
    origins: tuple[str, ...] | None
    own_weight: Array  # (..., K)
    theta: Array  # the peers' share, (..., K, c)
    variance: Array
    attribution: Attribution
    again: bool


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

    def fold(self, group: Parts, origins: tuple[str, ...] | None = None, *, again: bool = False) -> Folded:
        """Move the weights one step and fold theta (..., J, K, c) and variance (..., J, K, ...)."""
        theta, variance = self._told_by(group)
        weights = self.weights
        if origins is not None and origins != self.origins:
            weights = omega.realigned(weights, self.origins or origins[:1], origins)
        if not again:
            weights = self._weighting.step(weights, group["count"] + 1.0, group["context"], self._receivers)
        own = np.eye(theta.shape[-3], dtype=bool)[self._receivers]
        others = np.where(own, 0.0, weights)  # (..., K, I, J)
        flat = variance.reshape(*theta.shape[:-1], -1)
        mixed = self._per_city(_mix(others * others, flat))
        told = Attribution()
        if origins is not None and len(origins) > 1:
            weight = weights[:, 0, 1:].T  # (J, K)
            squared = (weight * weight).reshape(*weight.shape, *(1,) * (variance.ndim - 2))
            told = Attribution.by(origins[1:], weight[..., None] * theta[1:], squared * variance[1:], weight)
        return Folded(
            weights,
            origins,
            self._per_city(np.where(own, weights, 0.0).sum(axis=-1).swapaxes(-1, -2)),
            self._per_city(_mix(others, theta)),
            mixed.reshape(self._peers_variance.shape),
            told,
            again,
        )

    def adopt(self, folded: Folded) -> None:
        refuse_infinite(folded.weights, folded.theta, folded.variance)
        self.weights, self.attribution = folded.weights, folded.attribution
        if folded.origins is not None:
            self.origins = folded.origins
        self._own_weight = folded.own_weight
        self._peers_theta, self._peers_variance = folded.theta, folded.variance

    def shares(self) -> dict[str, float]:
        """The weights themselves, which add up to one, as a mean over arms."""
        mean = self.weights[:, 0].mean(axis=0)
        return dict(zip((self.origins or ())[1:], mean[1:].tolist(), strict=True))

    def memory(self) -> dict[str, Array]:
        return {"weights": self.weights}

    def recall(self, origins: tuple[str, ...], memory: dict[str, Array]) -> None:
        self.origins, self.weights = origins, memory["weights"]

    def _told_by(self, group: Parts) -> tuple[Array, Array]:
        """theta and variance of the shared part, by city."""
        raise NotImplementedError

    def _parts_by(self, x: Array, arm: int, alpha: float, radius: Array) -> tuple[Array, Array]:
        shared = x[:, : self.shape.shared]
        estimate, squared = self.attribution.parts(arm, shared, shared)
        return estimate, alpha**2 * squared / np.maximum(radius, 1e-300)[:, None]

    def _check_context(self, parts: Parts, longest_square: float) -> None:
        square = np.vecdot(parts["context"], parts["context"])
        refuse_if(square > longest_square * (1 + 1e-9), "its mean context is longer than features allow")


def _mix(weights: Array, values: Array) -> Array:
    """sum_j weights[..., k, i, j] values[..., j, k, :] as (..., i, k, :)."""
    mixed: Array = np.matmul(weights, values.swapaxes(-2, -3)).swapaxes(-2, -3)
    return mixed
