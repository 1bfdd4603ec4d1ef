"""The world from real choices, and the script that makes its file from the survey's table."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks.swissmetro_truth import DESIGN, read, usable
from pricemesh.errors import InvalidParameter
from pricemesh.lab.swissmetro.answers import (
    CANTONS,
    COLUMNS,
    LEVELS,
    LOCAL,
    MULTIPLES,
    SHARED,
    load,
    pack,
    unpack,
)
from pricemesh.lab.swissmetro.world import Swissmetro
from pricemesh.lab.worlds import SalesInstance, SalesWorld

UNLIKE = ((0.8, 1.0, 1.23), (0.9, 1.0, 1.6))
WORLDS = [Swissmetro(), Swissmetro(cities=2, arms=3, ladders=UNLIKE)]
HEADER = (
    "GROUP SURVEY SP ID PURPOSE FIRST TICKET WHO LUGGAGE AGE MALE INCOME GA ORIGIN DEST TRAIN_AV CAR_AV "
    "SM_AV TRAIN_TT TRAIN_CO TRAIN_HE SM_TT SM_CO SM_HE SM_SEATS CAR_TT CAR_CO CHOICE"
)
FIRST_RESPONDENT = "2 0 1 1 1 0 1 1 0 3 0 2 0 2 1 1 1 1 "  # the columns that do not vary, of respondent 1
SITUATIONS = """112 48 120 63 52 20 0 117 65 2
103 48 30 60 49 10 0 117 84 2
130 48 60 67 58 30 0 117 52 2
103 40 30 63 52 20 0 72 52 2
130 36 60 63 42 20 0 90 84 2
112 36 120 60 49 10 0 90 52 2
103 48 120 67 58 10 0 72 65 2
103 36 30 67 43 30 0 90 65 1
130 40 60 60 46 10 0 72 65 2"""


def sample(folder: Path, fixed: str = FIRST_RESPONDENT, situations: str = SITUATIONS) -> Path:
    """The first nine rows of the survey's table."""
    path = folder / "sample.dat"
    path.write_text("\n".join([HEADER, *(fixed + line for line in situations.splitlines())]) + "\n")
    return path


def test_the_shipped_file_has_what_the_script_reads_from_the_table(tmp_path: Path) -> None:
    made = usable(read(sample(tmp_path)))
    answers = load()
    rows = answers.respondent == 1
    assert made["RAIL_FARE"].tolist() == [40] * 9
    np.testing.assert_array_equal(answers.level[rows], made["LEVEL"])
    np.testing.assert_array_equal(answers.bought[rows], made["BOUGHT"])
    np.testing.assert_array_equal(answers.multiple[rows], made["SM_CO"] / 40)
    assert set(made) == set(COLUMNS)
    assert list(CANTONS)[answers.city[rows][0]] == 2
    # base, income 50-100, age 3, no business, no luggage, a car, asked on a train, 40 francs of 400, ...
    by_hand = [1, 0.5, 0.5, 0, 0, 1, 1, 0.1, 112 / 400, 49 / 200, 117 / 400, 65 / 250, 0, 0]
    np.testing.assert_allclose(answers.context[rows][0], by_hand, rtol=1e-15)


def test_the_fare_levels_follow_from_the_design_by_hand(tmp_path: Path) -> None:
    """At the same train fare a higher level costs more: 42, 43 and 49 francs beside 36 by train."""
    made = usable(read(sample(tmp_path)))
    assert made["LEVEL"].tolist() == [1, 0, 2, 2, 0, 2, 2, 1, 1]
    assert [list(DESIGN.values()).count(level) for level in range(3)] == [9, 9, 9]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2 0 1 1 1 0 1 1 0 3 0 2 0 2", "2 0 1 1 1 0 1 1 0 3 0 2 1 2"),  # a GA pass
        ("2 0 1 1 1 0 1 1 0 3 0 2 0 2", "2 0 1 1 1 0 1 1 0 3 0 2 0 3"),  # a canton with few answers
    ],
)
def test_answers_of_others_are_left_out(tmp_path: Path, old: str, new: str) -> None:
    assert len(usable(read(sample(tmp_path, FIRST_RESPONDENT.replace(old, new))))["ID"]) == 0


def test_respondents_outside_the_design_and_questions_not_answered_are_left_out(tmp_path: Path) -> None:
    odd = SITUATIONS.replace("112 48 120", "999 48 120", 1)
    assert len(usable(read(sample(tmp_path, situations=odd)))["ID"]) == 0
    silent = SITUATIONS.replace("52 20 0 117 65 2", "52 20 0 117 65 0")
    assert len(usable(read(sample(tmp_path, situations=silent)))["ID"]) == 8


def test_the_shipped_answers_fit_the_design() -> None:
    answers = load()
    assert len(answers.city) == 9027
    assert np.bincount(answers.city).tolist() == sorted(np.bincount(answers.city).tolist(), reverse=True)
    assert np.bincount(answers.city).min() >= 81
    counts = np.bincount(answers.level)
    assert counts.max() - counts.min() < 0.02 * counts.sum() / 3, "each level was shown equally often"
    # Where nine answers have three fares, the Swissmetro covers the whole trip: the fare is the level's.
    francs = answers.context[:, SHARED.index("rail_fare")] * 400
    whole = 0
    for respondent in np.unique(answers.respondent):
        rows = answers.respondent == respondent
        if len(np.unique(answers.multiple[rows])) == 3:
            off = np.abs(answers.multiple - np.array(LEVELS)[answers.level])[rows] * francs[rows]
            assert (off <= 1.0 + 1e-9).all()
            whole += int(rows.sum())
    assert whole == 783


def test_packed_chances_come_back() -> None:
    chance = np.array([[0.9, 0.5, 0.5, 0.25], [1.0, 0.4321, 0.1, 0.0]])
    np.testing.assert_allclose(unpack(pack(chance).astype(np.uint16)), chance, atol=1e-12)
    rising = np.array([[0.5, 0.6, 0.4]])
    np.testing.assert_allclose(unpack(pack(rising)), [[0.5, 0.5, 0.4]], atol=1e-12)


def test_chances_fall_with_the_fare_and_fit_the_share_that_bought() -> None:
    answers = load()
    assert answers.chance.shape == (9027, len(MULTIPLES))
    assert (np.diff(answers.chance, axis=1) <= 0).all()
    assert answers.chance.min() > 0
    assert answers.chance.max() < 1
    place = np.clip((answers.multiple - MULTIPLES[0]) / 0.05, 0, len(MULTIPLES) - 1).round().astype(np.int64)
    shown = answers.chance[np.arange(len(place)), place]
    for level in range(len(LEVELS)):
        at = answers.level == level
        # 3000 answers in groups of up to four from a respondent: standard error below 0.018, taken twice.
        # Rounding the fare to the table's steps of 0.05 moves a mean by less than 0.005.
        assert abs(shown[at].mean() - answers.bought[at].mean()) < 0.041


def test_travellers_with_the_same_context_in_a_city_have_the_same_chances() -> None:
    answers = load()
    seen: dict[tuple[int, bytes], bytes] = {}
    for city, x, chance in zip(answers.city.tolist(), answers.context, answers.chance, strict=True):
        assert seen.setdefault((city, x.tobytes()), chance.tobytes()) == chance.tobytes()


def test_features_have_names_and_lie_between_0_and_1() -> None:
    context = load().context
    assert context.shape[1] == len(SHARED) + len(LOCAL) == 14
    assert Swissmetro().feature_names == (SHARED, LOCAL)
    assert Swissmetro(cities=2).city_names == ("vaud", "geneva")
    assert context.min() == 0
    assert context.max() == 1
    assert (context[:, 0] == 1).all()
    assert (context.std(axis=0)[1:] > 0.05).all()


@pytest.mark.parametrize("world", WORLDS)
def test_expected_rewards_and_rewards_are_sales_at_a_price(world: Swissmetro) -> None:
    instance = world.instance([0, 1])
    assert isinstance(world, SalesWorld)
    assert isinstance(instance, SalesInstance)
    choices = np.random.default_rng(1)
    for now in islice(instance.rounds(), 70):
        chance = instance.chance(now.context)
        np.testing.assert_array_equal(now.expected, chance * world.city_prices / world.reward_unit)
        np.testing.assert_array_equal(now.expected, instance.expected(now.context))
        arm = choices.integers(0, world.arms, now.luck.shape)
        sold = instance.sold(now, arm)
        price = world.city_prices[np.arange(world.cities), arm]
        np.testing.assert_array_equal(instance.reward(now, arm), sold * price)


@pytest.mark.parametrize("world", WORLDS)
def test_as_many_buy_as_the_chance_says(world: Swissmetro) -> None:
    instance = world.instance([2])
    rounds = list(islice(instance.rounds(), 1500))
    for k in range(world.arms):
        arm = np.full((1, world.cities), k)
        sold = sum(float(instance.sold(now, arm).sum()) for now in rounds)
        p = np.array([now.expected[0, :, k] / world.city_prices[:, k] for now in rounds])
        assert abs(sold - p.sum()) < 4 * np.sqrt((p * (1 - p)).sum())


def test_a_seed_draws_the_same_travellers_whatever_seeds_stand_beside_it() -> None:
    together, alone = (list(islice(Swissmetro().instance(seeds).rounds(), 70)) for seeds in ([3, 8], [8]))
    for one, many in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.context[0], many.context[1])
        np.testing.assert_array_equal(one.luck[0], many.luck[1])


def test_each_city_meets_its_own_travellers_and_chances_are_linear_between_multiples() -> None:
    world = Swissmetro(cities=2, arms=3, ladders=UNLIKE)
    answers = load()
    for now in islice(world.instance([0]).rounds(), 40):
        for city in (0, 1):
            same = (answers.city == city) & (answers.context == now.context[0, city]).all(axis=1)
            assert same.any()
            chance = answers.chance[same][0]
            by_hand = np.interp(world.city_prices[city], MULTIPLES, chance) * world.city_prices[city]
            np.testing.assert_allclose(now.expected[0, city], by_hand, rtol=1e-12)


def test_the_best_fare_depends_on_the_traveller() -> None:
    rounds = list(islice(Swissmetro().instance([0]).rounds(), 300))
    best = np.array([now.expected.argmax(axis=-1) for now in rounds])
    share = np.bincount(best.ravel(), minlength=10) / best.size
    assert share.max() < 0.5
    assert (share > 0.02).sum() >= 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cities": 12}, "at most 11 cities"),
        ({"arms": 1}, "at least two arms"),
        ({"arms": 2, "ladders": ((0.4, 1.0),)}, "from 0.5 to 2, not 0.4 to 1"),
        ({"arms": 3, "ladders": ((0.8, 1.0),)}, "one price for each of 3 arms"),
    ],
)
def test_worlds_that_are_not_possible_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        Swissmetro(**settings)  # type: ignore[arg-type]


def test_a_context_of_nobody_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="its travellers only"):
        Swissmetro(cities=1).instance([0]).chance(np.full((1, 1, 14), 0.3))
