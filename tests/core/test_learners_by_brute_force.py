"""The paper's learners and the two without peers, recomputed from raw history with loops and plain solves."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.arrays import Array
from pricemesh.core.policies import Shape, make_policy
from tests.core.algorithm_1 import target_by_loops
from tests.core.histories import History
from tests.core.small_mesh import ARMS, LOCALS, ROUNDS, SHARED, SmallMesh


def test_disjoint_is_ridge_regression_on_the_citys_own_data() -> None:
    mesh = SmallMesh(make_policy("disjoint", alpha=0.8, ridge=0.5), gossip_every=7)

    def expected(i: int, x: Array) -> tuple[list[Any], list[Any]]:
        estimates, radii = [], []
        for k in range(ARMS):
            w, b = mesh.histories[i].normal_equations(k, ridge=0.5)
            estimates.append(x @ np.linalg.solve(w, b))
            radii.append(0.8 * np.sqrt(x @ np.linalg.solve(w, x)))
        return estimates, radii

    mesh.check(expected)


def test_shared_is_ridge_regression_on_the_data_of_all_cities() -> None:
    """The central server sees z = [x_c, 0..., x_s, ...0] of every city; x_s is padded to three features."""
    rng = np.random.default_rng(5)
    widest, cities = max(LOCALS), len(LOCALS)
    learner = make_policy("shared", alpha=0.9, ridge=0.8).learner(Shape(ARMS, SHARED, widest, (cities,)))
    size = SHARED + cities * widest
    w = [0.8 * np.eye(size) for _ in range(ARMS)]
    b = [np.zeros(size) for _ in range(ARMS)]

    def embed(city: int, x: Array) -> Array:
        z = np.zeros(size)
        z[:SHARED] = x[:SHARED]
        for h in range(widest):
            z[SHARED + city * widest + h] = x[SHARED + h]
        return z

    for _ in range(ROUNDS):
        x, arm, reward = rng.normal(size=(cities, 7)) / 3, rng.integers(ARMS, size=cities), rng.normal(size=3)
        learner.learn(x, arm, reward)
        for i in range(cities):
            z = embed(i, x[i])
            w[arm[i]] += np.outer(z, z)
            b[arm[i]] += reward[i] * z
    probe = rng.normal(size=(cities, 7))
    score = learner.score(probe)
    for i in range(cities):
        z = embed(i, probe[i])
        for k in range(ARMS):
            assert score.estimate[i, k] == pytest.approx(z @ np.linalg.solve(w[k], b[k]), abs=1e-9)
            radius = 0.9 * np.sqrt(z @ np.linalg.solve(w[k], z))
            assert score.radius[i, k] == pytest.approx(radius, rel=1e-9)


def omega_by_loops(mesh: SmallMesh, rho: float, memory: float, combine: str, cosine: str) -> Array:
    """Omega after all exchanges, from the raw histories."""
    weights = np.broadcast_to(np.eye(3), (ARMS, 3, 3))
    for rows in mesh.exchanges:
        counts, contexts = np.ones((3, ARMS)), np.zeros((3, SHARED))
        for j in range(3):
            for x, arm, _ in mesh.cut(j, rows[j]).rows:
                counts[j, arm] += 1
                contexts[j] = memory * contexts[j] + (1 - memory) * x[:SHARED]
        weights = rho * weights + (1 - rho) * target_by_loops(counts, contexts, combine, cosine)
    return np.asarray(weights)


@pytest.mark.parametrize("split", ["marginal", "block"])
@pytest.mark.parametrize(("combine", "cosine"), [("product", "shift"), ("sum", "clip"), ("counts", "shift")])
@pytest.mark.parametrize("every", [1, 7])
def test_netlinucb_is_definition_1_of_the_paper(split: str, combine: str, cosine: str, every: int) -> None:
    policy = make_policy(
        "netlinucb", split=split, combine=combine, cosine=cosine, rho=0.8, context_memory=0.6, alpha=1.3
    )
    mesh = SmallMesh(policy, every)
    omega = omega_by_loops(mesh, 0.8, 0.6, combine, cosine)

    def moments(history: History, k: int) -> tuple[Any, Any, Any, Any]:
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
                history = mesh.histories[i] if j == i else mesh.at_last_exchange(j)
                theta, v, _, _ = moments(history, k)
                estimate += omega[k, i, j] * (x[:SHARED] @ theta)
                variance += omega[k, i, j] ** 2 * (x[:SHARED] @ v @ x[:SHARED])
            _, _, theta, u = moments(mesh.histories[i], k)
            estimates.append(estimate + x[SHARED:] @ theta)
            radii.append(1.3 * np.sqrt(variance + x[SHARED:] @ u @ x[SHARED:]))
        return estimates, radii

    mesh.check(expected)


@pytest.mark.parametrize("accumulator", ["sum", "ema"])
@pytest.mark.parametrize("every", [1, 7])
def test_netsgducb_is_definition_2_of_the_paper(accumulator: str, every: int) -> None:
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
    mesh = SmallMesh(policy, every)
    dims = [SHARED + s for s in LOCALS]
    theta = [np.zeros((ARMS, d)) for d in dims]
    velocity = [np.zeros((ARMS, d)) for d in dims]
    square = [np.ones((ARMS, d)) for d in dims]
    counts, contexts = np.ones((3, ARMS)), np.zeros((3, SHARED))
    omega: Array = np.broadcast_to(np.eye(3), (ARMS, 3, 3))
    summary_square: list[Array] = []  # G of each city at the last exchange
    for index in range(ROUNDS):
        if index % every == 0:
            omega = rho * omega + (1 - rho) * target_by_loops(counts, contexts, "product", "shift")
            summary_square = [g.copy() for g in square]
            before = [t.copy() for t in theta]
            for i in range(3):
                for k in range(ARMS):
                    theta[i][k, :SHARED] = sum(omega[k, i, j] * before[j][k, :SHARED] for j in range(3))
        for i in range(3):
            x, k, reward = mesh.histories[i].rows[index]
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
                g = square[i] if j == i else summary_square[j]
                variance += omega[k, i, j] ** 2 * sum(x[h] ** 2 / g[k, h] for h in range(SHARED))
            radii.append(alpha * np.sqrt(variance))
        return [float(x @ theta[i][k]) for k in range(ARMS)], radii

    mesh.check(expected)
