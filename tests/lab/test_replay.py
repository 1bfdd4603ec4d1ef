"""Replay on the survey's answers: which of them count, what is learned, and how sure the mean is."""

from collections.abc import Sequence
from math import sqrt

import numpy as np
import pytest

from pricemesh.core.policies import make_policy
from pricemesh.errors import InvalidParameter
from pricemesh.lab.swissmetro.answers import LEVELS, Answers, load
from pricemesh.lab.swissmetro.replay import baselines, mean_by_respondent, of_cities, replay, replay_once
from pricemesh.lab.worlds import generator


def few(rows: Sequence[int]) -> Answers:
    return Answers(**{name: values[list(rows)] for name, values in vars(load()).items()})


def sample(count: int) -> Answers:
    """Answers drawn at random: every ninth one would have the same situations of the design."""
    return few(sorted(np.random.default_rng(0).choice(9027, count, replace=False).tolist()))


def test_the_baselines_are_means_of_the_answers_shown_that_level() -> None:
    answers = of_cities()
    revenue = np.array(LEVELS)[answers.level] * answers.bought
    uniform, *fixed = baselines(answers)
    assert uniform.matched == uniform.answers == 9027
    assert uniform.revenue == pytest.approx(revenue.mean())
    for level, one in enumerate(fixed):
        assert one.label == f"always {LEVELS[level]:g}"
        assert one.revenue == pytest.approx(LEVELS[level] * answers.bought[answers.level == level].mean())
    assert sum(one.matched for one in fixed) == 9027


def test_the_standard_error_by_respondent_by_hand() -> None:
    """Two respondents with the sums of residuals 1 and -1: sqrt(2/1 * (1 + 1)) / 4."""
    mean, error = mean_by_respondent(np.array([1.0, 1.0, 0.0, 0.0]), np.array([5, 5, 9, 9]))
    assert mean == 0.5
    assert error == pytest.approx(sqrt(2 * 2) / 4)


def test_with_one_answer_each_the_error_is_that_of_an_ordinary_mean() -> None:
    values = np.random.default_rng(0).random(50)
    _, error = mean_by_respondent(values, np.arange(50))
    assert error == pytest.approx(values.std(ddof=1) / sqrt(50))


def test_an_answer_counts_where_a_fresh_run_by_hand_chooses_its_level() -> None:
    """One city alone by disjoint ridge regressions in plain numpy: identical matches."""
    answers = few(range(300))
    counted = replay_once(answers, make_policy("disjoint"), seed=3, gossip_every=5)
    d = answers.context.shape[1]
    gram, response = np.stack([np.eye(d)] * 3), np.zeros((3, d))
    by_hand = np.zeros(300, dtype=bool)
    for row in generator(3, "replay").permutation(300):
        x = answers.context[row]
        inverse = [np.linalg.inv(one) for one in gram]
        bounds = [x @ inverse[k] @ response[k] + 0.7 * sqrt(x @ inverse[k] @ x) for k in range(3)]
        arm = int(np.argmax(np.array(bounds) >= max(bounds) - 1e-9))
        if arm == answers.level[row]:
            by_hand[row] = True
            gram[arm] += np.outer(x, x)
            response[arm] += x * answers.bought[row] * LEVELS[arm]
    np.testing.assert_array_equal(counted, by_hand)
    assert 50 < counted.sum() < 150


@pytest.mark.parametrize("name", ["disjoint", "netlinucb", "netsgducb", "netpool", "demand"])
def test_every_policy_of_a_city_can_be_replayed(name: str) -> None:
    answers = sample(201)
    first, second = (replay(answers, name, make_policy(name), [0, 1], gossip_every=3) for _ in range(2))
    assert first == second, "the same seeds give the same result"
    low, high = first.interval
    assert low < first.revenue < high
    # A level is shown once in three: 201 answers, four standard errors of a share of 1/3.
    assert abs(first.matched - 67) < 4 * sqrt(201 * 2 / 9)


def test_randomised_choice_is_replayed_with_the_seeds_own_draws() -> None:
    answers = sample(201)
    policy = make_policy("netpool", exploration="thompson")
    same, again, other = (replay_once(answers, policy, seed, 5) for seed in (0, 0, 1))
    np.testing.assert_array_equal(same, again)
    assert (same != other).any()


def test_gossip_changes_what_cities_choose() -> None:
    answers = sample(600)
    often, never = (replay_once(answers, make_policy("netpool"), 0, every) for every in (1, 10_000))
    assert (often != never).any()


def test_replays_that_are_not_possible_are_refused() -> None:
    answers = few(range(20))
    with pytest.raises(InvalidParameter, match="1 to 11 cities"):
        of_cities(12)
    with pytest.raises(InvalidParameter, match="one seed or more"):
        replay(answers, "disjoint", make_policy("disjoint"), [])
    with pytest.raises(InvalidParameter, match="central server"):
        replay(answers, "shared", make_policy("shared"), [0])
