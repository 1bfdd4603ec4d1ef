import numpy as np
import pytest

from pricemesh.core.policies import Policy
from pricemesh.core.policies.disjoint import Disjoint
from pricemesh.core.policies.netpool import NetPool
from pricemesh.errors import InvalidParameter
from pricemesh.lab.simulate import Outcome, entries


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
