"""Heterogeneity and trust in meshes of many cities, against a sum over the others for each city."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.arrays import Array
from pricemesh.core.comparison import DEGREES_OF_FREEDOM, MAX_INFLUENCE, MAX_SHARE
from pricemesh.core.pooling import TRUST_PASSES, Pooling

ARMS, FEATURES, RIDGE = 2, 4, 0.7
EYE = np.eye(FEATURES)


def mesh_of(kind: str, cities: int, seed: int) -> tuple[Array, Array, Array]:
    """Lambda, h and sigma^2 of cities that learned the same theta, apart from what `kind` says."""
    rng = np.random.default_rng(seed)
    theta, liars = rng.normal(size=(ARMS, FEATURES)), max(1, cities // 6)
    information = np.zeros((cities, ARMS, FEATURES, FEATURES))
    response = np.zeros((cities, ARMS, FEATURES))
    for j in range(cities):
        for k in range(ARMS):
            x = rng.normal(size=(int(rng.integers(1 if kind == "young" else 8, 40)), FEATURES))
            if kind == "one dominates" and j == 3:
                x *= 300.0
            deviation = 0.5 * rng.normal(size=FEATURES) if kind == "heterogeneous" else 0.0
            y = x @ (theta[k] + deviation) + 0.5 * rng.normal(size=len(x))
            information[j, k], response[j, k] = x.T @ x, x.T @ y
    if kind == "flips":
        response[:liars] *= -1.0
    if kind == "boasts":
        information[:liars] *= 100.0
        response[:liars] *= -100.0
    return information, response, 0.25 * rng.uniform(0.8, 1.2, size=(cities, ARMS))


class ByHand:
    """One arm, one city at a time."""

    def __init__(self, information: Array, response: Array, noise: Array) -> None:
        self.information, self.noise = information, float(np.median(noise))
        values = [np.linalg.eigvalsh(matrix) for matrix in information]
        self.rank = np.array([(value > 1e-10 * value[-1]).sum() for value in values])
        self.theta = [
            np.linalg.pinv(matrix, rcond=1e-10, hermitian=True) @ h
            for matrix, h in zip(information, response, strict=True)
        ]
        self.response = [matrix @ theta for matrix, theta in zip(information, self.theta, strict=True)]
        traces = np.trace(information, axis1=-2, axis2=-1)
        self.influence = np.minimum(1.0, MAX_INFLUENCE * np.median(traces) / traces)

    def others(self, j: int, weight: Array, t: float) -> tuple[Any, Any]:
        """The centre by all cities but j, and its covariance."""
        information, response = RIDGE * EYE, np.zeros(FEATURES)
        for i in range(len(self.theta)):
            if i != j:
                shrink = np.linalg.inv(EYE + t * self.information[i])
                information = information + weight[i] * shrink @ self.information[i]
                response = response + weight[i] * shrink @ self.response[i]
        covariance = np.linalg.inv(information)
        return covariance @ response, covariance

    def median_estimate(self) -> float:
        cities, votes = len(self.theta), []
        for j, matrix in enumerate(self.information):
            centre, covariance = self.others(j, self.influence, 0.0)
            apart = self.theta[j] - centre
            spread = apart @ matrix @ apart / (1 - 2 / (9 * self.rank[j])) ** 3
            expected = self.noise * (self.rank[j] + np.trace(matrix @ covariance))
            votes.append((spread - expected) / (self.noise * np.trace(matrix) * cities / (cities - 1)))
        return max(0.0, float(np.median(votes)))

    def trust(self, trust: Array, t: float) -> Array:
        weights = np.zeros(len(self.theta))
        for j, matrix in enumerate(self.information):
            centre, covariance = self.others(j, trust * self.influence, t)
            values, vectors = np.linalg.eigh(matrix)
            root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
            apart = root @ (self.theta[j] - centre)
            variance = EYE + root @ (covariance + t * EYE) @ root.T
            distance = apart @ np.linalg.solve(variance, apart) / self.noise
            weights[j] = min(1.0, (DEGREES_OF_FREEDOM + self.rank[j]) / (DEGREES_OF_FREEDOM + distance))
        return weights

    def moment_estimate(self, trust: Array) -> float:
        v, cities = trust * self.influence, range(len(self.theta))
        inverse = np.linalg.inv(RIDGE * EYE + sum(v[j] * self.information[j] for j in cities))
        mean = inverse @ sum(v[j] * self.response[j] for j in cities)
        apart = [self.theta[j] - mean for j in cities]
        spread: Any = sum(v[j] * apart[j] @ self.information[j] @ apart[j] for j in cities)
        squares: Any = sum(v[j] ** 2 * self.information[j] for j in cities)
        fourth: Any = sum(v[j] ** 2 * self.information[j] @ self.information[j] for j in cities)
        expected = v @ self.rank - np.trace(inverse @ squares)
        slope = v @ np.trace(self.information, axis1=-2, axis2=-1) - np.trace(inverse @ fourth)
        return max(0.0, float(spread - self.noise * expected)) / float(slope * self.noise)

    def estimates(self) -> tuple[float, Array]:
        t, trust = self.median_estimate(), np.ones(len(self.theta))
        for _ in range(TRUST_PASSES):
            trust = self.trust(trust, t)
            t = self.moment_estimate(trust * trust)
        return t, trust


KINDS = ["honest", "heterogeneous", "young", "flips", "boasts", "one dominates"]


@pytest.mark.parametrize("cities", [2, 9, 30, 80])
@pytest.mark.parametrize("kind", KINDS)
def test_heterogeneity_and_trust_equal_those_by_explicit_sums_over_the_others(kind: str, cities: int) -> None:
    """Also beyond c / MAX_SHARE cities, where one pool of all serves every comparison."""
    assert FEATURES / MAX_SHARE < 9
    evidence = mesh_of(kind, cities, seed=cities)
    pooling = Pooling(RIDGE, "auto", robust=True)
    result = pooling.pool(pooling.prepare(*evidence), slice(0, 1))
    for k in range(ARMS):
        t, trust = ByHand(*(part[:, k] for part in evidence)).estimates()
        np.testing.assert_allclose(result.heterogeneity[k], t, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(result.trust[:, k], trust, rtol=1e-11)


def test_what_a_city_gets_does_not_depend_on_whether_it_receives_alone_or_with_all() -> None:
    evidence = mesh_of("heterogeneous", 30, seed=1)
    pooling = Pooling(RIDGE, "auto", robust=True)
    together = pooling.pool(pooling.prepare(*evidence), slice(None))
    for i in (0, 7, 29):
        order = [i, *(j for j in range(30) if j != i)]
        alone = pooling.pool(pooling.prepare(*(part[order] for part in evidence)), slice(0, 1))
        np.testing.assert_allclose(alone.information[0], together.information[i], rtol=1e-10)
        np.testing.assert_allclose(alone.response[0], together.response[i], rtol=1e-10, atol=1e-12)


def test_a_city_that_alone_knows_a_direction_is_compared_without_losing_digits() -> None:
    """The others know nothing on the last feature. The information of all, 1e12, minus that of the city
    itself would leave four digits of the ridge; its distance along that feature is nearly ridge theta^2."""
    information, response, noise = mesh_of("honest", 40, seed=5)
    information, response, noise = 1e4 * information, 1e4 * response, 1e4 * noise
    for feature, size in ((0, 1e12), (FEATURES - 1, 0.0)):
        information[:, :, feature, :] = information[:, :, :, feature] = response[:, :, feature] = 0.0
        information[:, :, feature, feature], response[:, :, feature] = size, size
    information[0, :, -1, -1], response[0, :, -1] = 1e12, 1e12 * 100.0
    pooling = Pooling(RIDGE, 0.0, robust=True)
    result = pooling.pool(pooling.prepare(information, response, noise), slice(0, 1))
    for k in range(ARMS):
        by_hand = ByHand(information[:, k], response[:, k], noise[:, k])
        assert by_hand.influence[0] == 1.0
        trust = by_hand.trust(by_hand.trust(np.ones(40), 0.0), 0.0)
        np.testing.assert_allclose(result.trust[:, k], trust, rtol=1e-9)
        assert trust[0] < 1.0
