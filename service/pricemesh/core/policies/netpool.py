"""NetPool, ours: cities exchange information matrices and pool them as far as the cities are alike.

F = W_i with L added to its cc-block, f = b_i with e added to its c-part (L, e from `pooling`);
estimate x'F^-1 f, radius alpha sqrt(x'F^-1 x). With heterogeneity 0 and trust equal it is exactly the
central server (Shared LinUCB) without any raw data leaving a city.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from pricemesh.core.arrays import Array, not_negative, one_of
from pricemesh.core.attribution import Attribution
from pricemesh.core.policies.learner import (
    Learner,
    RidgeParameters,
    Shape,
    largest,
    refuse_beyond,
    refuse_if,
    refuse_infinite,
    spectrum_of,
)
from pricemesh.core.pooling import Evidence, Pooled, pool
from pricemesh.core.ridge import Index, Ridge, Tallies, outer
from pricemesh.core.summary import Field, Parts
from pricemesh.core.ucb import Score, score_dense


@dataclass(frozen=True, kw_only=True)
class NetPool(RidgeParameters):
    name: ClassVar[str] = "netpool"
    heterogeneity: float | Literal["auto"] = "auto"
    trust: Literal["robust", "equal"] = "robust"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.heterogeneity, str):
            one_of("heterogeneity", self.heterogeneity, ("auto",))
        else:
            not_negative("heterogeneity", self.heterogeneity)
        one_of("trust", self.trust, ("robust", "equal"))

    def learner(self, shape: Shape) -> "NetPoolLearner":
        return NetPoolLearner(self, shape)


class Folded(NamedTuple):
    pooled: Pooled
    origins: tuple[str, ...] | None
    attribution: Attribution
    shrink: Array | None  # (I + t A)^-1 (K, c, c)


class NetPoolLearner(Learner):
    fields = (
        Field("information", 2),
        Field("response", 1),
        Field("count", 0),
        Field("noise", 0),
    )

    def __init__(self, policy: NetPool, shape: Shape) -> None:
        super().__init__(shape)
        self.policy = policy
        self.own = Tallies.fresh(shape.batch, shape.arms, shape.dim, policy.ridge)
        # The same regression started from what the peers know.
        self.pooled = Ridge.fresh(shape.batch, shape.arms, shape.dim, policy.ridge)
        self.heterogeneity = np.zeros((*shape.batch[:-1], shape.arms))
        self._shrink: Array | None = None

    def state(self) -> dict[str, Array]:
        return self.own.state()

    def restore(self, state: dict[str, Array]) -> None:
        self.own.restore(state)
        self._pool(0.0, 0.0)

    def _score(self, x: Array) -> Score:
        return score_dense(self.pooled.theta, self.pooled.inverse, x, self.policy.alpha)

    def _score_alone(self, x: Array) -> Score:
        alone = Ridge(**self.own.state())
        return score_dense(alone.theta, alone.inverse, x, self.policy.alpha)

    def _learn(self, at: Index, x: Array, reward: Array) -> None:
        square = outer(x)
        self.own.add(at, x, reward, square)
        self.pooled.learn(at, x, reward, square)

    def summarise(self) -> Parts:
        """The own data's information on the shared part once the local part is integrated out."""
        c, own, ridge = self.shape.shared, self.own, self.policy.ridge
        p = own.gram[..., :c, :c] - ridge * np.eye(c)
        q, r = own.gram[..., :c, c:], own.gram[..., c:, c:]
        towards = np.concatenate([q.swapaxes(-1, -2), own.response[..., c:, None]], axis=-1)
        explained = np.matmul(q, np.linalg.solve(r, towards))
        information = p - explained[..., :-1]
        return {
            "information": (information + information.swapaxes(-1, -2)) / 2.0,
            "response": own.response[..., :c] - explained[..., -1],
            "count": own.count,
            "noise": own.noise(ridge),
        }

    def fold(self, group: Parts, origins: tuple[str, ...] | None = None, *, again: bool = False) -> Folded:
        del again  # nothing moves in any case: all follows from what the group tells
        policy = self.policy
        pooled = pool(
            Evidence(group["information"], group["response"], group["noise"]),
            self._receivers,
            ridge=policy.ridge,
            heterogeneity=policy.heterogeneity,
            robust=policy.trust == "robust",
        )
        if origins is None or len(origins) == 1:
            return Folded(pooled, origins, Attribution(), None)
        information, response = pooled.each_information[1:], pooled.each_response[1:]
        spread = pooled.heterogeneity[:, None, None] * information.sum(axis=0)
        shrink: Array = np.linalg.inv(np.eye(self.shape.shared) + spread)
        return Folded(
            pooled, origins, Attribution.by(origins[1:], response, information, pooled.trust[1:]), shrink
        )

    def adopt(self, folded: Folded) -> None:
        pooled = folded.pooled
        refuse_infinite(pooled.information, pooled.response)
        self._pool(self._per_city(pooled.information), self._per_city(pooled.response))
        self.heterogeneity = pooled.heterogeneity
        self.origins, self.attribution, self._shrink = folded.origins, folded.attribution, folded.shrink
        self.weights = pooled.trust.swapaxes(-1, -2)

    def shares(self) -> dict[str, float]:
        """By the trace of the information, Lambda of the city itself and each peer's part of L."""
        if self.attribution.mass is None or self._shrink is None:
            return {}
        told = np.trace(np.matmul(self._shrink, self.attribution.mass), axis1=-2, axis2=-1).sum(
            axis=-1
        )  # (J,)
        own = np.trace(self.summarise()["information"], axis1=-2, axis2=-1).sum()
        total = max(float(own + told.sum()), 1e-300)
        return dict(zip(self.attribution.origins, (told / total).tolist(), strict=True))

    def _parts(self, x: Array, arm: int) -> tuple[Array, Array]:
        """Estimate z'f and squared radius alpha^2 z'F z, z = F^-1 x: the peers' e and L are in f and F."""
        z = x @ self.pooled.inverse[arm]
        right = z[:, : self.shape.shared]
        assert self._shrink is not None
        estimate, squared = self.attribution.parts(arm, right @ self._shrink[arm], right)
        radius = np.sqrt(np.maximum(np.vecdot(x, z), 1e-300))
        return estimate, self.policy.alpha * squared / radius[:, None]

    def _check(self, parts: Parts, version: int, longest_square: float, largest_reward: float) -> None:
        counts, information = parts["count"], parts["information"]
        refuse_if(counts.sum() != version, f"counts add up to {counts.sum():g}, its version is {version}")
        refuse_if((parts["noise"] < 0).any(), "noise is negative")
        most_noise = np.full_like(counts, largest_reward**2)
        refuse_beyond(parts["noise"], most_noise, "more noise than rewards allow")
        # |h| = |X'M r| with M a projection, or less.
        reach = counts * largest_reward * np.sqrt(longest_square)
        refuse_beyond(largest(parts["response"]), reach, "a response beyond what rewards allow")
        values = spectrum_of(information)
        most = counts * longest_square
        slack = 1e-9 * np.maximum(most, 1.0)
        refuse_if((values[..., 0] < -slack).any(), "an information matrix is not positive semi-definite")
        refuse_if((values.sum(axis=-1) > most + slack).any(), "more information than its counts can hold")

    def _pool(self, information: Array | float, response: Array | float) -> None:
        """Own tallies with what the peers tell of the shared part added."""
        c = self.shape.shared
        sums = {name: value.copy() for name, value in self.own.state().items()}
        sums["gram"][..., :c, :c] += information
        sums["response"][..., :c] += response
        self.pooled = Ridge(**sums)
