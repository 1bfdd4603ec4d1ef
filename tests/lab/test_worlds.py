from itertools import islice

import numpy as np
import pytest

from pricemesh.errors import InvalidParameter
from pricemesh.lab.market import Market
from pricemesh.lab.worlds import Linear, Round, World


def play(world: World, seeds: list[int], rounds: int) -> list[Round]:
    return list(islice(world.instance(seeds).rounds(), rounds))


@pytest.mark.parametrize("world", [Linear(outliers=0.2), Market(heterogeneity=0.3)])
def test_a_seed_draws_the_same_whatever_seeds_stand_beside_it(world: World) -> None:
    together, alone = play(world, [3, 8], 130), play(world, [8], 130)
    for one, many in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.context[0], many.context[1])
        np.testing.assert_allclose(one.expected[0], many.expected[1], rtol=1e-13)
        np.testing.assert_array_equal(one.luck[0], many.luck[1])


def test_linear_contexts_are_bounded_and_outliers_are_five_times_as_long() -> None:
    plain, far = play(Linear(), [0], 200), play(Linear(outliers=0.25), [0], 200)
    lengths = np.array([np.linalg.norm(now.context, axis=-1) for now in plain])
    assert lengths.max() <= 1 + 1e-12
    ratio = np.array([np.linalg.norm(now.context, axis=-1) for now in far]) / lengths
    outlying = np.isclose(ratio, 5.0)
    assert np.isclose(ratio[~outlying], 1.0).all()
    # 2400 draws of probability 0.25: five standard errors are 0.044
    assert abs(outlying.mean() - 0.25) < 0.044


def test_features_are_as_correlated_as_asked_for() -> None:
    """Two normal variables of correlation r agree in sign with probability 1/2 + arcsin(r)/pi, which the
    scaling of a context leaves alone."""
    rounds = play(Linear(cities=40, shared=2, local=1, correlation=0.5), [0], 250)
    signs = np.array([np.sign(now.context[0]) for now in rounds])
    agree = (signs[..., 0] == signs[..., 2]).mean()
    # 10000 draws: five standard errors are 0.024
    assert abs(agree - (0.5 + np.arcsin(0.5) / np.pi)) < 0.024
    same = play(Linear(correlation=1.0), [0], 3)[2].context
    np.testing.assert_allclose(same, np.broadcast_to(same[..., :1], same.shape), rtol=1e-12)


def test_cities_may_have_contexts_of_their_own_kind() -> None:
    rounds = play(Linear(cities=2, context_mean=(2.0, -2.0)), [0], 200)
    means = np.mean([now.context[0] for now in rounds], axis=0)
    assert (means[0] > 0.1).all()
    assert (means[1] < -0.1).all()
    with pytest.raises(InvalidParameter, match="one for each city"):
        Linear(cities=3, context_mean=(1.0, 2.0))


def test_linear_parameters_have_the_variances_of_the_design() -> None:
    world = Linear(cities=6, arms=50, shared=6, local=4, heterogeneity=0.5)
    theta = world.instance(range(20)).theta  # (S, N, K, d)
    common = theta[..., :6].mean(axis=1)
    deviation = theta[..., :6] - common[:, None]
    # 6000 to 36000 independent entries: relative standard error of a variance below 0.019, times five.
    assert theta[..., 6:].var() == pytest.approx(1 / 10, rel=0.1)
    assert deviation.var() * 6 / 5 == pytest.approx(0.25 / 10, rel=0.1)
    assert common.var() == pytest.approx(1 / 10 + 0.25 / 10 / 6, rel=0.1)


def test_gap_scales_the_differences_between_arms_and_nothing_else() -> None:
    wide, narrow = Linear().instance([1]).theta, Linear(gap=0.1).instance([1]).theta
    np.testing.assert_allclose(narrow.mean(axis=2), wide.mean(axis=2), atol=1e-15)
    spread = wide - wide.mean(axis=2, keepdims=True)
    np.testing.assert_allclose(narrow - narrow.mean(axis=2, keepdims=True), 0.1 * spread, atol=1e-15)


def test_without_heterogeneity_all_cities_share_the_same_shared_parameters() -> None:
    theta = Linear(local=(1, 4, 0), cities=3).instance([2]).theta
    np.testing.assert_array_equal(theta[0, :, :, :8], np.broadcast_to(theta[0, 0, :, :8], (3, 5, 8)))
    assert (theta[0, 2, :, 8:] == 0).all(), "a city without local features has no local parameters"


def test_noise_has_the_standard_deviation_asked_for() -> None:
    instance = Linear(noise=0.3).instance([0])
    arm = np.zeros((1, 12), dtype=np.int64)
    rounds = list(islice(instance.rounds(), 500))
    off = np.array([instance.reward(now, arm) - now.expected[..., 0] for now in rounds])
    assert off.std() == pytest.approx(0.3, rel=5 / np.sqrt(2 * off.size))


def test_market_rewards_are_prices_paid_and_average_to_what_is_expected() -> None:
    world = Market(cities=4, arms=3)
    instance = world.instance([0, 1])
    rounds = list(islice(instance.rounds(), 1500))
    for k, price in enumerate(world.prices):
        arm = np.full((2, 4), k)
        rewards = np.array([instance.reward(now, arm) for now in rounds])
        expected = np.array([now.expected[..., k] for now in rounds])
        assert set(np.unique(rewards)) <= {0.0, price / 12.0}
        # the variance of one reward is at most 1/4
        assert abs(rewards.mean() - expected.mean()) < 5 * 0.5 / np.sqrt(rewards.size)


def test_the_best_price_of_the_market_depends_on_the_context() -> None:
    rounds = play(Market(), [0], 300)
    best = np.array([now.expected.argmax(axis=-1) for now in rounds])
    share = np.bincount(best.ravel(), minlength=5) / best.size
    assert share.max() < 0.8
    assert (share > 0.02).sum() >= 3


def test_market_features_have_names_and_lie_between_0_and_1() -> None:
    world = Market(shared=3, local=1)
    assert world.feature_names == (("base", "demand", "rain"), ("tourists",))
    contexts = np.array([now.context for now in play(world, [0], 100)])
    assert contexts.shape[-1] == 4
    assert contexts.min() >= 0
    assert contexts.max() <= 1


@pytest.mark.parametrize(
    "settings",
    [
        {"cities": 0},
        {"arms": 1},
        {"shared": 0},
        {"local": -1},
        {"local": (1, 2)},
        {"noise": -0.1},
        {"noise": float("nan")},
        {"heterogeneity": -1},
        {"outliers": 1.5},
        {"gap": -1},
        {"context_mean": float("inf")},
    ],
)
def test_impossible_worlds_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidParameter):
        Linear(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"shared": 9}, {"local": 5}, {"arms": 1}, {"heterogeneity": -1}])
def test_impossible_markets_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InvalidParameter):
        Market(**settings)  # type: ignore[arg-type]


def test_context_mean_moves_every_feature() -> None:
    contexts = np.array([now.context for now in play(Linear(context_mean=1.0), [0], 100)])
    assert (contexts.mean(axis=(0, 1, 2)) > 0.15).all()


def test_heterogeneity_makes_the_markets_differ_in_what_they_share() -> None:
    alike, apart = (Market(heterogeneity=h).instance([0]).effects[0, :, :, :8] for h in (0.0, 0.5))
    assert (alike == alike[0]).all()
    assert np.ptp(apart, axis=0).min() > 0
