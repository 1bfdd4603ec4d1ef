"""Many lessons without a score between them: the same sums to the last bit, the same scores."""

import copy
from typing import Any

import numpy as np
import pytest

from pricemesh.core.demand.basis import Basis
from pricemesh.core.demand.sales import linearise, sigmoid
from pricemesh.core.ladder import Ladder
from pricemesh.core.policies import POLICIES, Learner, Shape, make_policy

ARMS, SHARED, LOCAL, LESSONS = 4, 3, 2, 300
LADDER = Ladder(np.arange(5.0, 5.0 + ARMS), low=5.0, high=4.0 + ARMS)
SHAPE = Shape(arms=ARMS, shared=SHARED, local=LOCAL, ladder=LADDER)


def lessons(seed: int) -> list[tuple[Any, ...]]:
    """A third of them without a chance, a third of decisions that waited."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(LESSONS):
        chance = None if i % 3 == 0 else float(rng.uniform(0.05, 0.95))
        rows.append(
            (rng.normal(size=SHAPE.dim), int(rng.integers(ARMS)), float(rng.integers(2)), chance, i % 3 == 1)
        )
    return rows


def teach(learner: Learner, rows: list[tuple[Any, ...]]) -> None:
    for x, arm, reward, chance, pending in rows:
        learner.learn(x, arm, reward, chance, pending=pending)


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - {"shared"}))
def test_sums_are_equal_to_the_last_bit_and_scores_to_rounding(name: str) -> None:
    rows = lessons(seed=1)
    one = make_policy(name).learner(SHAPE)
    for x, arm, _, chance, pending in rows:
        if pending:
            one.pend(x[None], np.array([arm]), np.array([chance], dtype=np.float64))
    other = copy.deepcopy(one)
    teach(one, rows)
    with other.learning_many():
        teach(other, rows)
    for key, value in one.state().items():
        np.testing.assert_array_equal(value, other.state()[key], err_msg=key)
    x = np.random.default_rng(2).normal(size=(20, SHAPE.dim))
    for ours, theirs in zip(one.score(x), other.score(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_sale_without_a_chance_is_learned_at_the_chance_by_all_sales_before_it() -> None:
    """Against a regression solved anew, from the rows, for every sale."""
    rows = [(x, arm, reward) for x, arm, reward, _, _ in lessons(seed=3)]
    learner = make_policy("demand").learner(SHAPE)
    with learner.learning_many():
        for x, arm, reward in rows:
            learner.learn(x, arm, reward)
    basis = Basis(LADDER, ARMS, SHARED, LOCAL)
    gram, response = np.diag(1.0 / basis.prior_variance), np.zeros(basis.size)
    for x, arm, reward in rows:
        z = basis.maps[arm] @ np.concatenate([[1.0], x])
        chance = sigmoid(z @ np.linalg.inv(gram) @ response)
        root, residual = linearise(chance, np.asarray(reward))
        gram = gram + np.outer(root * z, root * z)
        response = response + root * residual * z
    prior = np.diag(1.0 / basis.prior_variance)
    np.testing.assert_allclose(learner.state()["gram"][0], gram - prior, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(learner.state()["response"][0], response, rtol=1e-9, atol=1e-9)
