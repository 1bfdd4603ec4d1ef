"""The learner that serves folds only peers whose letters changed, and forgets a peer that was dropped."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pricemesh.city.live_learner import LiveLearner
from pricemesh.core.peer_rows import Group
from pricemesh.core.policies import Learner
from pricemesh.core.summary import Summary
from pricemesh.errors import BadSummary
from tests.running import settings_for

VALUE = {"kind": "value", "largest": 1e6}


def live_learner(tmp_path: Path) -> LiveLearner:
    url = f"sqlite:///{tmp_path}/city.db"
    return LiveLearner(settings_for(url, policy={"name": "netpool"}, reward=VALUE))


def teach(learner: Learner, seed: int) -> Learner:
    rng = np.random.default_rng(seed)
    for _ in range(60):
        learner.learn(
            rng.random(learner.shape.dim), int(rng.integers(learner.shape.arms)), float(rng.normal())
        )
    return learner


def letters(tmp_path: Path, names: str, seed: int = 0) -> dict[str, Summary]:
    return {
        name: Summary.of(
            name, 1, 60, bytes(16), teach(live_learner(tmp_path).learner, seed + ord(name)).numbers()
        )
        for name in names
    }


def assert_equal_pools(one: Any, other: Any) -> None:
    assert one.origins == other.origins
    for array, expected in zip(one.pool, other.pool, strict=True):
        np.testing.assert_array_equal(array, expected)


def from_nothing(tmp_path: Path, live: LiveLearner, group: Group) -> Any:
    fresh = live_learner(tmp_path)
    fresh.learner.restore(live.learner.state())
    return fresh.fold(group)


def test_what_a_dropped_peer_contributed_is_gone_exactly(tmp_path: Path) -> None:
    live = live_learner(tmp_path)
    teach(live.learner, 1)
    all_letters = letters(tmp_path, "abcdef")
    without = {name: letter for name, letter in all_letters.items() if name != "c"}
    for summaries in (all_letters, without, all_letters, without):
        group = live.learner.group_of("me", summaries)
        folded = live.fold(group)
        assert_equal_pools(folded, from_nothing(tmp_path, live, group))
        live.learner.adopt(folded)
    never = live_learner(tmp_path)
    teach(never.learner, 1)
    never.learner.absorb_summaries("me", without)
    x = np.random.default_rng(2).random(live.learner.shape.dim)
    np.testing.assert_array_equal(live.learner.score(x), never.learner.score(x))


def test_a_fold_that_starts_while_another_runs_shares_nothing_with_it(tmp_path: Path) -> None:
    """As when a caller gives up waiting: its fold goes on in a thread, and the next one starts."""
    live = live_learner(tmp_path)
    learner = teach(live.learner, 1)
    old, new = letters(tmp_path, "abc"), letters(tmp_path, "abc", seed=100)
    live.fold(learner.group_of("me", old))
    inner: list[Any] = []

    class Slow:
        """Between preparing its peers and folding them, another fold runs from beginning to end."""

        layout, prepare = learner.layout, staticmethod(learner.prepare)

        def fold(self, parts: Any, origins: Any, *, again: bool) -> Any:
            live.learner = learner
            inner.append(live.fold(learner.group_of("me", new)))
            return learner.fold(parts, origins, again=again)

    live.learner = Slow()  # type: ignore[assignment]
    outer = live.fold(learner.group_of("me", old))
    assert_equal_pools(outer, from_nothing(tmp_path, live, learner.group_of("me", old)))
    assert_equal_pools(inner[0], from_nothing(tmp_path, live, learner.group_of("me", new)))


def test_after_a_refused_letter_the_next_fold_is_right(tmp_path: Path) -> None:
    live = live_learner(tmp_path)
    learner = teach(live.learner, 1)
    good = letters(tmp_path, "abc")
    live.fold(learner.group_of("me", good))
    numbers = np.full(learner.layout.size, np.nan)
    bad = {**letters(tmp_path, "abc", seed=100), "d": Summary.of("d", 1, 1, bytes(16), numbers)}
    with pytest.raises(BadSummary, match="d sent numbers that are not finite"):
        live.fold(learner.group_of("me", bad))
    group = learner.group_of("me", good)
    assert_equal_pools(live.fold(group), from_nothing(tmp_path, live, group))
