"""NetPool at heterogeneity 0 and equal trust is the central server, whatever way summaries travelled."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pricemesh.core.policies import Shape, make_policy
from pricemesh.core.summary import Summaries, Summary, merge
from tests.core.histories import random_observation


@st.composite
def towns(draw: st.DrawFn) -> tuple[int, int, list[int], int, float, int]:
    arms = draw(st.integers(1, 4))
    shared = draw(st.integers(1, 6))
    locals_ = draw(st.lists(st.integers(0, 4), min_size=2, max_size=5))
    length = draw(st.integers(0, 60))
    ridge = draw(st.sampled_from([0.1, 1.0, 5.0]))
    return arms, shared, locals_, length, ridge, draw(st.integers(0, 2**32 - 1))


@settings(max_examples=150, deadline=None)
@given(towns())
def test_netpool_without_heterogeneity_is_shared_linucb(
    town: tuple[int, int, list[int], int, float, int],
) -> None:
    arms, shared, locals_, length, ridge, seed = town
    rng, widest, cities = np.random.default_rng(seed), max(locals_), len(locals_)
    central = make_policy("shared", ridge=ridge).learner(Shape(arms, shared, widest, (cities,)))
    policy = make_policy("netpool", ridge=ridge, heterogeneity=0, trust="equal")
    learners = [policy.learner(Shape(arms, shared, s)) for s in locals_]
    sent: list[Summary] = []
    for version in range(length):
        whole = np.zeros((cities, shared + widest))
        played, rewards = [], []
        for i, s in enumerate(locals_):
            x, arm, reward = random_observation(rng, shared + s, arms)
            learners[i].learn(x, arm, reward)
            whole[i, : shared + s] = x
            played.append(arm)
            rewards.append(reward)
            if rng.random() < 0.3 or version == length - 1:
                sent.append(Summary.of(str(i), 1, version, bytes(16), learners[i].numbers()))
        central.learn(whole, np.array(played), np.array(rewards))

    # Everything ever sent arrives in another order, some of it twice, and through a relay.
    shuffle = Random(seed)
    arrived = sent + shuffle.sample(sent, len(sent) // 2)
    shuffle.shuffle(arrived)
    relay: Summaries = merge({}, (Summary.from_bytes(summary.to_bytes()) for summary in arrived))
    held = merge(merge({}, arrived[: len(arrived) // 2]), relay.values())

    probe = np.zeros((cities, shared + widest))
    for i, s in enumerate(locals_):
        probe[i, : shared + s] = rng.normal(size=shared + s)
    truth = central.score(probe)
    for i, s in enumerate(locals_):
        learners[i].absorb_summaries(str(i), held)
        score = learners[i].score(probe[i, : shared + s])
        scale = np.abs(truth.estimate[i]).max(initial=1e-3)
        np.testing.assert_allclose(score.estimate, truth.estimate[i], rtol=1e-8, atol=1e-8 * scale)
        np.testing.assert_allclose(score.radius, truth.radius[i], rtol=1e-8)
