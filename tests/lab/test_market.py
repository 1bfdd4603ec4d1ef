"""The market's options: links, bumps, spread of elasticity, ladders. The default market is as it was."""

from itertools import islice
from math import erf, exp, pi, sqrt

import numpy as np
import pytest

from pricemesh.core.arrays import Array
from pricemesh.errors import InvalidParameter
from pricemesh.lab.market import LINKS, SHARED, Market, MarketInstance
from pricemesh.lab.worlds import Linear, Round, SalesInstance, SalesWorld, generator

UNLIKE = ((8.0, 9.0, 11.0), (7.0, 9.0, 10.0))
CONTEXT = [0.22585682868553114, 0.7358002201917249, 0.0]
EXPECTED = [
    0.6299276105724074,
    0.6977472553883848,
    0.7602311648897807,
    0.8159251404609421,
    0.8631572605892118,
]
LUCK = [0.26991985160155496, 0.5749735902916397, 0.9798486012426484]
MARKETS = [
    Market(),
    Market(link="probit", arms=10),
    Market(link="cliff", heterogeneity=0.5),
    Market(bumps=0.5, arms=7),
    Market(elasticity_spread=2.0),
    Market(cities=2, arms=3, ladders=UNLIKE),
]


def first_rounds(instance: MarketInstance, rounds: int) -> list[Round]:
    return list(islice(instance.rounds(), rounds))


@pytest.mark.parametrize("settings", [{}, {"arms": 10, "heterogeneity": 0.5}, {"shared": 3, "local": 0}])
def test_the_default_market_draws_what_it_drew_before_it_had_options(settings: dict[str, float]) -> None:
    """Bit for bit, against the formulas of the market before links, bumps and ladders."""
    world = Market(**settings)  # type: ignore[arg-type]
    seeds = [4, 1_000_007]
    instance = world.instance(seeds)
    for i, seed in enumerate(seeds):
        rng = generator(seed, "truth")
        usual = np.array([effects for _, *effects in SHARED[: world.shared]]).T
        common = usual * (1.0 + 0.2 * rng.standard_normal(usual.shape))
        own = world.heterogeneity * np.abs(usual) * rng.standard_normal((world.cities, 2, world.shared))
        local = rng.standard_normal((world.cities, 2, world.local))
        effects = np.concatenate([common + own, local], axis=-1)
        np.testing.assert_array_equal(instance.effects[i], effects)
    price = np.linspace(8.0, 12.0, world.arms)
    choices = np.random.default_rng(0)
    for now in first_rounds(instance, 130):
        pull = np.matvec(instance.effects, now.context)
        elasticity = np.maximum(0.5, pull[..., 1:])
        dearness = 4.0 * (price / 8.0 - 1.0)
        expected = 1.0 / (1.0 + np.exp(elasticity * dearness - pull[..., :1])) * price / 12.0
        np.testing.assert_array_equal(now.expected, expected)
        arm = choices.integers(0, world.arms, now.luck.shape)
        paid = price[arm] / 12.0
        mean = np.take_along_axis(expected, arm[..., None], axis=-1)[..., 0]
        np.testing.assert_array_equal(instance.reward(now, arm), np.where(now.luck * paid < mean, paid, 0.0))


def test_the_default_market_has_the_numbers_it_had() -> None:
    """Written down from the market before it had options: seed 0, round 65, which is of the second block."""
    now = first_rounds(Market().instance([0]), 65)[64]
    np.testing.assert_allclose(now.context[0, 0, 1:4], CONTEXT, rtol=1e-12)
    np.testing.assert_allclose(now.expected[0, 11], EXPECTED, rtol=1e-12)
    np.testing.assert_allclose(now.luck[0, :3], LUCK, rtol=1e-12)


@pytest.mark.parametrize("world", MARKETS)
def test_expected_rewards_and_rewards_are_sales_at_a_price(world: Market) -> None:
    instance = world.instance([0, 1])
    assert isinstance(world, SalesWorld)
    assert isinstance(instance, SalesInstance)
    assert world.sells
    choices = np.random.default_rng(1)
    for now in first_rounds(instance, 20):
        chance = instance.chance(now.context)
        assert chance.shape == (2, world.cities, world.arms)
        np.testing.assert_array_equal(now.expected, chance * world.city_prices / world.reward_unit)
        arm = choices.integers(0, world.arms, now.luck.shape)
        sold = instance.sold(now, arm)
        assert set(np.unique(sold)) <= {0.0, 1.0}
        price = world.city_prices[np.arange(world.cities), arm]
        np.testing.assert_array_equal(instance.reward(now, arm), sold * (price / world.reward_unit))


@pytest.mark.parametrize("world", MARKETS)
def test_as_many_buy_as_the_chance_says(world: Market) -> None:
    instance = world.instance([2])
    rounds = first_rounds(instance, 1500)
    chance = np.array([instance.chance(now.context) for now in rounds])
    for k in range(world.arms):
        arm = np.full((1, world.cities), k)
        sold = np.array([instance.sold(now, arm) for now in rounds])
        p = chance[..., k]
        error = np.sqrt((p * (1 - p)).sum())
        assert abs(sold.sum() - p.sum()) < 4 * error


@pytest.mark.parametrize("link", list(LINKS))
def test_a_higher_price_never_sells_more_and_a_buyer_would_pay_less_too(link: str) -> None:
    instance = Market(link=link, arms=6, heterogeneity=0.5).instance([0, 1])
    for now in first_rounds(instance, 50):
        chance = instance.chance(now.context)
        # Far from its drop the step is flat to the last bit.
        assert (np.diff(chance, axis=-1) <= 0).all()
        assert (chance[..., 0] > chance[..., -1]).all()
        sold = np.array([instance.sold(now, np.full(now.luck.shape, k)) for k in range(6)])
        assert (np.diff(sold, axis=0) <= 0).all()


@pytest.mark.parametrize("against", [-3.0, -0.4, 0.0, 0.3, 1.7])
def test_links_by_hand(against: float) -> None:
    def logistic(value: float) -> float:
        return 1 / (1 + exp(-value))

    def normal(value: float) -> float:
        return (1 + erf(value / sqrt(2))) / 2

    by_hand = {
        "logit": logistic(-against),
        "probit": normal(-against * sqrt(2 * pi) / 4),
        "cliff": 0.5 ** exp(against),
        "step": 0.05 + 0.9 * logistic(6 * (-against + 0.3)),
    }
    for name, link in LINKS.items():
        assert link(np.array([against]))[0] == pytest.approx(by_hand[name], rel=1e-12)


def slope_at_zero(name: str) -> float:
    low, high = LINKS[name](np.array([-1e-5, 1e-5]))
    return float((low - high) / 2e-5)


def test_probit_and_logit_have_the_same_slope_at_zero() -> None:
    assert slope_at_zero("logit") == pytest.approx(0.25, rel=1e-6)
    assert slope_at_zero("probit") == pytest.approx(0.25, rel=1e-6)


def logit_of(chance: Array) -> Array:
    return np.asarray(np.log(chance / (1 - chance)))


def test_bumps_move_the_logit_of_a_price_by_the_same_in_all_cities() -> None:
    plain, bumpy = (Market(arms=4, bumps=sd).instance([0, 1, 2]) for sd in (0.0, 0.5))
    now = first_rounds(plain, 1)[0]
    moved = logit_of(bumpy.chance(now.context)) - logit_of(plain.chance(now.context))  # (S, N, K)
    np.testing.assert_allclose(moved, np.broadcast_to(moved[:, :1], moved.shape), atol=1e-9)
    np.testing.assert_allclose(moved, bumpy.bumps, atol=1e-9)
    np.testing.assert_array_equal(plain.effects, bumpy.effects)
    assert np.unique(bumpy.bumps).size == 12, "each seed and price has its own"


def test_bumps_have_the_standard_deviation_asked_for_and_belong_to_the_price() -> None:
    many = Market(arms=50, bumps=0.5).instance(range(40)).bumps[:, 0]
    # 2000 normal draws: the relative standard error of their deviation is 1/sqrt(4000), times four.
    assert many.std() == pytest.approx(0.5, rel=4 / sqrt(4000))
    bumps = Market(cities=2, arms=3, ladders=UNLIKE, bumps=1.0).instance([0]).bumps[0]
    assert bumps[0, 1] == bumps[1, 1], "both cities have the price 9"
    assert np.unique(bumps).size == 5


def test_elasticity_spread_scales_what_is_random_in_the_elasticity_and_nothing_else() -> None:
    none, usual, twice = (
        Market(heterogeneity=0.4, elasticity_spread=f).instance([5]).effects for f in (0.0, 1.0, 2.0)
    )
    np.testing.assert_array_equal(usual[:, :, 0], twice[:, :, 0])
    np.testing.assert_allclose(twice[:, :, 1] - none[:, :, 1], 2 * (usual - none)[:, :, 1], atol=1e-12)
    table = np.array([elasticity for _, _, elasticity in SHARED])
    np.testing.assert_array_equal(none[0, :, 1, :8], np.broadcast_to(table, (12, 8)))
    assert (none[0, :, 1, 8:] == 0).all()


def test_the_prices_of_a_ladder_sell_as_the_same_prices_of_another() -> None:
    world = Market(cities=2, arms=3, ladders=UNLIKE)
    common = Market(cities=2, arms=5, ladders=((7.0, 8.0, 9.0, 10.0, 11.0),))
    assert world.price_range == common.price_range == (7.0, 11.0)
    assert common.prices == (7.0, 8.0, 9.0, 10.0, 11.0)
    instance, other = world.instance([3]), common.instance([3])
    for one, two in zip(first_rounds(instance, 30), first_rounds(other, 30), strict=True):
        np.testing.assert_array_equal(one.context, two.context)
        np.testing.assert_array_equal(one.expected[:, 0], two.expected[:, 0][:, [1, 2, 4]])
        np.testing.assert_array_equal(one.expected[:, 1], two.expected[:, 1][:, [0, 2, 3]])
    with pytest.raises(InvalidParameter, match="different prices"):
        _ = world.prices


def test_very_high_prices_sell_nothing_and_do_not_overflow() -> None:
    for link in ("logit", "probit"):
        instance = Market(link=link, arms=2, ladders=((9.0, 1e5),)).instance([0])
        now = first_rounds(instance, 1)[0]
        assert instance.chance(now.context)[..., 1].max() < 1e-300


def test_the_linear_world_sells_nothing() -> None:
    world = Linear()
    assert not world.sells
    assert not isinstance(world, SalesWorld)
    assert not isinstance(world.instance([0]), SalesInstance)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"link": "linear"}, "link must be one of logit, probit, cliff, step"),
        ({"bumps": -0.1}, "bumps must be zero or a positive number"),
        ({"elasticity_spread": float("nan")}, "elasticity_spread must be zero"),
        ({"arms": 3, "ladders": ((8.0, 9.0),)}, "one price for each of 3 arms, not 8, 9"),
        ({"arms": 2, "ladders": ((9.0, 8.0),)}, "ascending prices above zero, not 9, 8"),
        ({"arms": 2, "ladders": ((0.0, 8.0),)}, "ascending prices above zero"),
        ({"arms": 2, "ladders": ((8.0, float("inf")),)}, "ascending prices"),
        (
            {"arms": 2, "cities": 3, "ladders": ((8.0, 9.0),) * 2},
            "one ladder for all 3 cities or one for each",
        ),
    ],
)
def test_options_that_are_not_possible_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        Market(**settings)  # type: ignore[arg-type]
