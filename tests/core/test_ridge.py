"""Ridge regression by hand, its numerical stability, and its estimate of the noise."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.ridge import Ridge, inverse_of_positive_definite

ONE_CITY, BATCH = 0, np.array(0)  # an arm that is an int selects the code for one city
both_code_paths = pytest.mark.parametrize("arm", [ONE_CITY, BATCH])


@both_code_paths
def test_two_observations_give_the_statistics_computed_by_hand(arm: Any) -> None:
    ridge = Ridge.fresh((), arms=2, dim=2, ridge=1.0)
    at = (arm + 1,)
    ridge.learn(at, np.array([1.0, 0.0]), np.array(3.0))
    ridge.learn(at, np.array([1.0, 1.0]), np.array(1.0))
    # W = I + [1 0]'[1 0] + [1 1]'[1 1] = [[3, 1], [1, 2]], b = [4, 1], W^-1 = [[2, -1], [-1, 3]] / 5
    np.testing.assert_allclose(ridge.gram[1], [[3, 1], [1, 2]], rtol=1e-15)
    np.testing.assert_allclose(ridge.inverse[1], np.array([[2, -1], [-1, 3]]) / 5, rtol=1e-14)
    np.testing.assert_allclose(ridge.theta[1], [7 / 5, -1 / 5], rtol=1e-14)
    assert ridge.count.tolist() == [0, 2]
    assert ridge.squares.tolist() == [0, 10]
    np.testing.assert_array_equal(ridge.inverse[0], np.eye(2))


def test_the_inverse_does_not_drift_in_100_000_correlated_updates() -> None:
    rng = np.random.default_rng(7)
    dim = 50
    ridge = Ridge.fresh((), arms=1, dim=dim, ridge=1.0)
    mixing = rng.normal(size=(dim, 5)) @ rng.normal(size=(5, dim)) + 0.01 * rng.normal(size=(dim, dim))
    contexts = rng.normal(size=(100_000, dim)) @ mixing.T
    contexts /= np.maximum(1.0, np.linalg.norm(contexts, axis=1, keepdims=True))
    worst = 0.0
    for index, x in enumerate(contexts):
        ridge.learn((ONE_CITY,), x, np.array(0.5))
        if index % 997 == 0 or index >= 99_872:
            residual = ridge.gram[0] @ ridge.inverse[0] - np.eye(dim)
            worst = max(worst, float(np.abs(residual).sum(axis=1).max()))
    assert worst <= 1e-9
    assert np.linalg.cond(ridge.gram[0]) > 1e3, "the contexts must be correlated for this test"


def test_a_batch_learns_as_each_of_its_cities_alone() -> None:
    rng = np.random.default_rng(3)
    batch = Ridge.fresh((2, 3), arms=4, dim=5, ridge=0.7)
    alone = [[Ridge.fresh((), arms=4, dim=5, ridge=0.7) for _ in range(3)] for _ in range(2)]
    rows = np.indices((2, 3), sparse=True)
    for _ in range(300):
        x, arm, reward = (
            rng.normal(size=(2, 3, 5)),
            rng.integers(4, size=(2, 3)),
            rng.normal(size=(2, 3)),
        )
        batch.learn((*rows, arm), x, reward)
        for s in range(2):
            for i in range(3):
                alone[s][i].learn((int(arm[s, i]),), x[s, i], np.array(reward[s, i]))
    for s in range(2):
        for i in range(3):
            np.testing.assert_allclose(batch.inverse[s, i], alone[s][i].inverse, rtol=1e-12, atol=1e-15)
            np.testing.assert_allclose(batch.theta[s, i], alone[s][i].theta, rtol=1e-12, atol=1e-15)
            np.testing.assert_array_equal(batch.count[s, i], alone[s][i].count)


def test_the_inverse_of_a_matrix_is_exactly_symmetric() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(4, 6, 6))
    matrix = a @ a.swapaxes(-1, -2) + np.eye(6)
    inverse = inverse_of_positive_definite(matrix)
    np.testing.assert_array_equal(inverse, inverse.swapaxes(-1, -2))
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-10, atol=1e-13)


@both_code_paths
def test_features_in_large_units_do_not_spoil_the_inverse(arm: Any) -> None:
    """One feature near 1000: without a refresh at the first context of high leverage the error is 6e-8."""
    rng = np.random.default_rng(0)
    ridge = Ridge.fresh((), arms=1, dim=5, ridge=1.0)
    worst = 0.0
    for _ in range(120):
        ridge.learn((arm,), np.concatenate([[1000.0], rng.normal(size=4)]), np.array(1.0))
        residual = ridge.gram[0] @ ridge.inverse[0] - np.eye(5)
        worst = max(worst, float(np.abs(residual).sum(axis=1).max()))
    assert worst <= 1e-9


@both_code_paths
def test_long_parallel_contexts_and_a_tiny_ridge_leave_finite_numbers(arm: Any) -> None:
    """Rounding makes x'W^-1 x negative here; without a refresh it falls below -1, and the root fails."""
    below_zero = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        ridge = Ridge.fresh((), arms=1, dim=10, ridge=1e-6)
        direction = rng.normal(size=10)
        direction *= 2.5e5 / np.linalg.norm(direction)
        for _ in range(30):
            along = rng.random() < 0.7
            x = direction * rng.uniform(0.1, 1) if along else rng.normal(size=10) * 10 ** rng.uniform(-4, 4)
            below_zero += x.dot(ridge.inverse[0].dot(x)) < 0
            ridge.learn((arm,), x, np.array(1.0))
            assert np.isfinite(ridge.inverse).all()
            assert np.isfinite(ridge.theta).all()
    assert below_zero > 0, "rounding must make x'W^-1 x negative for this test"


def test_a_matrix_that_rounding_made_singular_still_gets_an_inverse() -> None:
    x = np.array([1.0, 2.0]) * 1e8
    inverse = inverse_of_positive_definite(np.eye(2) + 50 * np.outer(x, x))
    assert np.isfinite(inverse).all()
    assert (np.linalg.eigvalsh(inverse) >= 0).all()


def test_the_noise_is_estimated_at_low_and_at_high_noise() -> None:
    """200 rewards of noise 0.1 or 2 around a signal of length 3: a relative standard error of 0.1."""
    for sigma in (0.1, 2.0):
        rng = np.random.default_rng(8)
        theta = rng.normal(size=5)
        theta *= 3 / np.linalg.norm(theta)
        ridge = Ridge.fresh((), arms=1, dim=5, ridge=1.0)
        for _ in range(200):
            x = rng.normal(size=5) / 3
            ridge.learn((np.array(0),), x, np.array(x @ theta + sigma * rng.normal()))
        assert 0.5 * sigma**2 < ridge.noise(1.0)[0] < 1.5 * sigma**2
    assert Ridge.fresh((), arms=2, dim=3, ridge=1.0).noise(1.0).tolist() == [0.0, 0.0]
