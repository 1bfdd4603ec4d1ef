"""A fold that keeps what depends on unchanged peers, against one from nothing."""

from typing import Any

import numpy as np
import pytest

from pricemesh.core.arrays import Array
from pricemesh.core.ladder import Ladder
from pricemesh.core.peer_rows import PeerRows
from pricemesh.core.policies import Learner, Shape, make_policy
from pricemesh.core.summary import Parts, Summary
from pricemesh.errors import BadSummary

SHAPE = Shape(3, 4, 2, ladder=Ladder(np.array([1.0, 2.0, 3.0]), low=1.0, high=3.0))
NAMES = [f"city{i:02}" for i in range(40)]
TICKS = 25


def teach(learner: Learner, rng: np.random.Generator, lessons: int) -> None:
    for _ in range(lessons):
        x, arm = rng.normal(size=SHAPE.dim) / 2, int(rng.integers(SHAPE.arms))
        if learner.learns_sales:
            learner.learn(x, arm, float(rng.integers(2)), 0.5)
        else:
            learner.learn(x, arm, float(x.sum() * arm + 0.3 * rng.normal()))


class LivingMesh:
    """Cities that learn, join, leave and come back in random order, and one that folds them all."""

    def __init__(self, policy: str, seed: int, **parameters: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.policy = make_policy(policy, **parameters)
        self.receiver = self.policy.learner(SHAPE)
        self.cities: dict[str, Learner] = {}
        self.summaries: dict[str, Summary] = {}
        self.versions = dict.fromkeys(NAMES, 0)

    def tick(self) -> None:
        teach(self.receiver, self.rng, int(self.rng.integers(3)))
        for _ in range(int(self.rng.integers(4))):
            name = str(self.rng.choice(NAMES))
            if name in self.summaries and self.rng.random() < 0.4:
                del self.summaries[name]
                continue
            city = self.cities.setdefault(name, self.policy.learner(SHAPE))
            teach(city, self.rng, int(self.rng.integers(1, 12)))
            self.versions[name] += 1
            self.summaries[name] = Summary.of(name, 1, self.versions[name], bytes(16), city.numbers())


def arrays_of(value: Any) -> list[Array]:
    """All arrays in the result of a fold."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, tuple):
        return [array for item in value for array in arrays_of(item)]
    return arrays_of(tuple(vars(value).values())) if hasattr(value, "vectors") else []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("netpool", {}),
        ("netpool", {"trust": "equal"}),
        ("netpool", {"trust": "equal", "heterogeneity": 0.2}),
        ("netpool", {"trust": "equal", "heterogeneity": 0.0, "ridge": 1.0}),
        ("demand", {}),
        ("netlinucb", {}),
        ("netsgducb", {}),
    ],
)
def test_a_fold_of_what_changed_equals_a_fold_from_nothing(
    name: str, parameters: dict[str, Any], seed: int
) -> None:
    mesh, rows = LivingMesh(name, seed, **parameters), PeerRows()
    for _ in range(TICKS):
        mesh.tick()
        group = mesh.receiver.group_of("me", mesh.summaries)
        folded = mesh.receiver.fold(rows.stack(mesh.receiver, group), group.origins)
        from_nothing = mesh.receiver.fold(PeerRows().stack(mesh.receiver, group), group.origins)
        expected = arrays_of(from_nothing)
        assert len(expected) >= 4
        for one, other in zip(arrays_of(folded), expected, strict=True):
            np.testing.assert_array_equal(one, other)
        mesh.receiver.adopt(folded)


class CountingReader:
    """Counts the cities that a learner decomposes."""

    def __init__(self, learner: Learner) -> None:
        self.layout, self._learner, self.prepared = learner.layout, learner, 0

    def prepare(self, parts: Parts) -> Parts:
        self.prepared += len(parts["count"])
        return self._learner.prepare(parts)


def test_only_changed_cities_are_prepared_again() -> None:
    mesh, rows = LivingMesh("netpool", 0), PeerRows()
    while len(mesh.summaries) < 10:
        mesh.tick()

    def prepared() -> int:
        reader = CountingReader(mesh.receiver)
        rows.stack(reader, mesh.receiver.group_of("me", mesh.summaries))
        return reader.prepared

    count = len(mesh.summaries)
    assert prepared() == 1 + count
    assert prepared() == 1  # the own summary
    name = min(mesh.summaries)
    old = mesh.summaries[name]
    mesh.summaries[name] = Summary(*(getattr(old, field) for field in old.__dataclass_fields__))
    assert prepared() == 1  # another object with the same content
    numbers = mesh.policy.learner(SHAPE).numbers()
    mesh.summaries[name] = Summary.of(name, old.epoch, old.version, bytes(16), numbers)
    assert prepared() == 2  # another content under the same version
    del mesh.summaries[name]
    assert prepared() == 1
    mesh.summaries[name] = old
    assert prepared() == 2  # what left was forgotten


@pytest.mark.parametrize("name", ["netpool", "demand"])
def test_rows_are_bounded_by_the_cities_that_count(name: str) -> None:
    mesh, rows = LivingMesh(name, 1), PeerRows()
    for _ in range(TICKS):
        mesh.tick()
        parts = rows.stack(mesh.receiver, mesh.receiver.group_of("me", mesh.summaries))
        assert {len(part) for part in parts.values()} == {1 + len(mesh.summaries)}


@pytest.mark.parametrize("name", ["netpool", "demand"])
def test_a_result_in_use_does_not_change_when_later_letters_are_stacked(name: str) -> None:
    for parameters in ({}, {"trust": "equal", "heterogeneity": 0.0}):
        mesh, rows = LivingMesh(name, 2, **parameters), PeerRows()
        while len(mesh.summaries) < 3:
            mesh.tick()
        group = mesh.receiver.group_of("me", mesh.summaries)
        arrays = arrays_of(mesh.receiver.fold(rows.stack(mesh.receiver, group), group.origins))
        before = [array.copy() for array in arrays]
        empty = mesh.policy.learner(SHAPE).numbers()
        for origin, summary in mesh.summaries.items():
            mesh.summaries[origin] = Summary.of(origin, 2, summary.version, bytes(16), empty)
        rows.stack(mesh.receiver, mesh.receiver.group_of("me", mesh.summaries))
        for array, copy in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, copy)


def test_a_summary_that_is_refused_leaves_the_rows_as_they_were() -> None:
    mesh, rows = LivingMesh("netpool", 3), PeerRows()
    while len(mesh.summaries) < 4:
        mesh.tick()
    learner = mesh.receiver
    group = learner.group_of("me", mesh.summaries)
    before = {part: value.copy() for part, value in rows.stack(learner, group).items()}
    numbers = learner.numbers()
    numbers[0] = np.inf
    stranger = Summary.of("stranger", 1, 1, bytes(16), numbers)
    with pytest.raises(BadSummary, match="stranger sent numbers that are not finite"):
        rows.stack(learner, learner.group_of("me", {**mesh.summaries, "stranger": stranger}))
    for part, value in rows.stack(learner, group).items():
        np.testing.assert_array_equal(value, before[part])
