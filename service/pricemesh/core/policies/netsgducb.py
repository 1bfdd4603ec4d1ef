"""Net-SGD-UCB (paper, Definition 2): gradient steps in each city, shared parameters mixed at every absorb.

An absorb replaces theta_c by sum_j omega_ji theta_j,c; estimate = x'theta,
radius^2 = alpha^2 (sum_j omega_ji^2 x_c' G_j,c^-1 x_c + x_s' G_i,s^-1 x_s).
G is diagonal, so a decision costs O(K (c + s)).

>>> from pricemesh.core.policies import Shape, make_policy
>>> learner = make_policy("netsgducb", alpha=1.0, mu=0.5, eta=0.5).learner(Shape(arms=2, shared=1, local=0))
>>> learner.learn([1.0], arm=1, reward=2.0)  # g = -2, v = -1, theta = 0.5; G = 1 + 4
>>> score = learner.score([1.0])
>>> score.estimate.tolist(), (score.radius**-2).round(9).tolist()
([0.0, 0.5], [1.0, 5.0])
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pricemesh.core.arrays import Array, fraction, one_of, positive
from pricemesh.core.policies.checks import max_abs, refuse_beyond, refuse_if
from pricemesh.core.policies.learner import Decided, Shape
from pricemesh.core.policies.weighted import WeightedFold, WeightedLearner, WeightedParameters
from pricemesh.core.ridge import Index
from pricemesh.core.sgd import Sgd
from pricemesh.core.summary import Field, Parts
from pricemesh.core.ucb import Score, score_diagonal

# Gradient steps can overshoot, but no honest city's parameters exceed this multiple of the largest reward.
MAX_THETA_PER_REWARD = 1000.0


@dataclass(frozen=True, kw_only=True)
class NetSgdUcb(WeightedParameters):
    """The parameters of Net-SGD-UCB."""

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
    """`own` is the city's state; its theta_c includes the peers, and so do the `variances` it scores by."""

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
        self._refresh((...,))

    def _score(self, x: Array) -> Score:
        return score_diagonal(self.own.theta, self.variances, x, self.policy.alpha)

    def _score_alone(self, x: Array) -> Score:
        return score_diagonal(self.own.theta, 1.0 / self.own.accumulator, x, self.policy.alpha)

    def _learn(self, at: Index, x: Array, reward: Array, _decided: Decided) -> None:
        policy = self.policy
        gamma = policy.gamma if policy.accumulator == "ema" else None
        self.own.learn(at, x, reward, mu=policy.mu, eta=policy.eta, gamma=gamma)
        self._update_mean_context(x)
        self._refresh(at)

    def summarise(self) -> Parts:
        c = self.shape.shared
        return {
            "theta": self.own.theta[..., :c],
            "accumulator": self.own.accumulator[..., :c],
            "count": self.own.count,
            "context": self.context,
        }

    @property
    def mixes_peers(self) -> bool:
        return True

    def _shared_moments(self, group: Parts) -> tuple[Array, Array]:
        return group["theta"], 1.0 / group["accumulator"]

    def adopt(self, fold: WeightedFold) -> None:
        super().adopt(fold)
        if not fold.again:
            shared_theta = self.own.theta[..., : self.shape.shared]  # a view, updated in place
            shared_theta *= self._own_weight[..., None]
            shared_theta += self._peers_theta
        self._refresh((...,))

    def _contributions(self, x: Array, arm: int) -> tuple[Array, Array]:
        variance = (x * x) @ self.variances[arm]
        radius = self.policy.alpha * np.sqrt(variance)
        return self._weighted_contributions(x, arm, self.policy.alpha, radius)

    def _check(self, parts: Parts, version: int, max_square: float, max_reward: float) -> None:
        counts = parts["count"]
        refuse_if(counts.sum() > version, f"its counts add up to {counts.sum():g}, its version is {version}")
        lower = 1.0 if self.policy.accumulator == "sum" else 1e-12
        refuse_if(not (parts["accumulator"] >= lower).all(), f"an accumulator is below {lower:g}")
        refuse_beyond(
            max_abs(parts["theta"]),
            np.full_like(counts, MAX_THETA_PER_REWARD * max_reward),
            "a parameter is larger than the rewards allow",
        )
        self._check_context(parts, max_square)

    def _refresh(self, at: Index) -> None:
        """Recompute `variances` of the arms that `at` selects."""
        c = self.shape.shared
        variances = 1.0 / self.own.accumulator[at]
        weight = self._own_weight[at]
        variances[..., :c] *= (weight * weight)[..., None]
        variances[..., :c] += self._peers_variance[at]
        self.variances[at] = variances
