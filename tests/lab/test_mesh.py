from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from pricemesh.core.news import news, updated
from pricemesh.core.policies import Policy, Shape, make_policy
from pricemesh.core.thompson import city_seed, draw, propensities, uniform_of
from pricemesh.core.ucb import choose
from pricemesh.errors import InvalidParameter
from pricemesh.lab.mesh import Conduct, Mesh, group_sizes, rows
from pricemesh.lab.worlds import DRIFT_OFFSET, Linear


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("groups", [None, (2, 2, 2), (3, 1, 2), (1,) * 6])
@pytest.mark.parametrize(
    "policy", [make_policy(name) for name in ("disjoint", "netlinucb", "netsgducb", "netpool")]
)
def test_the_vectorised_mesh_decides_as_single_cities_would(
    policy: Policy, groups: tuple[int, ...] | None, factor: float
) -> None:
    """Two seeds of six cities at once, against a loop over seeds and cities with one learner each that
    gossip every second round in their group."""
    world, seeds, rounds = Linear(cities=6, arms=3, shared=4, local=2), [5, 6], 60
    mesh = Mesh(world, policy, seeds, Conduct(groups=groups, gossip_every=2, news=factor))
    steps = list(mesh.play(rounds))
    starts = np.cumsum((0, *(groups or (6,))))
    members = [range(a, b) for a, b in pairwise(starts)]
    for s, seed in enumerate(seeds):
        cities = [policy.learner(Shape(3, 4, 2)) for _ in range(6)]
        numbers = [city.numbers() if city.fields else np.empty(0) for city in cities]
        instance = world.instance([seed])
        for step, now in zip(steps, instance.rounds(), strict=False):
            if (step.round - 1) % 2 == 0 and cities[0].fields:
                for i, city in enumerate(cities):
                    flags = news(city, numbers[i], city.numbers(), factor)
                    numbers[i] = updated(city.layout, numbers[i], city.numbers(), flags)
                for group in members:
                    for i in group:
                        order = [i, *(j for j in group if j != i)]
                        stack = cities[i].layout.unpack(np.stack([numbers[j] for j in order]))
                        cities[i].absorb(stack, tuple(str(j) for j in order))
            scores = [city.score(now.context[0, i]) for i, city in enumerate(cities)]
            arms = np.array([choose(score) for score in scores])
            assert arms.tolist() == step.arm[s].tolist()
            np.testing.assert_allclose(
                [score.radius[arm] for score, arm in zip(scores, arms, strict=True)],
                step.radius[s],
                rtol=1e-9,
            )
            for i, reward in enumerate(instance.reward(now, arms[None])[0]):
                cities[i].learn(now.context[0, i], arms[i], reward)


def test_regret_counts_from_the_best_arm_and_rows_are_flat() -> None:
    world = Linear(cities=3, arms=4)
    (first,) = Mesh(world, make_policy("disjoint"), [7]).play(1)
    now = next(world.instance([7]).rounds())
    flat = list(rows(first, [7]))
    assert [(row.seed, row.round, row.city) for row in flat] == [(7, 1, 0), (7, 1, 1), (7, 1, 2)]
    for row in flat:
        expected = now.expected[0, row.city]
        assert row.best_arm == expected.argmax()
        assert row.regret == pytest.approx(expected.max() - expected[row.arm])
    assert min(row.regret for row in flat) >= 0
    assert {row.propensity for row in flat} == {1.0}


@pytest.mark.parametrize("groups", [None, (2, 1, 1)])
def test_each_city_of_the_mesh_draws_by_its_seed_its_name_and_the_round(
    groups: tuple[int, ...] | None,
) -> None:
    world, seeds = Linear(cities=4, arms=3, shared=4, local=2), [5, 6]
    policy = make_policy("netpool", exploration="thompson", thompson_scale=0.4)
    arms = set()
    for step in Mesh(world, policy, seeds, Conduct(groups=groups)).play(20):
        for row in rows(step, seeds):
            place = seeds.index(row.seed), row.city
            estimate, radius = step.score.estimate[place], step.score.radius[place]
            p = propensities(estimate + 0.5 * radius, 0.4 * radius)
            uniform = uniform_of(city_seed(f"city{row.city}", row.seed), f"round{step.round}")
            assert row.arm == draw(p, uniform)
            assert row.propensity == pytest.approx(p[row.arm], rel=1e-12)
        arms.add(tuple(step.arm.ravel().tolist()))
    assert len(arms) > 10


@pytest.mark.parametrize(
    ("label", "sizes"),
    [
        ("12", (12,)),
        ("3x4", (4, 4, 4)),
        ("6x2", (6, 6)),
        ("1x12", (1,) * 12),
        ("3*4", (4, 4, 4)),
        ("5,4,3", (5, 4, 3)),
    ],
)
def test_groups_are_written_as_in_the_paper(label: str, sizes: tuple[int, ...]) -> None:
    assert group_sizes(label) == sizes


@pytest.mark.parametrize("label", ["", "x", "3x", "0", "3x0", "1,0", "a,b", "3x4x2"])
def test_a_label_without_meaning_is_refused(label: str) -> None:
    with pytest.raises(InvalidParameter):
        group_sizes(label)


def test_late_feedback_is_learned_late_and_in_order() -> None:
    """Three rounds late, against single cities that learn as late."""
    world, policy = Linear(cities=2, arms=3), make_policy("disjoint")
    cities = [policy.learner(Shape(3, 8, 2)) for _ in range(2)]
    steps = []
    for step in Mesh(world, policy, [4], Conduct(delay=3)).play(25):
        steps.append(step)
        for i, city in enumerate(cities):
            if step.round > 4:
                past = steps[step.round - 5]
                city.learn(past.now.context[0, i], past.arm[0, i], past.reward[0, i])
            score = city.score(step.now.context[0, i])
            np.testing.assert_allclose(score.radius, step.score.radius[0, i], rtol=1e-9)
            np.testing.assert_allclose(score.estimate, step.score.estimate[0, i], atol=1e-12)


def test_after_a_drift_the_rounds_are_those_of_another_seed() -> None:
    world = Linear(cities=2, arms=3)
    contexts = [
        step.now.context for step in Mesh(world, make_policy("disjoint"), [4], Conduct(drift_at=5)).play(9)
    ]
    before = [now.context for now, _ in zip(world.instance([4]).rounds(), range(5), strict=False)]
    after = [
        now.context for now, _ in zip(world.instance([4 + DRIFT_OFFSET]).rounds(), range(4), strict=False)
    ]
    np.testing.assert_array_equal(contexts, before + after)


@pytest.mark.parametrize(
    "wrong",
    [lambda: Conduct(gossip_every=0), lambda: Conduct(delay=-1), lambda: Conduct(drift_at=-1)],
)
def test_a_number_of_rounds_below_its_minimum_is_refused(wrong: Callable[[], Conduct]) -> None:
    with pytest.raises(InvalidParameter, match="counts rounds"):
        wrong()


def test_groups_must_add_up() -> None:
    with pytest.raises(InvalidParameter, match="add up"):
        Mesh(Linear(cities=5), make_policy("netpool"), [0], Conduct(groups=(2, 2)))


def test_bytes_per_tick_are_those_of_the_wire_form() -> None:
    world = Linear(cities=2, arms=5, shared=8)
    header, per_arm = 42, 8 * 9 // 2 + 8 + 2
    assert Mesh(world, make_policy("netpool"), [0]).bytes_per_tick == header + 8 * 5 * per_arm
    assert Mesh(world, make_policy("disjoint"), [0]).bytes_per_tick == 0
    assert Mesh(world, make_policy("shared"), [0], Conduct(gossip_every=3)).bytes_per_tick == 3 * 8 * (10 + 2)


def test_news_cost_fewer_bytes_than_every_change_and_are_counted_on_average() -> None:
    world, policy = Linear(cities=4, arms=5, shared=8), make_policy("netpool")
    sizes = []
    for factor in (1.0, 1.0001, 2.0):
        mesh = Mesh(world, policy, [0], Conduct(news=factor))
        for _ in mesh.play(80):
            pass
        sizes.append(mesh.bytes_per_tick)
    every_change, changed_arms, grown_arms = sizes
    # One arm of five changes in a round, and nothing before the first.
    assert 0.9 * every_change / 5 < changed_arms < every_change / 5 + 60
    assert grown_arms < 0.8 * changed_arms


def test_cities_in_groups_of_one_learn_as_if_alone() -> None:
    world, alone = Linear(cities=4), (1, 1, 1, 1)
    decisions = [
        np.array(
            [step.arm for step in Mesh(world, policy, [0, 1], Conduct(groups=alone)).play(80)],
        )
        for policy in (
            make_policy("disjoint"),
            make_policy("netpool", alpha=0.7, ridge=1.0),
            make_policy("shared"),
        )
    ]
    np.testing.assert_array_equal(decisions[0], decisions[1])
    np.testing.assert_array_equal(decisions[0], decisions[2])
