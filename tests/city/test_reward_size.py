"""Policies with fixed exploration: the scale of rewards, and the warning where it does not fit."""

from pathlib import Path

import numpy as np
import pytest

from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.reward_size import RewardSize
from pricemesh.city.settings import Settings
from pricemesh.store.commands import Lesson
from tests.running import settings_for

VALUE = {"kind": "value", "largest": 1e6}


def settings(tmp_path: Path, policy: str, scale: float) -> Settings:
    return settings_for(
        f"sqlite:///{tmp_path}/city.db", policy={"name": policy}, reward={**VALUE, "scale": scale}
    )


def taught(settings: Settings, factor: float, lessons: int = 60) -> LiveLearner:
    live, rng = LiveLearner(settings), np.random.default_rng(0)
    for version in range(1, lessons + 1):
        vectors = rng.random(15).tobytes()
        live.learn([Lesson(int(rng.integers(5)), vectors, factor * rng.normal(), version, None, None)])
    return live


@pytest.mark.parametrize("policy", ["disjoint", "netlinucb", "netsgducb"])
def test_the_scale_divides_rewards_and_multiplies_scores(tmp_path: Path, policy: str) -> None:
    ones, hundreds = (
        taught(settings(tmp_path, policy, 1.0), 1.0),
        taught(settings(tmp_path, policy, 100.0), 100.0),
    )
    x = np.linspace(0.0, 1.0, 5)
    np.testing.assert_allclose(hundreds.learner.score(x), 100 * np.array(ones.learner.score(x)), rtol=1e-9)
    assert hundreds.rewards.warning is None


def test_the_scale_has_no_effect_on_a_policy_that_reads_it_from_the_data(tmp_path: Path) -> None:
    one, other = (taught(settings(tmp_path, "netpool", scale), 100.0) for scale in (1.0, 100.0))
    x = np.linspace(0.0, 1.0, 5)
    np.testing.assert_array_equal(one.learner.score(x), other.learner.score(x))
    assert one.rewards.warning is None


@pytest.mark.parametrize(("factor", "word"), [(100.0, "too little"), (0.01, "too much")])
def test_rewards_far_from_the_scale_are_warned_of(tmp_path: Path, factor: float, word: str) -> None:
    assert taught(settings(tmp_path, "netlinucb", 1.0), factor, lessons=49).rewards.warning is None
    warning = taught(settings(tmp_path, "netlinucb", 1.0), factor, lessons=50).rewards.warning
    assert warning is not None
    assert word in warning


def test_rewards_that_are_all_zero_have_no_scale() -> None:
    size = RewardSize(1.0)
    for _ in range(60):
        size.add(0.0)
    size.look()
    assert size.warning is None
