"""NetPool (not in the paper): cities exchange information matrices and pool them as far as they agree.

F = W_i with L added to its cc-block, f = b_i with e added to its c-part (L, e from `pooling`,
where `Spectrum.trust` is the weight of a suspect city);
estimate = x'F^-1 f, radius = alpha sqrt(x'F^-1 x). With heterogeneity 0 and trust equal it equals the
central server (Shared LinUCB), while all raw data stay in their city.

>>> from pricemesh.core.policies import Shape, make_policy
>>> from pricemesh.core.summary import Summary
>>> policy = make_policy("netpool", heterogeneity=0.0, trust="equal")
>>> lisbon, porto = (policy.learner(Shape(arms=1, shared=1, local=0)) for _ in range(2))
>>> lisbon.learn([1.0], arm=0, reward=1.0)  # W = 1 + 1, b = 1
>>> porto.learn([1.0], arm=0, reward=5.0)  # Lambda = 1, h = 5
>>> lisbon.absorb_summaries("lisbon", {"porto": Summary.of("porto", 1, 1, bytes(16), porto.numbers())})
>>> round(float(lisbon.score([1.0]).estimate[0]), 9)  # (1 + 5) / (2 + 1)
2.0
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from pricemesh.core.arrays import Array, not_negative, one_of
from pricemesh.core.attribution import Attribution
from pricemesh.core.policies.learner import (
    Decided,
    ExplorationParameters,
    Learner,
    RidgeParameters,
    Shape,
    eigenvalues,
    max_abs,
    refuse_beyond,
    refuse_if,
    refuse_infinite,
)
from pricemesh.core.pooling import Evidence, Pool, pool
from pricemesh.core.ridge import Index, Ridge, RidgeStatistics, terms
from pricemesh.core.summary import Field, Parts
from pricemesh.core.ucb import Score, score_dense


@dataclass(frozen=True, kw_only=True)
class NetPool(RidgeParameters, ExplorationParameters):
    """The parameters of NetPool."""

    name: ClassVar[str] = "netpool"
    heterogeneity: float | Literal["auto"] = "auto"
    trust: Literal["robust", "equal"] = "robust"

    def __post_init__(self) -> None:
        RidgeParameters.__post_init__(self)
        ExplorationParameters.__post_init__(self)
        if isinstance(self.heterogeneity, str):
            one_of("heterogeneity", self.heterogeneity, ("auto",))
        else:
            not_negative("heterogeneity", self.heterogeneity)
        one_of("trust", self.trust, ("robust", "equal"))

    def learner(self, shape: Shape) -> "NetPoolLearner":
        return NetPoolLearner(self, shape)


class PoolFold(NamedTuple):
    """The result of one fold: the pool, and each peer's term of it."""

    pool: Pool
    origins: tuple[str, ...] | None
    attribution: Attribution
    shrink: Array | None  # (I + t A)^-1 (K, c, c)


class NetPoolLearner(Learner):
    """`own` are the statistics of the city's data; `pooled`, by which it scores, includes the peers."""

    fields = (
        Field("information", 2),
        Field("response", 1),
        Field("count", 0),
        Field("noise", 0),
    )

    def __init__(self, policy: NetPool, shape: Shape) -> None:
        super().__init__(shape)
        self.policy = policy
        self.deviation_per_radius = policy.deviation_per_radius
        self.own = RidgeStatistics.fresh(shape.batch, shape.arms, shape.dim, policy.ridge)
        self.pooled = Ridge.fresh(shape.batch, shape.arms, shape.dim, policy.ridge)
        self.heterogeneity = np.zeros((*shape.batch[:-1], shape.arms))
        self._shrink: Array | None = None

    def state(self) -> dict[str, Array]:
        return self.own.state()

    def restore(self, state: dict[str, Array]) -> None:
        self.own.restore(state)
        self._add_peers(0.0, 0.0)

    def _score(self, x: Array) -> Score:
        return score_dense(self.pooled.theta, self.pooled.inverse, x, self.policy.alpha)

    def _score_alone(self, x: Array) -> Score:
        alone = Ridge(**self.own.state())
        return score_dense(alone.theta, alone.inverse, x, self.policy.alpha)

    def _learn(self, at: Index, x: Array, reward: Array, _decided: Decided) -> None:
        added = terms(x, reward)
        self.own.add(at, added)
        self.pooled.learn_terms(at, x, added)

    def summarise(self) -> Parts:
        """The information of the city's data on the shared part, with the local part integrated out."""
        c, own, ridge = self.shape.shared, self.own, self.policy.ridge
        p = own.gram[..., :c, :c] - ridge * np.eye(c)
        q, r = own.gram[..., :c, c:], own.gram[..., c:, c:]
        right_side = np.concatenate([q.swapaxes(-1, -2), own.response[..., c:, None]], axis=-1)
        local_part = np.matmul(q, np.linalg.solve(r, right_side))
        information = p - local_part[..., :-1]
        return {
            "information": (information + information.swapaxes(-1, -2)) / 2.0,
            "response": own.response[..., :c] - local_part[..., -1],
            "count": own.count,
            "noise": own.noise(ridge),
        }

    def fold(self, group: Parts, origins: tuple[str, ...] | None = None, *, again: bool = False) -> PoolFold:
        del again  # the summaries alone determine the result
        policy = self.policy
        result = pool(
            Evidence(group["information"], group["response"], group["noise"]),
            self._receivers,
            ridge=policy.ridge,
            heterogeneity=policy.heterogeneity,
            robust=policy.trust == "robust",
        )
        if origins is None or len(origins) == 1:
            return PoolFold(result, origins, Attribution(), None)
        information, response = result.city_information[1:], result.city_response[1:]
        spread = result.heterogeneity[:, None, None] * information.sum(axis=0)
        shrink: Array = np.linalg.inv(np.eye(self.shape.shared) + spread)
        attribution = Attribution.of_peers(origins[1:], response, information, result.trust[1:])
        return PoolFold(result, origins, attribution, shrink)

    def adopt(self, fold: PoolFold) -> None:
        result = fold.pool
        refuse_infinite(result.information, result.response)
        self._add_peers(self._per_city(result.information), self._per_city(result.response))
        self.heterogeneity = result.heterogeneity
        self.origins, self.attribution, self._shrink = fold.origins, fold.attribution, fold.shrink
        self.weights = result.trust.swapaxes(-1, -2)

    def shares(self) -> dict[str, float]:
        """Each peer's share of tr Lambda_i + tr L, the information of the city itself and of its peers."""
        if self.attribution.matrices is None or self._shrink is None:
            return {}
        per_arm = np.trace(np.matmul(self._shrink, self.attribution.matrices), axis1=-2, axis2=-1)
        peers = per_arm.sum(axis=-1)  # (J,)
        own = np.trace(self.summarise()["information"], axis1=-2, axis2=-1).sum()
        total = max(float(own + peers.sum()), 1e-300)
        return dict(zip(self.attribution.origins, (peers / total).tolist(), strict=True))

    def _contributions(self, x: Array, arm: int) -> tuple[Array, Array]:
        """With z = F^-1 x: estimate = z'f, radius^2 = alpha^2 z'F z; f contains the peers' e, F their L."""
        z = x @ self.pooled.inverse[arm]
        right = z[:, : self.shape.shared]
        assert self._shrink is not None
        estimate, squared = self.attribution.contributions(arm, right @ self._shrink[arm], right)
        radius = np.sqrt(np.maximum(np.vecdot(x, z), 1e-300))
        return estimate, self.policy.alpha * squared / radius[:, None]

    def _check(self, parts: Parts, version: int, max_square: float, max_reward: float) -> None:
        counts, information = parts["count"], parts["information"]
        refuse_if(counts.sum() != version, f"its counts add up to {counts.sum():g}, its version is {version}")
        refuse_if((parts["noise"] < 0).any(), "a noise variance is negative")
        max_noise = np.full_like(counts, max_reward**2)
        refuse_beyond(parts["noise"], max_noise, "a noise variance is larger than the rewards allow")
        # h = X'M r, and the eigenvalues of M lie in [0, 1].
        max_response = counts * max_reward * np.sqrt(max_square)
        refuse_beyond(max_abs(parts["response"]), max_response, "a response is larger than the rewards allow")
        values = eigenvalues(information)
        max_trace = counts * max_square
        slack = 1e-9 * np.maximum(max_trace, 1.0)
        refuse_if((values[..., 0] < -slack).any(), "an information matrix is not positive semi-definite")
        refuse_if((values.sum(axis=-1) > max_trace + slack).any(), "more information than its counts allow")

    def _add_peers(self, information: Array | float, response: Array | float) -> None:
        """Set `pooled` to the own statistics plus the peers' L and e."""
        c = self.shape.shared
        arrays = {name: value.copy() for name, value in self.own.state().items()}
        arrays["gram"][..., :c, :c] += information
        arrays["response"][..., :c] += response
        self.pooled = Ridge(**arrays)
