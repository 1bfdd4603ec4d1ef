"""NetPool recomputed from raw history: as the posterior of one joint model, and equation by equation."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.arrays import Array
from pricemesh.core.policies import make_policy
from pricemesh.core.policies.netpool import NetPool
from tests.core.histories import History
from tests.core.small_mesh import ARMS, LOCALS, SHARED, SmallMesh

EYE = np.eye(SHARED)


def marginal_information(history: History, k: int, ridge: float) -> tuple[Any, Any]:
    """Lambda and h: the local parameters, with their prior, integrated out."""
    w, b = history.normal_equations(k, ridge)
    c = SHARED
    p, q, r = w[:c, :c] - ridge * np.eye(c), w[:c, c:], w[c:, c:]
    return p - q @ np.linalg.solve(r, q.T), b[:c] - q @ np.linalg.solve(r, b[c:])


def joint_posterior(mesh: SmallMesh, i: int, k: int, t: float, ridge: float) -> tuple[Any, Any]:
    """Posterior mean and covariance of city i's [theta_c, theta_s] in one Gaussian model of all cities: a
    centre with a flat prior, each city's theta_c = centre + N(0, t), the ridge as the prior of city i's own
    theta_c and of everyone's local parameters."""
    c = SHARED
    if t == 0.0:
        w, b = mesh.histories[i].normal_equations(k, ridge)
        for j in {0, 1, 2} - {i}:
            information, h = marginal_information(mesh.at_last_exchange(j), k, ridge)
            w[:c, :c] += information
            b[:c] += h
        return np.linalg.solve(w, b), np.linalg.inv(w)
    # Variables: centre, then each city's theta_c and theta_s.
    starts = [int(v) for v in np.cumsum([c] + [c + s for s in LOCALS])]
    size = starts[-1]
    w, b = np.zeros((size, size)), np.zeros(size)
    for j, s in enumerate(LOCALS):
        history = mesh.histories[i] if j == i else mesh.at_last_exchange(j)
        design, rewards = history.of(k)
        at = slice(starts[j], starts[j] + c + s)
        w[at, at] += design.T @ design
        b[at] += design.T @ rewards
        for h in range(s):
            w[starts[j] + c + h, starts[j] + c + h] += ridge
        for h in range(c):
            own = starts[j] + h
            w[h, h] += 1 / t
            w[own, own] += 1 / t + (ridge if j == i else 0.0)
            w[h, own] -= 1 / t
            w[own, h] -= 1 / t
    covariance = np.linalg.inv(w)
    mine = slice(starts[i], starts[i] + c + LOCALS[i])
    return (covariance @ b)[mine], covariance[mine, mine]


@pytest.mark.parametrize("t", [0.0, 0.3, 50.0])
def test_netpool_with_fixed_heterogeneity_is_the_posterior_of_the_joint_model(t: float) -> None:
    ridge = 0.6
    policy = make_policy("netpool", heterogeneity=t, trust="equal", ridge=ridge, alpha=0.9)
    mesh = SmallMesh(policy, gossip_every=7)

    def expected(i: int, x: Array) -> tuple[list[Any], list[Any]]:
        posteriors = [joint_posterior(mesh, i, k, t, ridge) for k in range(ARMS)]
        return [x @ mean for mean, _ in posteriors], [0.9 * np.sqrt(x @ v @ x) for _, v in posteriors]

    mesh.check(expected)


def noise_by_hand(history: History, ridge: float) -> list[Any]:
    """The noise of every arm, from hat matrices."""

    def residual(k: int, penalty: float) -> tuple[Any, Any]:
        design, rewards = history.of(k)
        hat = design @ np.linalg.inv(design.T @ design + penalty * np.eye(design.shape[1])) @ design.T
        off = np.eye(len(rewards)) - hat
        return rewards @ off @ off @ rewards, np.trace(off @ off)

    loose = [residual(k, ridge / 100) for k in range(ARMS)]
    tight = [residual(k, ridge) for k in range(ARMS)]
    prior = sum(rss for rss, _ in tight) / sum(dof for _, dof in tight)
    city = (sum(rss for rss, _ in loose) + 4 * prior) / (sum(dof for _, dof in loose) + 4)
    return [(rss + 4 * city) / (dof + 4) for rss, dof in loose]


class Equations:
    """NetPool's estimates of heterogeneity and trust for one arm, from (Lambda_j, h_j) of three cities."""

    def __init__(self, evidence: list[tuple[Any, Any]], noise: Any, ridge: float) -> None:
        self.evidence, self.noise, self.ridge = evidence, noise, ridge
        self.theta = [np.linalg.pinv(information, rcond=1e-9) @ h for information, h in evidence]
        self.rank = [int(np.linalg.matrix_rank(information, tol=1e-9)) for information, _ in evidence]

    def shrink(self, j: int, t: Any) -> tuple[Any, Any]:
        """(I + t Lambda_j)^-1 Lambda_j and (I + t Lambda_j)^-1 h_j."""
        information, h = self.evidence[j]
        return np.linalg.solve(EYE + t * information, information), np.linalg.solve(EYE + t * information, h)

    def median_heterogeneity(self) -> Any:
        votes = []
        for j in range(3):
            information = self.evidence[j][0]
            others = sum((self.evidence[q][0] for q in range(3) if q != j), self.ridge * EYE)
            response = sum(self.evidence[q][1] for q in range(3) if q != j)
            apart = self.theta[j] - np.linalg.solve(others, response)
            spread = apart @ information @ apart / (1 - 2 / (9 * max(self.rank[j], 1))) ** 3
            expected = self.noise * (self.rank[j] + np.trace(information @ np.linalg.inv(others)))
            votes.append((spread - expected) / (self.noise * np.trace(information) * 3 / 2))
        return max(0.0, sorted(votes)[1])

    def robust_trust(self, trust: list[Any], t: Any) -> list[Any]:
        weights: list[Any] = []
        for j in range(3):
            others, response = self.ridge * EYE, np.zeros(SHARED)
            for q in {0, 1, 2} - {j}:
                information, h = self.shrink(q, t)
                others = others + trust[q] * information
                response = response + trust[q] * h
            apart = self.theta[j] - np.linalg.solve(others, response)
            between = np.linalg.inv(others) + t * EYE
            information = self.evidence[j][0]
            precision = information - information @ np.linalg.solve(
                information + np.linalg.inv(between), information
            )
            distance = apart @ precision @ apart / self.noise
            weights.append(min(1.0, (4 + self.rank[j]) / (4 + distance)))
        return weights

    def moment_heterogeneity(self, trust: list[Any]) -> Any:
        v = [weight**2 for weight in trust]
        informations = [information for information, _ in self.evidence]
        total = sum((v[j] * informations[j] for j in range(3)), self.ridge * EYE)
        mean = np.linalg.solve(total, sum(v[j] * self.evidence[j][1] for j in range(3)))
        apart = [self.theta[j] - mean for j in range(3)]
        spread: Any = sum(v[j] * apart[j] @ informations[j] @ apart[j] for j in range(3))
        inverse = np.linalg.inv(total)
        expected = sum(v[j] * self.rank[j] for j in range(3)) - np.trace(
            inverse @ sum(v[j] ** 2 * informations[j] for j in range(3))
        )
        slope = sum(v[j] * np.trace(informations[j]) for j in range(3)) - np.trace(
            inverse @ sum(v[j] ** 2 * informations[j] @ informations[j] for j in range(3))
        )
        return max(0.0, (spread - self.noise * expected) / slope) / self.noise

    def heterogeneity_and_trust(self, robust: bool) -> tuple[Any, list[Any]]:
        trust: list[Any] = [1.0, 1.0, 1.0]
        if not robust:
            return self.moment_heterogeneity(trust), trust
        t = self.median_heterogeneity()
        for _ in range(2):
            trust = self.robust_trust(trust, t)
            t = self.moment_heterogeneity(trust)
        return t, trust


@pytest.mark.parametrize("rounds", [200, 14])
@pytest.mark.parametrize("trust", ["equal", "robust"])
def test_netpool_estimates_heterogeneity_and_trust_by_its_equations(trust: str, rounds: int) -> None:
    """Also where no city has as many contexts as features: 14 rounds, of which the summaries cover 9."""
    ridge, c = 1.0, SHARED
    policy = NetPool(trust=trust, ridge=ridge, alpha=1.0)  # type: ignore[arg-type]
    mesh = SmallMesh(policy, gossip_every=9, rounds=rounds)

    def pooled_posterior(i: int, k: int) -> tuple[Any, Any]:
        histories = [mesh.at_last_exchange(j) for j in range(3)]
        noise = sorted(noise_by_hand(history, ridge)[k] for history in histories)[1]
        evidence = [marginal_information(history, k, ridge) for history in histories]
        equations = Equations(evidence, noise, ridge)
        t, weights = equations.heterogeneity_and_trust(trust == "robust")
        a, e = np.zeros((c, c)), np.zeros(c)
        for j in {0, 1, 2} - {i}:
            information, h = equations.shrink(j, t)
            a += weights[j] * information
            e += weights[j] * h
        w, b = mesh.histories[i].normal_equations(k, ridge)
        w[:c, :c] += np.linalg.solve(EYE + t * a, a)
        b[:c] += np.linalg.solve(EYE + t * a, e)
        return np.linalg.solve(w, b), np.linalg.inv(w)

    def expected(i: int, x: Array) -> tuple[list[Any], list[Any]]:
        posteriors = [pooled_posterior(i, k) for k in range(ARMS)]
        return [x @ mean for mean, _ in posteriors], [np.sqrt(x @ v @ x) for _, v in posteriors]

    mesh.check(expected)
