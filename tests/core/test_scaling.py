"""The scale of rewards as `netpool` reads it, against loops over raw histories; and that no unit matters."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.arrays import Array
from pricemesh.core.policies import Learner, Shape, dump, load, make_policy
from pricemesh.core.scaling import MAX_RIDGE, MIN_OBSERVATIONS, MIN_RIDGE, fitted_ridge, is_due
from pricemesh.core.summary import Summary
from pricemesh.core.ucb import choose

ARMS, SHARED, LOCAL = 3, 4, 2
DIM = SHARED + LOCAL
FACTORS = (1e-6, 1.0, 100.0, 1e6)


def city(**values: Any) -> Learner:
    return make_policy("netpool", **values).learner(Shape(ARMS, SHARED, LOCAL))


def teach(learner: Learner, rng: np.random.Generator, lessons: int, factor: float = 1.0) -> None:
    theta = np.linspace(-1, 1, ARMS * DIM).reshape(ARMS, DIM)
    for _ in range(lessons):
        x, arm = rng.normal(size=DIM), int(rng.integers(ARMS))
        learner.learn(x, arm, factor * float(theta[arm] @ x + 0.3 * rng.normal()))


def letter(origin: str, learner: Learner) -> Summary:
    return Summary.of(origin, 1, 1, bytes(16), learner.numbers())


def ridge_by_loops(information: Array, response: Array, variance: float) -> float:
    ridge = 1.0
    for _ in range(30):
        v = 0.0
        for k in range(ARMS):
            inverse = np.linalg.inv(information[k] + ridge * np.eye(SHARED))
            theta = inverse @ response[k]
            v += (theta @ theta + variance * np.trace(inverse)) / SHARED / ARMS
        ridge = min(max(variance / v, MIN_RIDGE), MAX_RIDGE)
    return ridge


def noise_by_hand(learner: Learner) -> float:
    parts = learner.summarise()
    return float((parts["noise"] * parts["count"]).sum() / parts["count"].sum())


def check_scale(learner: Learner, variance: float, ridge: float) -> None:
    """By its score, for the own statistics and what `learner` has adopted."""
    own, pooled = learner.own, learner.pooled  # type: ignore[attr-defined]
    extra = pooled.gram[0, -1, -1] - own.gram[0, -1, -1]  # a local feature: peers add nothing to it
    assert 1.0 + extra == pytest.approx(ridge, rel=1e-9)
    x = np.ones(DIM)
    expected = 2 * np.sqrt(variance) * np.sqrt(x @ np.linalg.solve(pooled.gram[0], x))
    assert learner.score(x).radius[0] == pytest.approx(expected, rel=1e-9)


def test_letters_give_the_scale_of_the_mesh() -> None:
    rng = np.random.default_rng(0)
    lisbon, porto, faro = city(heterogeneity=0.0, trust="equal"), city(), city()
    for learner, lessons in ((lisbon, 40), (porto, 25), (faro, 90)):
        teach(learner, rng, lessons)
    variance = sorted(map(noise_by_hand, (lisbon, porto, faro)))[1]
    parts = [learner.summarise() for learner in (lisbon, porto, faro)]
    information = sum(part["information"] for part in parts)
    response = sum(part["response"] for part in parts)
    lisbon.absorb_summaries("lisbon", {"porto": letter("porto", porto), "faro": letter("faro", faro)})
    check_scale(lisbon, variance, ridge_by_loops(np.asarray(information), np.asarray(response), variance))


def test_a_city_without_peers_reads_its_own_scale_when_it_is_due() -> None:
    rng = np.random.default_rng(1)
    alone = city()
    teach(alone, rng, 63)
    assert alone.pooled.gram[0, 0, 0] == pytest.approx(alone.own.gram[0, 0, 0])  # type: ignore[attr-defined]
    teach(alone, rng, 1)
    variance, parts = noise_by_hand(alone), alone.summarise()
    ridge = ridge_by_loops(parts["information"], parts["response"], variance)
    check_scale(alone, variance, ridge)
    alone.absorb_summaries("lisbon", {})  # a tick without letters changes nothing
    check_scale(alone, variance, ridge)
    teach(alone, rng, 31)
    check_scale(alone, variance, ridge)


def test_before_the_scale_is_known_the_size_of_rewards_stands_in_for_it() -> None:
    young = city()
    x = np.ones(DIM)
    assert np.ptp(young.score(x).radius) == 0.0
    young.learn(x, 0, 3.0)
    young.learn(x, 1, 1.0)
    inverse = np.linalg.inv(np.eye(DIM) + np.outer(x, x))
    expected = 2 * np.sqrt((9 + 1) / 2) * np.sqrt(x @ inverse @ x)
    assert young.score(x).radius[1] == pytest.approx(expected)


def test_a_city_is_due_twice_between_powers_of_two() -> None:
    due = [n for n in range(300) if is_due(n)]
    assert due == [64, 96, 128, 192, 256]
    assert due[0] >= MIN_OBSERVATIONS


def test_the_ridge_stays_within_its_bounds() -> None:
    nothing, strong = np.zeros((ARMS, SHARED, SHARED)), 1e6 * np.broadcast_to(np.eye(SHARED), (ARMS, 4, 4))
    loud, silent = np.full((ARMS, SHARED), 1e9), np.zeros((ARMS, SHARED))
    assert fitted_ridge(strong, loud, np.float64(1.0)) == MIN_RIDGE  # type: ignore[arg-type]
    assert fitted_ridge(strong, silent, np.float64(1.0)) == MAX_RIDGE  # type: ignore[arg-type]
    assert fitted_ridge(nothing, silent, np.float64(1.0)) == 1.0  # type: ignore[arg-type]


def test_the_scale_of_a_city_alone_survives_a_restart() -> None:
    rng = np.random.default_rng(2)
    alone, restored = city(), city()
    teach(alone, rng, 90)
    load(restored, dump(alone))
    x = rng.normal(size=DIM)
    np.testing.assert_allclose(restored.score(x), alone.score(x), rtol=1e-12)
    teach(alone, np.random.default_rng(3), 10)
    teach(restored, np.random.default_rng(3), 10)
    np.testing.assert_allclose(restored.score(x), alone.score(x), rtol=1e-9)


def test_letters_do_not_depend_on_the_ridge_in_force() -> None:
    """So that a version names one content, whatever a city has adopted."""
    rng = np.random.default_rng(4)
    alone, pooled, peer = city(), city(), city()
    teach(peer, rng, 80, factor=50.0)
    teach(alone, np.random.default_rng(5), 30)
    teach(pooled, np.random.default_rng(5), 30)
    pooled.absorb_summaries("lisbon", {"porto": letter("porto", peer)})
    np.testing.assert_array_equal(alone.numbers(), pooled.numbers())


def test_a_given_alpha_or_ridge_is_used_as_it_is() -> None:
    rng = np.random.default_rng(6)
    learner, peer = city(alpha=0.7, ridge=2.0), city(alpha=0.7, ridge=2.0)
    teach(learner, rng, 70)
    teach(peer, rng, 70)
    learner.absorb_summaries("lisbon", {"porto": letter("porto", peer)})
    pooled, x = learner.pooled, np.ones(DIM)  # type: ignore[attr-defined]
    assert pooled.gram[0, -1, -1] == learner.own.gram[0, -1, -1]  # type: ignore[attr-defined]
    expected = 0.7 * np.sqrt(x @ np.linalg.solve(pooled.gram[0], x))
    assert learner.score(x).radius[0] == pytest.approx(expected)


@pytest.mark.parametrize("factor", FACTORS)
def test_rewards_in_another_unit_lead_to_the_same_decisions(factor: float) -> None:
    """From the first decision on; with letters, without, and with feedback that comes late."""
    rng = np.random.default_rng(7)
    theta = rng.normal(size=(ARMS, DIM))
    units = [[city() for _ in range(2)] for _ in (1.0, factor)]
    waiting: list[Any] = []
    for index in range(200):
        if index % 20 == 0 and index not in (20, 40, 60):
            for cities in units:
                letters = {str(i): letter(str(i), learner) for i, learner in enumerate(cities)}
                for i, learner in enumerate(cities):
                    learner.absorb_summaries(str(i), letters)
        for i in range(2):
            x = rng.normal(size=DIM)
            scores = [cities[i].score(x) for cities in units]
            arms = [int(choose(score)) for score in scores]
            assert arms[0] == arms[1]
            reward = float(theta[arms[0]] @ x + 0.1 * rng.normal())
            for cities in units:
                cities[i].pend(x[None], np.array(arms[:1]))
            waiting.append((i, x, arms[0], reward))
        while len(waiting) > 10:
            i, x, arm, reward = waiting.pop(0)
            for cities, unit in zip(units, (1.0, factor), strict=True):
                cities[i].learn(x, arm, unit * reward, pending=True)
