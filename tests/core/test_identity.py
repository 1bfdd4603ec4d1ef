"""NetPool at heterogeneity 0 and equal trust equals the central server, whatever the order of summaries."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pricemesh.core.policies import Shape, make_policy
from pricemesh.core.summary import Summaries, Summary, merge
from tests.core.histories import random_observation


@st.composite
def meshes(draw: st.DrawFn) -> tuple[int, int, list[int], int, float, int]:
    arms = draw(st.integers(1, 4))
    shared = draw(st.integers(1, 6))
    locals_ = draw(st.lists(st.integers(0, 4), min_size=2, max_size=5))
    length = draw(st.integers(0, 60))
    ridge = draw(st.sampled_from([0.1, 1.0, 5.0]))
    return arms, shared, locals_, length, ridge, draw(st.integers(0, 2**32 - 1))


@settings(max_examples=150, deadline=None)
@given(meshes())
def test_netpool_without_heterogeneity_is_shared_linucb(
    mesh: tuple[int, int, list[int], int, float, int],
) -> None:
    arms, shared, locals_, length, ridge, seed = mesh
    rng, widest, cities = np.random.default_rng(seed), max(locals_), len(locals_)
    central = make_policy("shared", ridge=ridge).learner(Shape(arms, shared, widest, (cities,)))
    policy = make_policy("netpool", alpha=0.7, ridge=ridge, heterogeneity=0, trust="equal")
    learners = [policy.learner(Shape(arms, shared, s)) for s in locals_]
    summaries: list[Summary] = []
    for version in range(length):
        contexts = np.zeros((cities, shared + widest))
        chosen_arms, rewards = [], []
        for i, s in enumerate(locals_):
            x, arm, reward = random_observation(rng, shared + s, arms)
            learners[i].learn(x, arm, reward)
            contexts[i, : shared + s] = x
            chosen_arms.append(arm)
            rewards.append(reward)
            if rng.random() < 0.3 or version == length - 1:
                summaries.append(Summary.of(str(i), 1, version, bytes(16), learners[i].numbers()))
        central.learn(contexts, np.array(chosen_arms), np.array(rewards))

    # Summaries arrive in random order, some of them twice; half directly, and all through a relay.
    random = Random(seed)
    arrivals = summaries + random.sample(summaries, len(summaries) // 2)
    random.shuffle(arrivals)
    relay: Summaries = merge({}, (Summary.from_bytes(summary.to_bytes()) for summary in arrivals))
    newest = merge(merge({}, arrivals[: len(arrivals) // 2]), relay.values())

    probe = np.zeros((cities, shared + widest))
    for i, s in enumerate(locals_):
        probe[i, : shared + s] = rng.normal(size=shared + s)
    expected = central.score(probe)
    for i, s in enumerate(locals_):
        learners[i].absorb_summaries(str(i), newest)
        score = learners[i].score(probe[i, : shared + s])
        scale = np.abs(expected.estimate[i]).max(initial=1e-3)
        np.testing.assert_allclose(score.estimate, expected.estimate[i], rtol=1e-8, atol=1e-8 * scale)
        np.testing.assert_allclose(score.radius, expected.radius[i], rtol=1e-8)
