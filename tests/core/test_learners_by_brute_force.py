"""Every learner against a recomputation from raw history, written out with loops and plain solves.

Three cities with unequal local dimensions learn at random for 200 rounds and exchange summaries, in
wire form, at some of them; then estimates and radii are compared.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pricemesh.core.arrays import Array
from pricemesh.core.policies import Learner, Policy, Shape, make_policy
from pricemesh.core.policies.netpool import NetPool
from pricemesh.core.summary import Summaries, Summary, merge
from tests.core.histories import History, random_observation
from tests.core.test_weights import by_loops

ARMS, SHARED, LOCALS, ROUNDS = 3, 4, (2, 0, 3), 200
CITIES = ("a", "b", "c")

Expected = Callable[[int, Array], tuple[list[Any], list[Any]]]


class Town:
    """Cities that learn and gossip, and the raw history of each at every exchange."""

    def __init__(self, policy: Policy, gossip_every: int, seed: int = 11, rounds: int = ROUNDS) -> None:
        rng = np.random.default_rng(seed)
        self.learners: list[Learner] = [policy.learner(Shape(ARMS, SHARED, s)) for s in LOCALS]
        self.histories = [History(ARMS, SHARED, s) for s in LOCALS]
        self.ticks: list[list[int]] = []  # how many rows each city had at each exchange
        for index in range(rounds):
            if index % gossip_every == 0:
                self.exchange(index)
            for learner, history in zip(self.learners, self.histories, strict=True):
                x, arm, reward = random_observation(rng, SHARED + history.local, ARMS)
                learner.learn(x, arm, reward)
                history.add(x, arm, reward)
        self.probes = [rng.normal(size=(5, SHARED + s)) for s in LOCALS]

    def exchange(self, version: int) -> None:
        self.ticks.append([len(history.rows) for history in self.histories])
        if not self.learners[0].fields:
            return
        told = [
            Summary.of(city, 1, version, bytes(16), learner.numbers())
            for city, learner in zip(CITIES, self.learners, strict=True)
        ]
        held: Summaries = merge({}, [Summary.from_bytes(summary.to_bytes()) for summary in told])
        for city, learner in zip(CITIES, self.learners, strict=True):
            learner.absorb_summaries(city, held)

    def cut(self, city: int, rows: int) -> History:
        history = self.histories[city]
        return History(ARMS, SHARED, history.local, history.rows[:rows])

    def check(self, expected: Expected) -> None:
        for i, learner in enumerate(self.learners):
            for x in self.probes[i]:
                score = learner.score(x)
                estimates, radii = expected(i, x)
                np.testing.assert_allclose(score.estimate, estimates, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(score.radius, radii, rtol=1e-9, atol=1e-9)


def test_disjoint() -> None:
    town = Town(make_policy("disjoint", alpha=0.8, ridge=0.5), gossip_every=7)

    def expected(i: int, x: Array) -> tuple[list[Any], list[Any]]:
        estimates, radii = [], []
        for k in range(ARMS):
            w, b = town.histories[i].normal_equations(k, ridge=0.5)
            estimates.append(x @ np.linalg.solve(w, b))
            radii.append(0.8 * np.sqrt(x @ np.linalg.solve(w, x)))
        return estimates, radii

    town.check(expected)


def test_shared() -> None:
    """The central server sees [x_c, 0..., x_s, ...0] of every city; local features are padded to three."""
    rng = np.random.default_rng(5)
    widest, cities = max(LOCALS), len(LOCALS)
    learner = make_policy("shared", alpha=0.9, ridge=0.8).learner(Shape(ARMS, SHARED, widest, (cities,)))
    size = SHARED + cities * widest
    w = [0.8 * np.eye(size) for _ in range(ARMS)]
    b = [np.zeros(size) for _ in range(ARMS)]

    def embedded(city: int, x: Array) -> Array:
        whole = np.zeros(size)
        whole[:SHARED] = x[:SHARED]
        for h in range(widest):
            whole[SHARED + city * widest + h] = x[SHARED + h]
        return whole

    for _ in range(ROUNDS):
        x, arm, reward = rng.normal(size=(cities, 7)) / 3, rng.integers(ARMS, size=cities), rng.normal(size=3)
        learner.learn(x, arm, reward)
        for i in range(cities):
            whole = embedded(i, x[i])
            w[arm[i]] += np.outer(whole, whole)
            b[arm[i]] += reward[i] * whole
    probe = rng.normal(size=(cities, 7))
    score = learner.score(probe)
    for i in range(cities):
        whole = embedded(i, probe[i])
        for k in range(ARMS):
            assert score.estimate[i, k] == pytest.approx(whole @ np.linalg.solve(w[k], b[k]), abs=1e-9)
            radius = 0.9 * np.sqrt(whole @ np.linalg.solve(w[k], whole))
            assert score.radius[i, k] == pytest.approx(radius, rel=1e-9)


def omega_by_loops(town: Town, rho: float, memory: float, combine: str, cosine: str) -> Array:
    weights = np.broadcast_to(np.eye(3), (ARMS, 3, 3))
    for rows in town.ticks:
        counts, contexts = np.ones((3, ARMS)), np.zeros((3, SHARED))
        for j in range(3):
            for x, arm, _ in town.cut(j, rows[j]).rows:
                counts[j, arm] += 1
                contexts[j] = memory * contexts[j] + (1 - memory) * x[:SHARED]
        weights = rho * weights + (1 - rho) * by_loops(counts, contexts, combine, cosine)
    return np.asarray(weights)


@pytest.mark.parametrize("split", ["marginal", "block"])
@pytest.mark.parametrize(("combine", "cosine"), [("product", "shift"), ("sum", "clip"), ("counts", "shift")])
@pytest.mark.parametrize("every", [1, 7])
def test_netlinucb(split: str, combine: str, cosine: str, every: int) -> None:
    policy = make_policy(
        "netlinucb", split=split, combine=combine, cosine=cosine, rho=0.8, context_memory=0.6, alpha=1.3
    )
    town = Town(policy, every)
    omega = omega_by_loops(town, 0.8, 0.6, combine, cosine)

    def part(history: History, k: int) -> tuple[Any, Any, Any, Any]:
        """theta_c, V, theta_s, U"""
        w, b = history.normal_equations(k)
        c = SHARED
        if split == "block":
            v, u = np.linalg.inv(w[:c, :c]), np.linalg.inv(w[c:, c:])
            return v @ b[:c], v, u @ b[c:], u
        inverse = np.linalg.inv(w)
        theta = inverse @ b
        return theta[:c], inverse[:c, :c], theta[c:], inverse[c:, c:]

    def expected(i: int, x: Array) -> tuple[list[Any], list[Any]]:
        estimates, radii = [], []
        for k in range(ARMS):
            estimate = variance = 0.0
            for j in range(3):
                known = town.histories[i] if j == i else town.cut(j, town.ticks[-1][j])
                theta, v, _, _ = part(known, k)
                estimate += omega[k, i, j] * (x[:SHARED] @ theta)
                variance += omega[k, i, j] ** 2 * (x[:SHARED] @ v @ x[:SHARED])
            _, _, theta, u = part(town.histories[i], k)
            estimates.append(estimate + x[SHARED:] @ theta)
            radii.append(1.3 * np.sqrt(variance + x[SHARED:] @ u @ x[SHARED:]))
        return estimates, radii

    town.check(expected)


@pytest.mark.parametrize("accumulator", ["sum", "ema"])
@pytest.mark.parametrize("every", [1, 7])
def test_netsgducb(accumulator: str, every: int) -> None:
    mu, eta, gamma, alpha, rho, memory = 0.4, 0.2, 0.9, 0.7, 0.7, 0.5
    policy = make_policy(
        "netsgducb",
        accumulator=accumulator,
        mu=mu,
        eta=eta,
        gamma=gamma,
        alpha=alpha,
        rho=rho,
        context_memory=memory,
    )
    town = Town(policy, every)
    dims = [SHARED + s for s in LOCALS]
    theta = [np.zeros((ARMS, d)) for d in dims]
    velocity = [np.zeros((ARMS, d)) for d in dims]
    square = [np.ones((ARMS, d)) for d in dims]
    counts, contexts = np.ones((3, ARMS)), np.zeros((3, SHARED))
    omega: Array = np.broadcast_to(np.eye(3), (ARMS, 3, 3))
    told: list[Array] = []
    for index in range(ROUNDS):
        if index % every == 0:
            omega = rho * omega + (1 - rho) * by_loops(counts, contexts, "product", "shift")
            told = [g.copy() for g in square]
            before = [t.copy() for t in theta]
            for i in range(3):
                for k in range(ARMS):
                    theta[i][k, :SHARED] = sum(omega[k, i, j] * before[j][k, :SHARED] for j in range(3))
        for i in range(3):
            x, k, reward = town.histories[i].rows[index]
            gradient = -(reward - x @ theta[i][k]) * x
            velocity[i][k] = mu * velocity[i][k] + (1 - mu) * gradient
            theta[i][k] = theta[i][k] - eta * velocity[i][k]
            if accumulator == "sum":
                square[i][k] = square[i][k] + gradient**2
            else:
                square[i][k] = gamma * square[i][k] + (1 - gamma) * gradient**2
            counts[i, k] += 1
            contexts[i] = memory * contexts[i] + (1 - memory) * x[:SHARED]

    def expected(i: int, x: Array) -> tuple[list[Any], list[Any]]:
        radii = []
        for k in range(ARMS):
            variance = sum(x[h] ** 2 / square[i][k, h] for h in range(SHARED, dims[i]))
            for j in range(3):
                g = square[i] if j == i else told[j]
                variance += omega[k, i, j] ** 2 * sum(x[h] ** 2 / g[k, h] for h in range(SHARED))
            radii.append(alpha * np.sqrt(variance))
        return [float(x @ theta[i][k]) for k in range(ARMS)], radii

    town.check(expected)


def marginal_information(history: History, k: int, ridge: float) -> tuple[Any, Any]:
    """Lambda and h: the local parameters, with their prior, integrated out."""
    w, b = history.normal_equations(k, ridge)
    c = SHARED
    p, q, r = w[:c, :c] - ridge * np.eye(c), w[:c, c:], w[c:, c:]
    return p - q @ np.linalg.solve(r, q.T), b[:c] - q @ np.linalg.solve(r, b[c:])


@pytest.mark.parametrize("t", [0.0, 0.3, 50.0])
def test_netpool_with_given_heterogeneity_is_the_posterior_of_the_joint_model(t: float) -> None:
    """One Gaussian model of everything: a centre with a flat prior, each city's theta_c = centre +
    N(0, t), city i's own theta_c with the ridge besides, everyone's local parameters with the ridge."""
    ridge = 0.6
    policy = make_policy("netpool", heterogeneity=t, trust="equal", ridge=ridge, alpha=0.9)
    town = Town(policy, gossip_every=7)
    c = SHARED

    def joint(i: int, k: int) -> tuple[Any, Any]:
        """Posterior mean and covariance of city i's [theta_c, theta_s]."""
        if t == 0.0:
            w, b = town.histories[i].normal_equations(k, ridge)
            for j in {0, 1, 2} - {i}:
                information, h = marginal_information(town.cut(j, town.ticks[-1][j]), k, ridge)
                w[:c, :c] += information
                b[:c] += h
            return np.linalg.solve(w, b), np.linalg.inv(w)
        # Variables: centre, then each city's theta_c and theta_s.
        starts = [int(v) for v in np.cumsum([c] + [c + s for s in LOCALS])]
        size = starts[-1]
        w, b = np.zeros((size, size)), np.zeros(size)
        for j, s in enumerate(LOCALS):
            history = town.histories[i] if j == i else town.cut(j, town.ticks[-1][j])
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

    def expected(i: int, x: Array) -> tuple[list[Any], list[Any]]:
        answers = [joint(i, k) for k in range(ARMS)]
        return [x @ mean for mean, _ in answers], [0.9 * np.sqrt(x @ v @ x) for _, v in answers]

    town.check(expected)


def noise_by_hand(history: History, ridge: float) -> list[Any]:
    """The noise of every arm, from hat matrices."""

    def residual(k: int, penalty: float) -> tuple[Any, Any]:
        design, rewards = history.of(k)
        hat = design @ np.linalg.inv(design.T @ design + penalty * np.eye(design.shape[1])) @ design.T
        off = np.eye(len(rewards)) - hat
        return rewards @ off @ off @ rewards, np.trace(off @ off)

    loose = [residual(k, ridge / 100) for k in range(ARMS)]
    tight = [residual(k, ridge) for k in range(ARMS)]
    guess = sum(rss for rss, _ in tight) / sum(dof for _, dof in tight)
    city = (sum(rss for rss, _ in loose) + 4 * guess) / (sum(dof for _, dof in loose) + 4)
    return [(rss + 4 * city) / (dof + 4) for rss, dof in loose]


@pytest.mark.parametrize("rounds", [200, 14])
@pytest.mark.parametrize("trust", ["equal", "robust"])
def test_netpool_estimates_heterogeneity_and_trust_as_written(trust: str, rounds: int) -> None:
    """Also where no city has seen as many contexts as it has features (14 rounds, 9 of them told)."""
    ridge = 1.0
    policy = NetPool(trust=trust, ridge=ridge, alpha=1.0)  # type: ignore[arg-type]
    town = Town(policy, gossip_every=9, rounds=rounds)
    c, eye = SHARED, np.eye(SHARED)

    def pooled(i: int, k: int) -> tuple[Any, Any]:
        cut = [town.cut(j, town.ticks[-1][j]) for j in range(3)]
        known = [marginal_information(history, k, ridge) for history in cut]
        noise = sorted(noise_by_hand(history, ridge)[k] for history in cut)[1]
        w: list[Any] = [1.0, 1.0, 1.0]
        t: Any = 0.0
        theta = [np.linalg.pinv(information, rcond=1e-9) @ h for information, h in known]
        rank = [int(np.linalg.matrix_rank(information, tol=1e-9)) for information, _ in known]
        if trust == "robust":
            votes = []
            for j in range(3):
                others = sum((known[q][0] for q in range(3) if q != j), ridge * eye)
                apart = theta[j] - np.linalg.solve(others, sum(known[q][1] for q in range(3) if q != j))
                spread = apart @ known[j][0] @ apart / (1 - 2 / (9 * max(rank[j], 1))) ** 3
                expected = noise * (rank[j] + np.trace(known[j][0] @ np.linalg.inv(others)))
                votes.append((spread - expected) / (noise * np.trace(known[j][0]) * 3 / 2))
            t = max(0.0, sorted(votes)[1])
        for _ in range(2 if trust == "robust" else 1):
            if trust == "robust":
                fresh = []
                for j in range(3):
                    others = ridge * eye
                    pull = np.zeros(c)
                    for q in {0, 1, 2} - {j}:
                        others = others + w[q] * np.linalg.solve(eye + t * known[q][0], known[q][0])
                        pull = pull + w[q] * np.linalg.solve(eye + t * known[q][0], known[q][1])
                    apart = theta[j] - np.linalg.solve(others, pull)
                    between = np.linalg.inv(others) + t * eye
                    information = known[j][0]
                    precision = information - information @ np.linalg.solve(
                        information + np.linalg.inv(between), information
                    )
                    distance = apart @ precision @ apart / noise
                    fresh.append(min(1.0, (4 + rank[j]) / (4 + distance)))
                w = fresh
            v = [weight**2 for weight in w]
            total = sum((v[j] * known[j][0] for j in range(3)), ridge * eye)
            mean = np.linalg.solve(total, sum(v[j] * known[j][1] for j in range(3)))
            spread = sum(v[j] * (theta[j] - mean) @ known[j][0] @ (theta[j] - mean) for j in range(3))
            inverse = np.linalg.inv(total)
            expected = sum(v[j] * rank[j] for j in range(3)) - np.trace(
                inverse @ sum(v[j] ** 2 * known[j][0] for j in range(3))
            )
            slope = sum(v[j] * np.trace(known[j][0]) for j in range(3)) - np.trace(
                inverse @ sum(v[j] ** 2 * known[j][0] @ known[j][0] for j in range(3))
            )
            t = max(0.0, (spread - noise * expected) / slope) / noise
        a, e = np.zeros((c, c)), np.zeros(c)
        for j in {0, 1, 2} - {i}:
            a += w[j] * np.linalg.solve(eye + t * known[j][0], known[j][0])
            e += w[j] * np.linalg.solve(eye + t * known[j][0], known[j][1])
        f, right = town.histories[i].normal_equations(k, ridge)
        f[:c, :c] += np.linalg.solve(eye + t * a, a)
        right[:c] += np.linalg.solve(eye + t * a, e)
        return np.linalg.solve(f, right), np.linalg.inv(f)

    def expected_score(i: int, x: Array) -> tuple[list[Any], list[Any]]:
        answers = [pooled(i, k) for k in range(ARMS)]
        return [x @ mean for mean, _ in answers], [np.sqrt(x @ v @ x) for _, v in answers]

    town.check(expected_score)
