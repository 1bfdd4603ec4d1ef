"""The part that the paper's two algorithms share: the weights Omega, and the sums over peers.

theta_c = sum_j omega_ji theta_j,c and variance_c = sum_j omega_ji^2 V_j. The terms of the peers are summed
when summaries arrive, so that a score costs the same with any number of peers; the own term j = i stays
separate, because it changes with every reward.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pricemesh.core import weights as omega
from pricemesh.core.arrays import Array, fraction
from pricemesh.core.attribution import Attribution
from pricemesh.core.policies.checks import refuse_if, refuse_infinite
from pricemesh.core.policies.learner import Learner, Shape
from pricemesh.core.summary import Parts
from pricemesh.core.weights import Weighting


@dataclass(frozen=True, kw_only=True)
class WeightedParameters(Weighting):
    """The parameters of Omega, and the decay of the mean shared context that a city reports."""

    context_memory: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("context_memory", self.context_memory)


class WeightedFold(NamedTuple):
    """The result of one fold: the new weights and the sums over peers."""

    weights: Array  # Omega (..., K, I, J)
    origins: tuple[str, ...] | None
    own_weight: Array  # (..., K)
    peers_theta: Array  # (..., K, c)
    peers_variance: Array  # (..., K, c, c) or (..., K, c)
    attribution: Attribution
    again: bool


class WeightedLearner(Learner):
    """The weights, the mean context and the sums over peers; a subclass owns the city's own regression."""

    def __init__(self, weighting: WeightedParameters, shape: Shape, variance_shape: tuple[int, ...]) -> None:
        """`variance_shape` is that of the variance of theta_c per arm: (c, c) or (c,)."""
        super().__init__(shape)
        self._weighting = weighting
        self.context = np.zeros((*shape.batch, shape.shared))
        self.weights = omega.identity(
            shape.batch[:-1], shape.arms, 1 if shape.is_one_city else shape.batch[-1], self._receivers
        )
        per_arm = (*shape.batch, shape.arms)
        self._own_weight = np.ones(per_arm)
        self._peers_theta = np.zeros((*per_arm, shape.shared))
        self._peers_variance = np.zeros((*per_arm, *variance_shape))

    def _update_mean_context(self, x: Array) -> None:
        decay = self._weighting.context_memory
        self.context = decay * self.context + (1.0 - decay) * x[..., : self.shape.shared]

    def fold(
        self, group: Parts, origins: tuple[str, ...] | None = None, *, again: bool = False
    ) -> WeightedFold:
        """Take one step of the weights and sum theta (..., J, K, c) and variance (..., J, K, ...)."""
        theta, variance = self._shared_moments(group)
        weights = self.weights
        if origins is not None and origins != self.origins:
            weights = omega.realign(weights, self.origins or origins[:1], origins)
        if not again:
            weights = self._weighting.step(weights, group["count"] + 1.0, group["context"], self._receivers)
        is_own = np.eye(theta.shape[-3], dtype=bool)[self._receivers]
        peer_weights = np.where(is_own, 0.0, weights)  # (..., K, I, J)
        flat = variance.reshape(*theta.shape[:-1], -1)
        peers_variance = self._per_city(_weighted_sum(peer_weights * peer_weights, flat))
        attribution = Attribution()
        if origins is not None and len(origins) > 1:
            weight = weights[:, 0, 1:].T  # (J, K)
            squared = (weight * weight).reshape(*weight.shape, *(1,) * (variance.ndim - 2))
            attribution = Attribution.of_peers(
                origins[1:], weight[..., None] * theta[1:], squared * variance[1:], weight
            )
        return WeightedFold(
            weights,
            origins,
            self._per_city(np.where(is_own, weights, 0.0).sum(axis=-1).swapaxes(-1, -2)),
            self._per_city(_weighted_sum(peer_weights, theta)),
            peers_variance.reshape(self._peers_variance.shape),
            attribution,
            again,
        )

    def adopt(self, fold: WeightedFold) -> None:
        refuse_infinite(fold.weights, fold.peers_theta, fold.peers_variance)
        self.weights, self.attribution = fold.weights, fold.attribution
        if fold.origins is not None:
            self.origins = fold.origins
        self._own_weight = fold.own_weight
        self._peers_theta, self._peers_variance = fold.peers_theta, fold.peers_variance

    def shares(self) -> dict[str, float]:
        """Each peer's weight, as a mean over arms; with the city's own weight they add up to one."""
        mean = self.weights[:, 0].mean(axis=0)
        return dict(zip((self.origins or ())[1:], mean[1:].tolist(), strict=True))

    def memory(self) -> dict[str, Array]:
        return {"weights": self.weights}

    def recall(self, origins: tuple[str, ...], memory: dict[str, Array]) -> None:
        self.origins, self.weights = origins, memory["weights"]

    def _shared_moments(self, group: Parts) -> tuple[Array, Array]:
        """theta and variance of the shared part of every city of the group."""
        raise NotImplementedError

    def _weighted_contributions(self, x: Array, arm: int, alpha: float, radius: Array) -> tuple[Array, Array]:
        """Each peer's share of the estimate, and of the radius by its share of radius^2, (m, J) each."""
        shared = x[:, : self.shape.shared]
        estimate, squared = self.attribution.contributions(arm, shared, shared)
        return estimate, alpha**2 * squared / np.maximum(radius, 1e-300)[:, None]

    def _check_context(self, parts: Parts, max_square: float) -> None:
        square = np.vecdot(parts["context"], parts["context"])
        refuse_if(square > max_square * (1 + 1e-9), "its mean context is longer than the features allow")


def _weighted_sum(weights: Array, values: Array) -> Array:
    """sum_j weights[..., k, i, j] values[..., j, k, :] as (..., i, k, :)."""
    total: Array = np.matmul(weights, values.swapaxes(-2, -3)).swapaxes(-2, -3)
    return total
