import numpy as np
import pytest

from pricemesh.core.policies import Policy
from pricemesh.core.policies.disjoint import Disjoint
from pricemesh.core.policies.netpool import NetPool
from pricemesh.errors import InvalidParameter
from pricemesh.lab.jobs import Workers
from pricemesh.lab.market import Market
from pricemesh.lab.mesh import Conduct
from pricemesh.lab.simulate import Outcome, entries, simulate, simulate_all


def test_a_record_by_hand() -> None:
    regret = np.array([[4.0, 2.0, 0.0, 2.0], [2.0, 0.0, 2.0, 4.0]])
    radius = np.array([[9.0, 9.0, 9.0, 1.0], [9.0, 9.0, 9.0, 3.0]])
    record = Outcome("x", regret, radius, cities=2, bytes_per_tick=5, seconds=1.0).record()
    assert record["regret_per_round"] == 2.0
    assert record["regret_sem"] == 0.0
    assert record["regret_per_node_round"] == 1.0
    assert record["regret_half"] == (3.0 + 1.0) / 2
    assert record["radius_end"] == 2.0


def test_settings_apply_to_the_policies_they_name_and_a_spec_wins() -> None:
    policies = entries(["disjoint", "netpool", "netpool:alpha=3"], ["alpha=2", "disjoint.alpha=1"])
    expected: list[Policy] = [Disjoint(alpha=1), NetPool(alpha=2), NetPool(alpha=3)]
    assert [entry.policy for entry in policies] == expected
    with pytest.raises(InvalidParameter, match="no policy asked for"):
        entries(["disjoint"], ["netpool.alpha=1"])


def test_seeds_played_in_jobs_are_those_played_together() -> None:
    world, conduct, seeds = Market(cities=3), Conduct(gossip_every=3, delay=2), range(4, 9)
    policies = entries(["disjoint", "netpool", "demand"], [])
    finished = [0, 0, 0]

    def count(entry: int, seeds_: int) -> None:
        finished[entry] += seeds_

    outcomes = simulate_all(
        world, policies, seeds, 30, conduct, workers=Workers(1), with_decisions=True, on_progress=count
    )
    assert finished == [5, 5, 5]
    for entry, outcome in zip(policies, outcomes, strict=True):
        together = simulate(world, entry, seeds, 30, conduct, with_decisions=True)
        np.testing.assert_allclose(outcome.regret, together.regret, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(outcome.radius, together.radius, rtol=1e-9)
        for rows, rows_together in zip(outcome.decisions, together.decisions, strict=True):
            places = [[line.split(",")[:5] for line in text.splitlines()] for text in (rows, rows_together)]
            assert places[0] == places[1]  # policy, seed, round, city and arm, in the same order
            assert len(places[0]) == 5 * 3
