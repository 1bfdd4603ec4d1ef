"""Which blocks have news, against the definition by hand, and what the wire makes of them."""

import msgspec
import numpy as np
import pytest

from pricemesh.core.ladder import Ladder
from pricemesh.core.news import YOUNG_LESSONS, bytes_of_news, news, updated
from pricemesh.core.policies import Learner, Shape, make_policy
from pricemesh.gossip.difference import REST_BYTES, Difference

LADDER = Ladder(np.array([1.0, 2.0, 3.0]), low=1.0, high=3.0)


def trained(policy: str, lessons: list[int], seed: int = 0) -> Learner:
    """A learner of three arms that has learned so often on each, in turn."""
    learner = make_policy(policy).learner(Shape(3, 2, 1, ladder=LADDER if policy == "demand" else None))
    teach(learner, lessons, seed)
    return learner


def teach(learner: Learner, lessons: list[int], seed: int = 1) -> None:
    rng = np.random.default_rng(seed)
    for arm, count in enumerate(lessons):
        for _ in range(count):
            chance = 0.5 if learner.learns_sales else None
            learner.learn(rng.uniform(-1, 1, 3), arm, float(rng.integers(2)), chance)


def test_an_arm_has_news_when_the_volume_of_its_information_has_grown_by_the_factor() -> None:
    learner = trained("netpool", [30, 30, 30])
    last = learner.numbers()
    before = [np.linalg.det(np.eye(2) + matrix) for matrix in learner.summarise()["information"]]
    teach(learner, [9, 1, 0])
    now = [np.linalg.det(np.eye(2) + matrix) for matrix in learner.summarise()["information"]]
    grown = np.array(now) / np.array(before)
    assert grown[0] > grown[1] > grown[2] == 1.0
    for factor in (1.0001, (grown[0] * grown[1]) ** 0.5, 1.0001 * grown[0]):
        expected = [value > factor for value in grown]
        assert news(learner, last, learner.numbers(), float(factor)).tolist() == expected


@pytest.mark.parametrize("policy", ["netpool", "netlinucb", "netsgducb", "demand"])
def test_the_factor_one_publishes_all_at_every_change_and_a_young_city_what_changed(policy: str) -> None:
    mixes = policy == "netsgducb"
    for lessons, factor in (([60, 60, 60], 1.0), ([3, 3, 3], 1e9)):
        learner = trained(policy, lessons)
        last = learner.numbers()
        assert not news(learner, last, last, factor).any() or mixes
        teach(learner, [0, 1, 0])
        flags = news(learner, last, learner.numbers(), factor)
        if factor == 1.0:
            assert flags.all()
            continue
        expected = {
            "netpool": [False, True, False],
            "netlinucb": [False, True, False, True],  # the mean context is of no arm
            "netsgducb": [True, True, True, True],  # an absorb changes all of them
            "demand": [True],
        }
        assert flags.tolist() == expected[policy]
    grown = trained(policy, [YOUNG_LESSONS, 0, 0])
    last = grown.numbers()
    teach(grown, [1, 0, 0])
    assert news(grown, last, grown.numbers(), 1e9).any() == mixes


@pytest.mark.parametrize("policy", ["netpool", "netlinucb", "demand"])
def test_blocks_without_news_stay_as_they_were_published(policy: str) -> None:
    learner = trained(policy, [20, 20, 20])
    last, blocks = learner.numbers(), learner.layout.blocks
    teach(learner, [9, 9, 9])
    present = learner.numbers()
    for block in range(learner.layout.block_count):
        flags = np.arange(learner.layout.block_count) == block
        mixed = updated(learner.layout, last, present, flags)
        np.testing.assert_array_equal(mixed[blocks == block], present[blocks == block])
        np.testing.assert_array_equal(mixed[blocks != block], last[blocks != block])
    counts = np.bincount(blocks)
    assert counts.sum() == learner.layout.size
    assert len(set(counts[: learner.layout.arms])) == 1  # arms are alike


def test_the_bytes_of_news_are_those_of_the_wire() -> None:
    layout = trained("netpool", [1, 1, 1]).layout
    flags = np.array([[True, True, True], [False, True, False], [False, False, False]])
    numbers = bytes(8 * layout.size // 3)
    item = Difference(
        "", 1, 60_000, 59_000, bytes(2 * layout.block_count), numbers, bytes(REST_BYTES), bytes(64)
    )
    wire = len(msgspec.msgpack.encode(item)) - 1 - 64  # without name and seal
    whole, difference, nothing = bytes_of_news(layout, flags).tolist()
    assert whole == 42 + 8 * layout.size
    assert wire <= difference <= wire + 4
    assert nothing == 0
