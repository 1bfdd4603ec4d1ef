"""NetLinUCB (paper, Definition 1): shared estimates averaged over the group with adaptive weights.

estimate = x_c' sum_j omega_ji theta_j,c + x_s' theta_i,s;
radius^2 = alpha^2 (sum_j omega_ji^2 x_c' V_j x_c + x_s' U_i x_s).
`split` marginal: V, U are blocks of W^-1; block: inverses of the blocks W_cc and W_ss, as printed.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pricemesh.core.arrays import Array, one_of
from pricemesh.core.policies.learner import (
    RidgeParameters,
    Shape,
    largest,
    refuse_beyond,
    refuse_if,
    spectrum_of,
)
from pricemesh.core.policies.weighted import Folded, WeightedLearner, WeightedParameters
from pricemesh.core.ridge import Index, Ridge
from pricemesh.core.summary import Field, Parts
from pricemesh.core.ucb import Score, score_dense


@dataclass(frozen=True, kw_only=True)
class NetLinUcb(RidgeParameters, WeightedParameters):
    name: ClassVar[str] = "netlinucb"
    split: Literal["marginal", "block"] = "marginal"

    def __post_init__(self) -> None:
        RidgeParameters.__post_init__(self)
        WeightedParameters.__post_init__(self)
        one_of("split", self.split, ("marginal", "block"))

    def learner(self, shape: Shape) -> "NetLinUcbLearner":
        return NetLinUcbLearner(self, shape)


class NetLinUcbLearner(WeightedLearner):
    fields = (
        Field("theta", 1),
        Field("covariance", 2),
        Field("count", 0),
        Field("context", 1, per_arm=False),
    )

    def __init__(self, policy: NetLinUcb, shape: Shape) -> None:
        super().__init__(policy, shape, (shape.shared, shape.shared))
        self.policy = policy
        dims = (shape.dim,) if policy.split == "marginal" else (shape.shared, shape.local)
        # One regression on the whole context, or one on its shared and one on its local part.
        self.own = [Ridge.fresh(shape.batch, shape.arms, dim, policy.ridge) for dim in dims]
        self.theta = np.zeros((*shape.batch, shape.arms, shape.dim))
        self.covariance = np.zeros((*shape.batch, shape.arms, shape.dim, shape.dim))
        self._believe((...,))

    def state(self) -> dict[str, Array]:
        parts = {"context": self.context}
        for place, ridge in enumerate(self.own):
            parts |= {f"{name}{place}": value for name, value in ridge.state().items()}
        return parts

    def restore(self, state: dict[str, Array]) -> None:
        self.context = state["context"]
        for place, ridge in enumerate(self.own):
            ridge.restore({name: state[f"{name}{place}"] for name in ridge.state()})
        self._believe((...,))

    def _score(self, x: Array) -> Score:
        return score_dense(self.theta, self.covariance, x, self.policy.alpha)

    def _score_alone(self, x: Array) -> Score:
        return score_dense(*self._belief((...,), 1.0, 0.0, 0.0), x, self.policy.alpha)

    def _learn(self, at: Index, x: Array, reward: Array) -> None:
        start = 0
        for ridge in self.own:
            end = start + ridge.theta.shape[-1]
            ridge.learn(at, x[..., start:end], reward)
            start = end
        self._remember(x)
        self._believe(at)

    def summarise(self) -> Parts:
        c, shared = self.shape.shared, self.own[0]
        return {
            "theta": shared.theta[..., :c],
            "covariance": shared.inverse[..., :c, :c],
            "count": shared.count,
            "context": self.context,
        }

    def adopt(self, folded: Folded) -> None:
        super().adopt(folded)
        self._believe((...,))

    def _told_by(self, group: Parts) -> tuple[Array, Array]:
        return group["theta"], group["covariance"]

    def _parts(self, x: Array, arm: int) -> tuple[Array, Array]:
        variance = np.vecdot(x @ self.covariance[arm], x)
        return self._parts_by(x, arm, self.policy.alpha, self.policy.alpha * np.sqrt(variance))

    def _check(self, parts: Parts, version: int, longest_square: float, largest_reward: float) -> None:
        counts = parts["count"]
        refuse_if(counts.sum() != version, f"counts add up to {counts.sum():g}, its version is {version}")
        values = spectrum_of(parts["covariance"])
        least = 1.0 / (self.policy.ridge + counts * longest_square)
        slack = 1e-9 / self.policy.ridge
        refuse_if((values[..., 0] < least - slack).any(), "surer than its counts allow, or not positive")
        refuse_if((values[..., -1] > 1.0 / self.policy.ridge + slack).any(), "less sure than before any data")
        # theta = V X'r, and V X' has singular values s / (s^2 + ridge) of at most 1 / (2 sqrt ridge).
        reach = np.sqrt(counts) * largest_reward / (2.0 * np.sqrt(self.policy.ridge))
        refuse_beyond(largest(parts["theta"]), reach, "an estimate beyond what rewards allow")
        self._check_context(parts, longest_square)

    def _believe(self, at: Index) -> None:
        """Own estimate and covariance plus the peers' share, for the arms that `at` picks."""
        self.theta[at], self.covariance[at] = self._belief(
            at, self._own_weight[at], self._peers_theta[at], self._peers_variance[at]
        )

    def _belief(
        self, at: Index, weight: Array | float, told: Array | float, variance: Array | float
    ) -> tuple[Array, Array]:
        """Own theta and covariance, the shared part weighted and what peers told added to it."""
        c, shared, local = self.shape.shared, self.own[0], self.own[-1]
        first = c if len(self.own) == 1 else 0  # where the local part starts in its regression
        weight = np.asarray(weight)
        theta, covariance = self.theta[at].copy(), self.covariance[at].copy()
        theta[..., :c] = told + weight[..., None] * shared.theta[at][..., :c]
        theta[..., c:] = local.theta[at][..., first:]
        own = (weight * weight)[..., None, None] * shared.inverse[at][..., :c, :c]
        covariance[..., :c, :c] = variance + own
        covariance[..., c:, c:] = local.inverse[at][..., first:, first:]
        return theta, covariance
