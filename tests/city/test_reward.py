"""The sections [reward] and [feedback]: what they mean, and what is wrong with them, in words."""

import struct
from typing import Any

import pytest

from pricemesh.city.configuration import as_variables, load_settings, settings_from, without_secrets
from pricemesh.city.settings import Settings
from pricemesh.core.decision import Margin
from pricemesh.errors import WrongConfiguration

SALES: dict[str, Any] = {"kind": "purchase"}
VALUES: dict[str, Any] = {"kind": "value", "largest": 100}


def configuration(reward: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {
        "city": "lisbon",
        "arms": {"prices": [8, 9, 10]},
        "features": {"shared": ["rain"], "local": [{"name": "fuel", "min": 1, "max": 15}]},
        "reward": reward,
        **sections,
    }


def settings(reward: dict[str, Any], **sections: Any) -> Settings:
    return settings_from(configuration(reward, **sections))


def fault_of(reward: dict[str, Any], **sections: Any) -> str:
    with pytest.raises(WrongConfiguration) as error:
        settings(reward, **sections)
    (fault,) = error.value.faults
    return fault


@pytest.mark.parametrize(
    ("reward", "fault"),
    [
        ({"kind": "money"}, "reward.kind: must be 'purchase' or 'value', not 'money'"),
        ({"kind": "value"}, "reward.largest: is missing: write largest = 100.0 under [reward]"),
        ({"kind": "value", "largest": 0}, "reward.largest: must be greater than 0, not 0"),
        ({"kind": "value", "largest": 2e12}, "reward.largest: must be at most 1"),
        (VALUES | {"cost": 1}, 'reward.cost: belongs to kind = "purchase"'),
        (VALUES | {"max_units": 1}, 'reward.max_units: belongs to kind = "purchase"'),
        (SALES | {"largest": 5}, 'reward.largest: belongs to kind = "value"'),
        (SALES | {"cost": -1}, "reward.cost: must be from 0 to 1e+12, or the name of a feature, not -1"),
        (SALES | {"cost": float("nan")}, "reward.cost: must be from 0"),
        (SALES | {"cost": True}, "reward.cost: must be a number or the name of a feature"),
        (SALES | {"cost": "petrol"}, "reward: cost names no feature 'petrol': declare it under [features]"),
        (SALES | {"max_units": 0}, "reward.max_units: must be at least 1, not 0"),
        (SALES | {"max_units": 1.5}, "reward.max_units: must be a whole number, not 1.5"),
        (SALES | {"scale": 0}, "reward.scale: must be greater than 0, not 0"),
        (SALES | {"units": 2}, "reward.units: unknown key"),
    ],
)
def test_a_wrong_reward_is_told_what_to_write(reward: dict[str, Any], fault: str) -> None:
    assert fault_of(reward).startswith(fault)


def test_a_cost_that_names_two_features_is_refused() -> None:
    features = {"shared": ["fuel"], "local": ["fuel"]}
    assert "a shared and a local feature" in fault_of(SALES | {"cost": "fuel"}, features=features)


def test_prices_whose_money_no_float_can_count_are_refused() -> None:
    assert "count in a larger unit" in fault_of(SALES, arms={"prices": [1, 1e300]})


@pytest.mark.parametrize(
    ("reward", "feedback", "fault"),
    [
        (SALES, {"default_reward": 0}, "feedback: a city of purchases has default_sold, not default_reward"),
        (VALUES, {"default_sold": 0}, "feedback: a city of values has default_reward, not default_sold"),
        (SALES, {"default_sold": 2}, "feedback: default_sold must not be larger than reward.max_units"),
        (SALES, {"default_sold": -1}, "feedback.default_sold: must be at least 0, not -1"),
        (VALUES, {"default_reward": -101}, "feedback: default_reward must not be larger in magnitude"),
        (
            VALUES,
            {"largest_reward": 2.5},
            'feedback.largest_reward: is gone: write largest = 2.5 under [reward] with kind = "value"',
        ),
    ],
)
def test_a_default_belongs_to_its_kind(reward: dict[str, Any], feedback: dict[str, Any], fault: str) -> None:
    assert fault_of(reward, feedback=feedback).startswith(fault)


def test_a_key_that_is_gone_says_what_to_write_also_from_a_variable() -> None:
    variables = as_variables(configuration(VALUES)) | {"PRICEMESH_FEEDBACK_LARGEST_REWARD": "7"}
    with pytest.raises(WrongConfiguration, match=r'write largest = 7 under \[reward\] with kind = "value"'):
        load_settings(None, variables)


def test_the_default_amount_is_that_of_the_kind() -> None:
    assert settings(SALES).feedback.default_amount is None
    assert settings(SALES, feedback={"default_sold": 0}).feedback.default_amount == 0.0
    assert settings(VALUES, feedback={"default_reward": -2}).feedback.default_amount == -2.0


@pytest.mark.parametrize(
    ("reward", "largest"),
    [
        (VALUES, 100.0),
        (SALES, 10.0),
        (SALES | {"max_units": 3}, 30.0),
        (SALES | {"cost": 9}, 1.0),
        (SALES | {"cost": 50, "max_units": 2}, 84.0),
        (SALES | {"cost": "fuel"}, 9.0),  # from 10 - 1; the other way 15 - 8
    ],
)
def test_the_largest_reward_is_that_of_the_best_or_worst_sale(reward: dict[str, Any], largest: float) -> None:
    assert settings(reward).largest_reward == largest


def test_a_margin_takes_the_cost_from_its_number_or_from_the_context() -> None:
    assert settings(VALUES).margin is None
    assert settings(SALES | {"cost": 2.5}).margin == Margin(2.5)
    margin = settings(SALES | {"cost": "fuel"}).margin
    assert margin == Margin(0.0, 1)
    vectors = struct.pack("<4d", 0.5, 12.0, 7.0, 7.0)
    assert margin.reward(10.0, vectors, 2.0) == -4.0
    assert str(margin.reward(10.0, vectors, 0.0)) == "0.0"
    assert Margin(2.5).reward(10.0, vectors, 1.0) == 7.5


def test_variables_write_costs_as_numbers_or_names() -> None:
    for cost, expected in (("2.5", 2.5), ("fuel", "fuel")):
        variables = as_variables(configuration(SALES)) | {"PRICEMESH_REWARD_COST": cost}
        assert load_settings(None, variables).reward.cost == expected


@pytest.mark.parametrize("reward", [SALES | {"cost": "fuel", "max_units": 4}, VALUES | {"scale": 12}])
def test_what_config_prints_has_only_the_keys_of_the_kind_and_can_be_read_again(
    reward: dict[str, Any],
) -> None:
    printed = without_secrets(settings(reward))["reward"]
    assert printed == {"scale": 1.0} | reward
    assert settings(printed) == settings(reward)


def test_cities_agree_on_what_a_reward_is_before_they_exchange() -> None:
    rewards: list[dict[str, Any]] = [
        VALUES,
        VALUES | {"largest": 50},
        VALUES | {"scale": 10},
        {"kind": "value", "largest": 10},  # as large as the purchases below
        SALES,
        SALES | {"max_units": 2},
        SALES | {"cost": 1},
        SALES | {"scale": 10},
    ]
    policy = {"name": "netpool"}
    assert len({settings(reward, policy=policy).fingerprint for reward in rewards}) == len(rewards)


def test_cities_that_model_demand_agree_on_units_and_prices_but_not_on_costs() -> None:
    same = [SALES, SALES | {"cost": 1}, SALES | {"scale": 10}]
    assert len({settings(reward).fingerprint for reward in same}) == 1
    assert settings(SALES | {"max_units": 2}).fingerprint != settings(SALES).fingerprint


def test_ladders_may_differ_within_a_range_that_the_cities_agree_on() -> None:
    def city(prices: list[float], **arms: Any) -> Settings:
        return settings(SALES, arms={"prices": prices, **arms})

    low, high = city([8.0, 9.0, 10.0], range=[5.0, 20.0]), city([9.5, 12.0], range=[5.0, 20.0])
    assert low.fingerprint == high.fingerprint
    assert city([8.0, 9.0]).fingerprint != city([8.0, 9.5]).fingerprint
    assert low.fingerprint != city([8.0, 9.0, 10.0], range=[5.0, 21.0]).fingerprint
    with pytest.raises(WrongConfiguration, match="range must contain every price"):
        city([8.0, 30.0], range=[5.0, 20.0])
    with pytest.raises(WrongConfiguration, match="range is for the policy demand"):
        settings(SALES, arms={"prices": [8.0, 9.0], "range": [5.0, 20.0]}, policy={"name": "netpool"})


def test_cities_of_purchases_model_demand_unless_told_otherwise() -> None:
    assert settings(SALES).policy.name == "demand"
    assert settings(SALES, policy={"alpha": 0.3}).policy.name == "demand"
    assert settings(SALES, policy={"name": "netpool"}).policy.name == "netpool"
    assert settings(VALUES).policy.name == "netpool"
    with pytest.raises(WrongConfiguration, match="demand learns from sales"):
        settings(VALUES, policy={"name": "demand"})


def test_a_database_is_made_for_one_kind_of_reward() -> None:
    assert settings(VALUES).schema_description["reward"] == {"kind": "value"}
    units = settings(SALES | {"max_units": 3, "cost": 1}).schema_description["reward"]
    assert units == {"kind": "purchase", "max_units": 3}
