"""Which parameters what was learned depends on."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.ladder import Ladder
from pricemesh.core.policies import (
    POLICIES,
    SCORING_PARAMETERS,
    Shape,
    dump,
    learning_changes,
    make_policy,
    parameters,
)

OTHER_VALUES: dict[str, Any] = {
    "exploration": "thompson",
    "thompson_scale": 0.7,
    "thompson_optimism": 0.9,
    "heterogeneity": 0.3,
    "trust": "equal",
    "combine": "counts",
    "cosine": "clip",
    "rho": 0.2,
    "alpha": 0.123,
}
NUMERIC = {"alpha": 0.5, "ridge": 1.0}


def learned(name: str, **values: Any) -> bytes:
    """The state after the same 300 lessons."""
    rng = np.random.default_rng(3)
    ladder = Ladder(np.array([8.0, 10.0, 12.0]), 8.0, 12.0)
    learner = make_policy(name, **values).learner(Shape(3, 2, 1, ladder=ladder))
    for _ in range(300):
        learner.learn(rng.random(3), int(rng.integers(3)), float(rng.random() < 0.5), rng.uniform(0.2, 0.8))
    return dump(learner)


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "shared"])
def test_what_is_learned_does_not_depend_on_the_parameters_of_scoring(name: str) -> None:
    given = {key: value for key, value in NUMERIC.items() if key in parameters(name)}
    free = [key for key in parameters(name) if key in SCORING_PARAMETERS | {"alpha"}]
    assert free
    for key in free:
        changed = given | {key: OTHER_VALUES[key]}
        assert learned(name, **changed) == learned(name, **given), key
        assert learning_changes({"name": name, **given}, {"name": name, **changed}) == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("disjoint", {"ridge": 2.0}),
        ("disjoint", {"pending": "on"}),
        ("netpool", {"ridge": 2.0}),
        ("netpool", {"alpha": 0.5, "ridge": 1.0}),
        ("netlinucb", {"split": "block"}),
        ("netlinucb", {"context_memory": 0.5}),
        ("netsgducb", {"eta": 0.1}),
        ("netsgducb", {"accumulator": "ema"}),
    ],
)
def test_a_parameter_that_changes_what_is_learned_is_named(name: str, change: dict[str, Any]) -> None:
    assert learned(name, **change) != learned(name)
    found = learning_changes({"name": name}, {"name": name, **change})
    assert len(found) == len(change)
    assert all(any(text.startswith(key) for text in found) for key in change)
