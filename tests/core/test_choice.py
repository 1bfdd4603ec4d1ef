"""One choice for the simulator and the service: certain with upper bounds, drawn with Thompson sampling."""

import numpy as np
import pytest

from pricemesh.core.choice import Randomness, Sampling, decide, probabilities
from pricemesh.core.policies import Shape, make_policy
from pricemesh.core.thompson import propensities
from pricemesh.core.ucb import Score, choose
from pricemesh.errors import InvalidParameter

RIDGE_POLICIES = ("disjoint", "netlinucb", "netpool")


def test_the_highest_bound_is_chosen_with_certainty() -> None:
    score = Score(np.array([[0.0, 1.0, 0.5], [2.0, 1.0, 0.5]]), np.full((2, 3), 0.1))
    choice = decide(score, None)
    assert choice.arm.tolist() == choose(score).tolist()
    assert choice.propensity.tolist() == [1.0, 1.0]
    assert decide(Score(score.estimate[0], score.radius[0]), None).propensity.tolist() == 1.0
    assert probabilities(score, None).tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]


def test_a_drawn_arm_comes_with_its_own_probability_and_is_allowed() -> None:
    rng = np.random.default_rng(0)
    score = Score(rng.normal(size=(50, 4)), rng.uniform(0.1, 1.0, size=(50, 4)))
    allowed = np.array([True, False, True, True])
    uniform = rng.random(50)
    choice = decide(score, Randomness(Sampling(0.0, 0.5), uniform), allowed)
    p = propensities(score.estimate, 0.5 * score.radius, allowed)
    assert set(choice.arm.tolist()) == {0, 2, 3}
    assert choice.propensity.tolist() == [p[i, arm] for i, arm in enumerate(choice.arm)]
    for i in range(50):
        alone = Score(score.estimate[i], score.radius[i])
        one = decide(alone, Randomness(Sampling(0.0, 0.5), uniform[i]), allowed)
        assert int(one.arm) == choice.arm[i]
        assert float(one.propensity) == pytest.approx(choice.propensity[i], rel=1e-12)


def test_draws_lie_around_a_part_of_the_bound_as_wide_as_a_part_of_the_radius() -> None:
    score = Score(np.array([1.0, 0.5]), np.array([0.2, 1.0]))
    p = Sampling(optimism=0.5, scale=0.25).propensities(score)
    assert p.tolist() == propensities(np.array([1.1, 1.0]), np.array([0.05, 0.25])).tolist()


@pytest.mark.parametrize("name", RIDGE_POLICIES)
def test_a_ridge_policy_draws_as_its_parameters_say(name: str) -> None:
    shape = Shape(3, 2, 1)
    assert make_policy(name).learner(shape).sampling is None
    values = {"exploration": "thompson", "thompson_scale": "0.4", "thompson_optimism": 0}
    assert make_policy(name, **values).learner(shape).sampling == Sampling(0.0, 0.4)


@pytest.mark.parametrize("name", RIDGE_POLICIES)
@pytest.mark.parametrize(
    "values", [{"exploration": "greedy"}, {"thompson_scale": 0.0}, {"thompson_optimism": -0.1}]
)
def test_an_impossible_exploration_is_refused(name: str, values: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(values))):
        make_policy(name, **values)
