"""Propensities against an independent quadrature, closed forms and laws; draws against propensities."""

from math import erf, erfc, exp, pi, sqrt
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.legendre import leggauss

from pricemesh.core.arrays import Array
from pricemesh.core.thompson import city_seed, draw, normal, propensities, uniform_of
from pricemesh.errors import InvalidParameter

exact_cumulative = np.vectorize(lambda z: 0.5 * erfc(-z / sqrt(2.0)), otypes=[float])


def reference(mean: Array, sd: Array) -> Array:
    """Arm by arm: six nodes in each of the intervals between points 0.2 deviations apart, of all arms."""
    points = np.unique((mean[:, None] + sd[:, None] * np.linspace(-9.0, 9.0, 91)).ravel())
    nodes, weights = leggauss(6)
    width = np.diff(points)[:, None]
    v, dv = (points[:-1, None] + width * (nodes + 1.0) / 2.0).ravel(), (width * weights / 2.0).ravel()
    z = (v - mean[:, None]) / sd[:, None]
    below = exact_cumulative(z)
    density = np.exp(-0.5 * z * z) / (sqrt(2.0 * pi) * sd[:, None])
    arms = range(len(mean))
    return np.array([dv @ (density[k] * np.delete(below, k, axis=0).prod(axis=0)) for k in arms])


def random_arms(rng: np.random.Generator, kind: str, size: int) -> tuple[Array, Array]:
    if kind == "alike":
        return rng.normal(size=size), np.exp(rng.normal(size=size))
    if kind == "one wide, the others narrow and equal":
        return np.zeros(size), np.where(np.arange(size) == 0, 1.0, 1e-7)
    if kind == "far from zero":
        return 1e3 + 1e-2 * rng.normal(size=size), 10.0 ** rng.uniform(-5, -2, size=size)
    sd = 10.0 ** rng.uniform(-8, 0, size=size)  # eight orders of magnitude around one point
    return sd * rng.uniform(-6, 6, size=size), sd


KINDS = ("alike", "one wide, the others narrow and equal", "far from zero", "all scales")


def test_the_normal_density_and_distribution_are_those_of_the_math_library() -> None:
    z = np.linspace(-12.0, 12.0, 4801)
    density, cumulative = normal(z)
    expected = exact_cumulative(z)
    np.testing.assert_allclose(density, [exp(-0.5 * value * value) / sqrt(2 * pi) for value in z], rtol=1e-14)
    np.testing.assert_allclose(cumulative, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(cumulative[z >= -9], expected[z >= -9], rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 5, 20])
def test_propensities_equal_an_independent_quadrature(kind: str, size: int) -> None:
    rng = np.random.default_rng(size)
    for _ in range(3):
        mean, sd = random_arms(rng, kind, size)
        expected = reference(mean, sd)
        assert expected.sum() == pytest.approx(1.0, abs=1e-9)  # the reference is sound
        np.testing.assert_allclose(propensities(mean, sd), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_fifty_arms_are_as_exact_as_few(kind: str) -> None:
    mean, sd = random_arms(np.random.default_rng(50), kind, 50)
    np.testing.assert_allclose(propensities(mean, sd), reference(mean, sd), rtol=0, atol=1e-6)


def test_two_arms_have_the_closed_form() -> None:
    """p_0 = Phi((m_0 - m_1) / sqrt(s_0^2 + s_1^2)), on all scales and however certain."""
    rng = np.random.default_rng(2)
    sd = 10.0 ** rng.uniform(-6, 3, size=(2000, 2))
    gap = rng.normal(scale=3.0, size=2000) * np.sqrt((sd * sd).sum(axis=1))
    mean = np.stack([gap, np.zeros(2000)], axis=1)
    expected = exact_cumulative(gap / np.sqrt((sd * sd).sum(axis=1)))
    np.testing.assert_allclose(propensities(mean, sd)[:, 0], expected, rtol=0, atol=1e-8)


def test_equal_arms_are_equally_likely_also_without_uncertainty() -> None:
    for sd in (1.0, 1e-9, 0.0):
        np.testing.assert_allclose(propensities(np.full(7, 3.0), np.full(7, sd)), 1 / 7, rtol=1e-9)


def test_certain_arms_are_the_limit_of_almost_certain_ones() -> None:
    assert propensities(np.array([1.0, 2.0, 1.9]), np.zeros(3)).tolist() == [0.0, 1.0, 0.0]
    assert propensities(np.zeros(1), np.zeros(1)).tolist() == [1.0]
    wide = propensities(np.array([0.5, 0.0, 0.5]), np.array([0.0, 1.0, 0.0]))
    above = 0.5 * (1 - erf(0.5 / sqrt(2)))  # the uncertain arm is above 0.5; the certain ones share the rest
    np.testing.assert_allclose(wide, [(1 - above) / 2, above, (1 - above) / 2], rtol=0, atol=1e-7)


def test_arms_that_are_not_allowed_have_no_probability_and_the_others_share_theirs() -> None:
    rng = np.random.default_rng(3)
    mean, sd = rng.normal(size=(40, 6)), rng.uniform(0.1, 2.0, size=(40, 6))
    allowed = rng.random((40, 6)) < 0.5
    allowed[:, 2] = True
    p = propensities(mean, sd, allowed)
    assert (p[~allowed] == 0.0).all()
    for row in range(40):
        within = allowed[row]
        np.testing.assert_allclose(
            p[row, within], propensities(mean[row, within], sd[row, within]), atol=1e-12
        )
    assert propensities(mean[0], sd[0], np.arange(6) == 4).tolist() == [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]


def test_a_batch_gets_what_each_context_gets_alone() -> None:
    rng = np.random.default_rng(4)
    sd = 10.0 ** rng.uniform(-6, 1, size=(3, 30, 8))
    mean = sd * rng.normal(size=(3, 30, 8))
    p = propensities(mean, sd)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, rtol=0, atol=1e-12)
    for i, j in np.ndindex(3, 30):
        np.testing.assert_allclose(p[i, j], propensities(mean[i, j], sd[i, j]), rtol=1e-12, atol=1e-15)


def test_impossible_scores_are_refused() -> None:
    for mean, sd, allowed in (
        ([0.0, 1.0], [1.0, 1.0], [False, False]),
        ([np.nan, 1.0], [1.0, 1.0], None),
        ([0.0, 1.0], [np.inf, 1.0], None),
    ):
        with pytest.raises(InvalidParameter, match="no arm can be chosen"):
            propensities(np.array(mean), np.array(sd), None if allowed is None else np.array(allowed))
    with pytest.raises(InvalidParameter, match="negative"):
        propensities(np.zeros(2), np.array([1.0, -1.0]))


# Laws


@st.composite
def arms(draw_: st.DrawFn) -> tuple[Array, Array]:
    size = draw_(st.integers(1, 12))
    means = draw_(st.lists(st.floats(-10, 10), min_size=size, max_size=size))
    powers = draw_(st.lists(st.floats(-3, 1), min_size=size, max_size=size))
    return np.array(means), 10.0 ** np.array(powers)


@settings(max_examples=200, deadline=None)
@given(arms(), st.floats(-100, 100), st.floats(-6, 6), st.randoms(use_true_random=False))
def test_units_origin_and_order_of_the_arms_change_nothing(
    given_arms: tuple[Array, Array], shift: float, power: float, random: Random
) -> None:
    mean, sd = given_arms
    p = propensities(mean, sd)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert (p >= 0.0).all()
    np.testing.assert_allclose(propensities(mean + shift, sd), p, rtol=0, atol=1e-9)
    np.testing.assert_allclose(propensities(10.0**power * mean, 10.0**power * sd), p, rtol=0, atol=1e-9)
    order = list(range(len(mean)))
    random.shuffle(order)
    np.testing.assert_allclose(propensities(mean[order], sd[order]), p[order], rtol=0, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(arms(), st.integers(0, 11), st.floats(0.1, 5))
def test_a_higher_mean_makes_an_arm_likelier_and_one_far_below_never_chosen(
    given_arms: tuple[Array, Array], place: int, step: float
) -> None:
    mean, sd = given_arms
    arm = place % len(mean)
    raised = mean + np.where(np.arange(len(mean)) == arm, step, 0.0)
    assert propensities(raised, sd)[arm] >= propensities(mean, sd)[arm] - 1e-9
    below = np.append(mean, (mean - 20.0 * sd).min() - 20.0)
    p = propensities(below, np.append(sd, 1.0))
    assert p[-1] < 1e-12
    np.testing.assert_allclose(p[:-1], propensities(mean, sd), rtol=0, atol=1e-9)


# Draws


def test_arms_are_drawn_as_often_as_their_propensities_say() -> None:
    """200,000 ids; four standard errors for each arm."""
    p = propensities(np.array([0.0, 0.3, -0.5, 0.1]), np.array([0.5, 0.2, 1.0, 0.01]))
    seed, draws = city_seed("lisbon", 7), 200_000
    uniform = np.array([uniform_of(seed, f"order-{number}") for number in range(draws)])
    frequency = np.bincount(draw(np.broadcast_to(p, (draws, 4)), uniform), minlength=4) / draws
    assert (np.abs(frequency - p) <= 4.0 * np.sqrt(p * (1.0 - p) / draws)).all()


def test_propensities_are_how_often_a_normal_draw_is_the_largest() -> None:
    """Four standard errors over 200,000 draws of all arms."""
    rng, draws = np.random.default_rng(8), 200_000
    mean, sd = rng.normal(size=6), rng.uniform(0.2, 2.0, size=6)
    best = (mean + sd * rng.normal(size=(draws, 6))).argmax(axis=1)
    p = propensities(mean, sd)
    error = np.abs(np.bincount(best, minlength=6) / draws - p)
    assert (error <= 4.0 * np.sqrt(p * (1.0 - p) / draws)).all()


def test_an_arm_without_probability_is_never_drawn() -> None:
    p = np.array([0.0, 0.25, 0.0, 0.75, 0.0])
    assert [int(draw(p, uniform)) for uniform in (0.0, 0.2499, 0.25, 1.0 - 2.0**-53)] == [1, 1, 3, 3]
    thirds = np.array([1 / 3, 1 / 3, 1 / 3 - 1e-13, 0.0])  # whose sum is below 1
    assert int(draw(thirds, 1.0 - 2.0**-53)) == 2


def test_a_draw_depends_on_seed_city_and_decision() -> None:
    numbers = {
        uniform_of(city_seed(city, seed), id_)
        for city in ("lisbon", "porto")
        for seed in (0, 1)
        for id_ in ("a", "b", "")
    }
    assert len(numbers) == 12
    assert all(0.0 <= number < 1.0 for number in numbers)
    assert uniform_of(city_seed("lisbon", 0), "a") == uniform_of(city_seed("lisbon", 0), "a")
