"""Scores by hand, and the choice of an arm."""

import numpy as np
import pytest

from pricemesh.core.ucb import Score, choose, score_dense, score_diagonal
from pricemesh.errors import InvalidParameter


def test_a_dense_score_is_the_one_computed_by_hand() -> None:
    theta = np.array([[1.0, 2.0], [0.0, -1.0]])
    covariance = np.array([np.eye(2) * 4, [[2.0, 1.0], [1.0, 2.0]]])
    score = score_dense(theta, covariance, np.array([1.0, 1.0]), alpha=0.5)
    np.testing.assert_allclose(score.estimate, [3, -1])
    np.testing.assert_allclose(score.radius, [0.5 * np.sqrt(8), 0.5 * np.sqrt(6)])


def test_a_diagonal_score_is_the_dense_score_of_a_diagonal_matrix() -> None:
    rng = np.random.default_rng(0)
    theta, variances, x = (
        rng.normal(size=(2, 3, 4)),
        rng.uniform(0.1, 2, size=(2, 3, 4)),
        rng.normal(size=(2, 4)),
    )
    dense = score_dense(theta, variances[..., None] * np.eye(4), x, 0.7)
    diagonal = score_diagonal(theta, variances, x, 0.7)
    np.testing.assert_allclose(diagonal.radius, dense.radius, rtol=1e-14)
    np.testing.assert_allclose(diagonal.estimate, dense.estimate, rtol=1e-14)


def test_among_equal_bounds_the_lowest_arm_is_chosen_whatever_the_rounding() -> None:
    noise = np.array([0.0, 3e-16, -2e-16])
    assert choose(Score(np.full(3, 0.3) + noise, np.full(3, 0.1))) == 0
    assert choose(Score(np.array([0.1, 0.5, 0.5]), np.zeros(3))) == 1


def test_an_arm_that_is_not_allowed_is_never_chosen() -> None:
    score = Score(np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), np.zeros((2, 3)))
    allowed = np.array([[False, True, True], [True, True, False]])
    assert choose(score, allowed).tolist() == [1, 1]


def test_choosing_is_refused_when_no_arm_is_allowed_or_none_has_a_finite_bound() -> None:
    score = Score(np.ones(2), np.ones(2))
    with pytest.raises(InvalidParameter, match="no arm"):
        choose(score, np.array([False, False]))
    with pytest.raises(InvalidParameter, match="no arm"):
        choose(Score(np.array([np.nan, 1.0]), np.zeros(2)))
