"""Net-SGD-UCB (paper, Definition 2): gradient steps at home, shared parameters mixed at every tick.

Mixing replaces theta_c by sum_j omega_ji theta_j,c. radius^2 = alpha^2 (sum_j omega_ji^2
x_c' G_j,c^-1 x_c + x_s' G_i,s^-1 x_s) with diagonal G: a decision costs O(K (c + s)).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pricemesh.core.arrays import Array, fraction, one_of, positive
from pricemesh.core.policies.learner import Shape, largest, refuse_beyond, refuse_if
from pricemesh.core.policies.weighted import Folded, WeightedLearner, WeightedParameters
from pricemesh.core.ridge import Index
from pricemesh.core.sgd import Sgd
from pricemesh.core.summary import Field, Parts
from pricemesh.core.ucb import Score, score_diagonal

# Steps of gradient descent overshoot; this far beyond the largest reward no honest city's parameters lie.
BEYOND_REWARDS = 1000.0


@dataclass(frozen=True, kw_only=True)
class NetSgdUcb(WeightedParameters):
    name: ClassVar[str] = "netsgducb"
    alpha: float = 0.5
    mu: float = 0.5
    eta: float = 0.3
    accumulator: Literal["sum", "ema"] = "sum"
    gamma: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("alpha", self.alpha)
        fraction("mu", self.mu)
        positive("eta", self.eta)
        one_of("accumulator", self.accumulator, ("sum", "ema"))
        fraction("gamma", self.gamma)

    def learner(self, shape: Shape) -> "NetSgdUcbLearner":
        return NetSgdUcbLearner(self, shape)


class NetSgdUcbLearner(WeightedLearner):
    fields = (
        Field("theta", 1),
        Field("accumulator", 1),
        Field("count", 0),
        Field("context", 1, per_arm=False),
    )

    def __init__(self, policy: NetSgdUcb, shape: Shape) -> None:
        super().__init__(policy, shape, (shape.shared,))
        self.policy = policy
        self.own = Sgd.fresh(shape.batch, shape.arms, shape.dim)
        self.variances = np.ones((*shape.batch, shape.arms, shape.dim))

    def state(self) -> dict[str, Array]:
        own = self.own
        return {
            "theta": own.theta,
            "momentum": own.momentum,
            "accumulator": own.accumulator,
            "count": own.count,
            "context": self.context,
        }

    def restore(self, state: dict[str, Array]) -> None:
        own = self.own
        own.theta, own.momentum = state["theta"], state["momentum"]
        own.accumulator, own.count = state["accumulator"], state["count"]
        self.context = state["context"]
        self._believe((...,))

    def _score(self, x: Array) -> Score:
        return score_diagonal(self.own.theta, self.variances, x, self.policy.alpha)

    def _score_alone(self, x: Array) -> Score:
        return score_diagonal(self.own.theta, 1.0 / self.own.accumulator, x, self.policy.alpha)

    def _learn(self, at: Index, x: Array, reward: Array) -> None:
        policy = self.policy
        gamma = policy.gamma if policy.accumulator == "ema" else None
        self.own.learn(at, x, reward, mu=policy.mu, eta=policy.eta, gamma=gamma)
        self._remember(x)
        self._believe(at)

    def summarise(self) -> Parts:
        c = self.shape.shared
        return {
            "theta": self.own.theta[..., :c],
            "accumulator": self.own.accumulator[..., :c],
            "count": self.own.count,
            "context": self.context,
        }

    @property
    def mixes(self) -> bool:
        return True

    def _told_by(self, group: Parts) -> tuple[Array, Array]:
        return group["theta"], 1.0 / group["accumulator"]

    def adopt(self, folded: Folded) -> None:
        super().adopt(folded)
        if not folded.again:
            mixed = self.own.theta[..., : self.shape.shared]
            mixed *= self._own_weight[..., None]
            mixed += self._peers_theta
        self._believe((...,))

    def _parts(self, x: Array, arm: int) -> tuple[Array, Array]:
        variance = (x * x) @ self.variances[arm]
        return self._parts_by(x, arm, self.policy.alpha, self.policy.alpha * np.sqrt(variance))

    def _check(self, parts: Parts, version: int, longest_square: float, largest_reward: float) -> None:
        counts = parts["count"]
        refuse_if(counts.sum() > version, f"counts add up to {counts.sum():g}, its version is {version}")
        least = 1.0 if self.policy.accumulator == "sum" else 1e-12
        refuse_if(not (parts["accumulator"] >= least).all(), f"an accumulator below {least:g}")
        refuse_beyond(
            largest(parts["theta"]),
            np.full_like(counts, BEYOND_REWARDS * largest_reward),
            "parameters beyond what rewards allow",
        )
        self._check_context(parts, longest_square)

    def _believe(self, at: Index) -> None:
        """Own variances plus the peers' share, for the arms that `at` picks."""
        c = self.shape.shared
        variances = 1.0 / self.own.accumulator[at]
        weight = self._own_weight[at]
        variances[..., :c] *= (weight * weight)[..., None]
        variances[..., :c] += self._peers_variance[at]
        self.variances[at] = variances
