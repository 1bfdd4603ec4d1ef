"""Demand recomputed by hand from raw sales: features, sums, pooling, prior variances and money."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.ladder import Ladder
from pricemesh.core.policies import Shape
from pricemesh.core.policies.demand import Demand, DemandLearner
from pricemesh.core.summary import Summary

ARMS, SHARED, LOCALS = 4, 3, (2, 0, 1)
PRICES = np.array([5.0, 6.0, 7.5, 9.0])
CITIES = ("a", "b", "c")
Row = tuple[Any, int, float, float]  # context, arm, sold, chance at the decision


def kernel_root() -> Any:
    kernel = np.empty((ARMS, ARMS))
    for k in range(ARMS):
        for j in range(ARMS):
            kernel[k, j] = 0.7 * np.exp(-(((k - j) / 1.5) ** 2) / 2) + (0.3 if k == j else 0.0)
    return np.linalg.cholesky(kernel)


def features(x: Any, arm: int, prices: Any = PRICES, low: float = 5.0, high: float = 9.0) -> Any:
    """z: intercept, slope, main effects, interactions, the arm; then the local ones."""
    u = -1 + 2 * (prices[arm] - low) / (high - low)
    shared, local = list(x[:SHARED]), list(x[SHARED:])
    return np.array(
        [1.0, u, *shared, *(u * v for v in shared), *kernel_root()[arm], *local, *(u * v for v in local)]
    )


def prior(local: int) -> Any:
    return np.array(
        [4.0, 4.0] + [1.0] * SHARED + [0.5] * SHARED + [0.05] * ARMS + [1.0] * local + [0.25] * local
    )


COMMON = 2 + 2 * SHARED + ARMS


def sums(rows: list[Row]) -> tuple[Any, Any]:
    """G and h, one Newton step of the logistic likelihood for each sale."""
    size = len(features(rows[0][0], 0)) if rows else 0
    g, h = np.zeros((size, size)), np.zeros(size)
    for x, arm, sold, chance in rows:
        z = features(x, arm)
        eta = min(6.0, max(-6.0, np.log(chance / (1 - chance))))
        pi = 1 / (1 + np.exp(-eta))
        w = max(pi * (1 - pi), 0.05)
        g += w * np.outer(z, z)
        h += z * (w * eta + sold - pi)
    return g, h


def marginal(rows: list[Row], local: int) -> tuple[Any, Any]:
    """Lambda and response of the common coefficients; the local ones, with their prior, integrated out."""
    (g, h), n = sums(rows), COMMON
    block = g[n:, n:] + np.diag(1 / prior(local)[n:])
    gain = g[:n, n:] @ np.linalg.inv(block)
    return g[:n, :n] - gain @ g[n:, :n], h[:n] - gain @ h[n:]


def fitted_prior(information: Any, response: Any) -> Any:
    """Six passes of empirical Bayes over main effects, interactions and arms."""
    start = prior(0)
    variance = start.copy()
    blocks = [range(2, 5), range(5, 8), range(8, 12)]
    for _ in range(6):
        covariance = np.linalg.inv(information + np.diag(1 / variance))
        theta = covariance @ response
        fitted = variance.copy()
        for block in blocks:
            top = 4 * start[block[0]] + sum(theta[j] ** 2 for j in block)
            bottom = 4 + sum(1 - covariance[j, j] / variance[j] for j in block)
            for j in block:
                fitted[j] = min(25.0, max(0.001, top / bottom))
        variance = fitted
    return variance


class Mesh:
    """Three cities with unequal numbers of local features; sales at random, late feedback, some never."""

    def __init__(self, seed: int, rounds: int, **parameters: Any) -> None:
        rng = np.random.default_rng(seed)
        policy = Demand(**parameters)
        ladder = Ladder(PRICES, 5.0, 9.0, cost=1.0, max_units=2)
        shapes = [Shape(ARMS, SHARED, s, ladder=ladder) for s in LOCALS]
        self.learners = [DemandLearner(policy, shape) for shape in shapes]
        self.rows: list[list[Row]] = [[] for _ in CITIES]
        self.waiting: list[list[Row]] = [[] for _ in CITIES]
        self.published: list[list[Row]] = [[] for _ in CITIES]
        for index in range(rounds):
            if index % 7 == 6:
                self.exchange(index)
            for i, s in enumerate(LOCALS):
                self._decide(i, rng, rng.normal(size=SHARED + s))
                while self.waiting[i] and rng.random() < 0.55:
                    self._answer(i, rng)
        self.probes = [rng.normal(size=(3, SHARED + s)) for s in LOCALS]

    def _decide(self, i: int, rng: Any, x: Any) -> None:
        arms = np.array([rng.integers(ARMS)])
        chance = self.learners[i].chances(x[None], arms)
        self.learners[i].pend(x[None], arms, chance)
        self.waiting[i].append((x, int(arms[0]), 0.0, float(chance[0])))

    def _answer(self, i: int, rng: Any) -> None:
        x, arm, _, chance = self.waiting[i].pop(int(rng.integers(len(self.waiting[i]))))
        if rng.random() < 0.1:
            self.learners[i].release(x[None], np.array([arm]), np.array([chance]))
            return
        sold = float(rng.choice([0.0, 0.5, 1.0]))
        self.learners[i].learn(x, arm, sold, chance, pending=True)
        self.rows[i].append((x, arm, sold, chance))

    def exchange(self, version: int) -> None:
        self.published = [list(rows) for rows in self.rows]
        summaries = {
            city: Summary.of(city, 1, version, bytes(16), learner.numbers())
            for city, learner in zip(CITIES, self.learners, strict=True)
        }
        for city, learner in zip(CITIES, self.learners, strict=True):
            learner.absorb_summaries(city, summaries)

    def coefficients(self, i: int) -> tuple[Any, Any]:
        """theta and V of all cities' sales, with heterogeneity 0 and equal trust."""
        n, local = COMMON, LOCALS[i]
        pairs = [marginal(rows, s) for rows, s in zip(self.published, LOCALS, strict=True)]
        g, h = sums(self.rows[i])
        variance = prior(local)
        variance[:n] = fitted_prior(sum(p for p, _ in pairs), sum(q for _, q in pairs))
        precision = g + np.diag(1 / variance)
        for j in {0, 1, 2} - {i}:
            precision[:n, :n] += pairs[j][0]
            h[:n] += pairs[j][1]
        theta = np.linalg.solve(precision, h)
        return theta, precision + self._waiting_sum(i)

    def coefficients_alone(self, i: int) -> tuple[Any, Any]:
        """theta and V of the city's own sales."""
        g, h = sums(self.rows[i])
        precision = g + np.diag(1 / prior(LOCALS[i]))
        return np.linalg.solve(precision, h), precision + self._waiting_sum(i)

    def _waiting_sum(self, i: int) -> Any:
        return sums(self.waiting[i])[0] if self.waiting[i] else 0.0

    def alpha_t(self, i: int, alpha: float) -> float:
        return max(alpha, 1.5 / float(np.sqrt(1 + len(self.rows[i]) / 30)))

    def expected(self, i: int, x: Any, alpha: float) -> tuple[list[float], list[float]]:
        """Estimates and radii in money, with heterogeneity 0 and equal trust."""
        (theta, wide), alpha_t = self.coefficients(i), self.alpha_t(i, alpha)
        estimates, radii = [], []
        for k in range(ARMS):
            z = features(x, k)
            eta, deviation = z @ theta, np.sqrt(z @ np.linalg.solve(wide, z))
            margin = 2 * (PRICES[k] - 1.0)
            chance, bound = (1 / (1 + np.exp(-v)) for v in (eta, eta + alpha_t * deviation))
            estimates.append(margin * chance)
            radii.append(margin * (bound - chance))
        return estimates, radii


@pytest.mark.parametrize("rounds", [13, 60, 300])
def test_demand_is_one_regression_on_the_sales_of_all_cities(rounds: int) -> None:
    """Also beyond the 128 updates after which inverses are computed anew."""
    mesh = Mesh(5, rounds, heterogeneity=0.0, trust="equal", alpha=0.4)
    for i, learner in enumerate(mesh.learners):
        for x in mesh.probes[i]:
            score = learner.score(x)
            estimates, radii = mesh.expected(i, x, 0.4)
            np.testing.assert_allclose(score.estimate, estimates, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(score.radius, radii, rtol=1e-9, atol=1e-9)


def test_a_summary_integrates_out_what_is_local() -> None:
    mesh = Mesh(6, 80)
    for rows, local, learner in zip(mesh.rows, LOCALS, mesh.learners, strict=True):
        information, response = marginal(rows, local)
        parts = learner.summarise()
        np.testing.assert_allclose(parts["information"][0], information, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(parts["response"][0], response, rtol=1e-9, atol=1e-9)
        assert parts["count"].tolist() == [len(rows)]


def test_peers_parts_add_up_on_the_scale_of_the_logit() -> None:
    """A city's logit is its own part and its peers' parts; its own part uses own sums under the pooled F."""
    mesh = Mesh(7, 80)
    learner, n = mesh.learners[0], COMMON
    x, arms = mesh.probes[0], np.array([0, 2, 3])
    estimate, radius = learner.contributions(x, arms)
    for row, arm, peers, widths in zip(x, arms, estimate, radius, strict=True):
        z = features(row, arm)
        own = learner.own.response[0] @ learner.pooled.inverse[0] @ z
        chance = float(learner.chances(row[None], np.array([arm]))[0])
        assert own + peers.sum() == pytest.approx(np.log(chance / (1 - chance)), abs=1e-9)
        assert (widths >= -1e-12).all()
    assert learner.attribution.origins == ("b", "c")
    assert n == learner.basis.common_size


def test_a_peer_that_leaves_is_subtracted_exactly() -> None:
    mesh = Mesh(8, 60)
    learner = mesh.learners[1]
    summaries = {
        city: Summary.of(city, 1, 1, bytes(16), each.numbers())
        for city, each in zip(CITIES, mesh.learners, strict=True)
    }
    probe = mesh.probes[1]
    learner.absorb_summaries("b", {"a": summaries["a"]})
    before = learner.score(probe)
    learner.absorb_summaries("b", summaries)
    assert np.abs(learner.score(probe).estimate - before.estimate).max() > 1e-6
    learner.absorb_summaries("b", {"a": summaries["a"]})
    after = learner.score(probe)
    np.testing.assert_array_equal(after.estimate, before.estimate)
    np.testing.assert_array_equal(after.radius, before.radius)
