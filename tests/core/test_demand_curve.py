"""The demand curve at any price, recomputed by hand from raw sales."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.demand.curve import MAX_ROWS_TO_ADD
from pricemesh.core.ladder import Ladder
from pricemesh.core.policies import Shape, make_policy
from tests.core.test_demand_by_brute_force import LOCALS, PRICES, SHARED, Mesh, kernel_root

ALPHA = 0.4
AT = np.array([5.0, 5.3, 6.0, 7.2, 7.5, 8.99, 9.0])


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(5, 60, heterogeneity=0.0, trust="equal", alpha=ALPHA)


def features_at(x: Any, price: float) -> Any:
    """z, with the arm effect on the straight line between the arms on both sides of the price."""
    above = next(k for k in range(len(PRICES)) if PRICES[k] >= price)
    below = max(0, above - 1)
    part = 1.0 if above == below else (price - PRICES[below]) / (PRICES[above] - PRICES[below])
    effect = (1 - part) * kernel_root()[below] + part * kernel_root()[above]
    u = (price - 7.0) / 2.0
    shared, local = list(x[:SHARED]), list(x[SHARED:])
    return np.array([1.0, u, *shared, *(u * v for v in shared), *effect, *local, *(u * v for v in local)])


def sigmoid(value: float) -> float:
    return float(1 / (1 + np.exp(-value)))


@pytest.mark.parametrize("city", range(len(LOCALS)))
def test_the_curve_is_the_sigmoid_of_the_features_times_theta(mesh: Mesh, city: int) -> None:
    alpha_t = mesh.alpha_t(city, ALPHA)
    for x in mesh.probes[city]:
        pair = mesh.learners[city].curve_at(x, AT)
        for told, (theta, wide) in zip(
            pair, (mesh.coefficients(city), mesh.coefficients_alone(city)), strict=True
        ):
            rows = []
            for price in AT:
                z, margin = features_at(x, price), 2 * (price - 1.0)
                eta, step = z @ theta, alpha_t * np.sqrt(z @ np.linalg.solve(wide, z))
                chances = [sigmoid(eta), sigmoid(eta - step), sigmoid(eta + step)]
                rows.append([*chances, *(margin * chance for chance in chances)])
            np.testing.assert_allclose(np.transpose(told), rows, rtol=1e-9, atol=1e-9)


def test_at_an_arm_the_curve_is_that_arms_score(mesh: Mesh) -> None:
    for learner, probes in zip(mesh.learners, mesh.probes, strict=True):
        for x in probes:
            pooled, alone = learner.curve_at(x, PRICES)
            for told, score in ((pooled, learner.score(x)), (alone, learner.score_alone(x))):
                np.testing.assert_allclose(told.revenue, score.estimate, rtol=1e-11)
                np.testing.assert_allclose(told.revenue_high, score.estimate + score.radius, rtol=1e-11)
            arms = np.arange(len(PRICES))
            rows = np.repeat(x[None], len(PRICES), axis=0)
            np.testing.assert_allclose(pooled.chance, learner.chances(rows, arms), rtol=1e-11)


def test_a_price_below_cost_loses_money_and_its_band_is_still_in_order() -> None:
    ladder = Ladder(np.array([1.0, 2.0]), 0.0, 4.0, cost=3.0)
    learner = make_policy("demand").learner(Shape(2, 1, 0, ladder=ladder))
    predictions = learner.curve_at([1.0], np.array([0.0, 1.0, 2.0, 4.0]))
    assert predictions is not None
    pooled, alone = predictions
    assert np.all(pooled.revenue_low <= pooled.revenue)
    assert np.all(pooled.revenue <= pooled.revenue_high)
    assert pooled.revenue[:3].max() < 0.0 < pooled.revenue[3]
    np.testing.assert_allclose(pooled, alone, rtol=1e-12)  # no peer has told anything
    score = learner.score([1.0])
    np.testing.assert_allclose(pooled.revenue_high[1:3], score.estimate + score.radius, rtol=1e-12)


def test_beyond_the_outer_arms_the_arm_effect_stays() -> None:
    ladder = Ladder(np.array([2.0, 3.0]), 0.0, 4.0)
    learner = make_policy("demand").learner(Shape(2, 1, 0, ladder=ladder))
    z = learner.basis.rows_at(np.array([0.5]), np.array([0.0, 2.0, 2.5, 3.0, 4.0]))  # type: ignore[attr-defined]
    assert z[:, 1].tolist() == [-1.0, 0.0, 0.25, 0.5, 1.0]
    np.testing.assert_array_equal(z[0, 4:], z[1, 4:])
    np.testing.assert_array_equal(z[3, 4:], z[4, 4:])
    np.testing.assert_allclose(z[2, 4:], (z[1, 4:] + z[3, 4:]) / 2, rtol=1e-15)


def test_other_policies_have_no_curve() -> None:
    assert make_policy("netpool").learner(Shape(2, 1, 0)).curve_at([1.0], np.array([1.0, 2.0])) is None


def test_many_decisions_at_once_narrow_the_curve_as_one_after_another() -> None:
    """More rows than a new inverse costs, and fewer."""
    rng = np.random.default_rng(5)
    ladder = Ladder(np.array([1.0, 2.0, 3.0]), low=1.0, high=3.0)
    for count in (3, 2 * MAX_ROWS_TO_ADD):
        contexts, arms = rng.random((count, 2)), rng.integers(0, 3, count)
        chances = rng.uniform(0.1, 0.9, count)
        together, single = (make_policy("demand").learner(Shape(3, 1, 1, ladder=ladder)) for _ in range(2))
        together.pend(contexts, arms, chances)
        for i in range(count):
            single.pend(contexts[i : i + 1], arms[i : i + 1], chances[i : i + 1])
        one, other = together.score(contexts), single.score(contexts)
        np.testing.assert_allclose(one.radius, other.radius, rtol=1e-9)
        np.testing.assert_array_equal(one.estimate, other.estimate)
