"""Letters as differences: the whole letter comes out, or nobody is blamed for what nobody did."""

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricemesh.core.news import changes, updated
from pricemesh.core.policies import Learner, make_policy
from pricemesh.core.summary import Summary
from pricemesh.errors import BadSummary
from pricemesh.gossip.difference import Difference, Unbuildable, difference, rebuild
from pricemesh.gossip.letter import Letter, Seal
from pricemesh.gossip.node import Node
from pricemesh.store.commands import SaveLetters
from tests.gossip.letters import PRINT, SHAPE, check, exchange, letter, memory, seed_of
from tests.gossip.memory_network import memory_mesh

BLOCKS = make_policy("netpool").learner(SHAPE).layout.blocks


class Origin:
    """A city that publishes one block or another of what it knows."""

    def __init__(self, name: str, key: str = "") -> None:
        self.name = name
        self._seal = Seal(seed_of(key or name))
        self._learner: Learner = make_policy("netpool").learner(SHAPE)
        self._rng = np.random.default_rng(list(name.encode()))
        self._numbers = self._learner.numbers()
        self._changed_at = np.zeros(2, dtype=np.int64)
        self.version = 0
        self.letters = [self._seal_letter()]

    def publish(self, arm: int, *, both: bool = False) -> Letter:
        """Learn on this arm, and publish it or all that changed."""
        self._learner.learn(self._rng.uniform(-1, 1, SHAPE.dim), arm, float(self._rng.normal()))
        self.version += 1
        present = self._learner.numbers()
        flags = changes(self._learner, self._numbers, present) if both else np.arange(2) == arm
        self._numbers = updated(self._learner.layout, self._numbers, present, flags)
        self._changed_at[flags] = self.version
        self.letters.append(self._seal_letter())
        return self.letters[-1]

    def _seal_letter(self) -> Letter:
        lags = tuple((self.version - self._changed_at).tolist())
        return self._seal.close(Summary.of(self.name, 1, self.version, PRINT, self._numbers, lags))


def new_node(name: str) -> Node:
    node = Node(name, PRINT, check, blocks=BLOCKS)
    node.take([letter(name, 0)])
    return node


def mended(item: Difference, **changes: object) -> Difference:
    return msgspec.structs.replace(item, **changes)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.booleans()), min_size=1, max_size=9), st.data())
def test_a_city_with_any_older_letter_rebuilds_the_same_bits(
    steps: list[tuple[int, bool]], data: st.DataObject
) -> None:
    porto = Origin("porto")
    for arm, both in steps:
        porto.publish(arm, both=both)
    newest = porto.letters[-1]
    since = data.draw(st.integers(0, len(steps) - 1))
    item = difference(newest, since, BLOCKS)
    if item is None:
        assert all(newest.summary.version - lag > since for lag in newest.summary.lags or (0, 0))
        return
    for base in porto.letters[since:]:
        assert rebuild(item, base, BLOCKS).wire == newest.wire
    others = (None, *porto.letters[:since], letter("porto", 3, epoch=2))
    for other in others:
        with pytest.raises(Unbuildable):
            rebuild(item, other, BLOCKS)


def test_relays_send_differences_too_and_all_cities_end_with_the_same_bits() -> None:
    nodes = [new_node(name) for name in ("faro", "lisbon", "sines")]
    memories, porto = [memory() for _ in nodes], Origin("porto")
    nodes[0].take([porto.letters[0]])
    exchange(nodes[0], nodes[1], (memories[0], memories[1]))
    exchange(nodes[1], nodes[2], (memories[1], memories[2]))
    exchange(nodes[0], nodes[1], (memories[0], memories[1]))
    whole = len(porto.letters[0].wire)
    for arm in (0, 1, 1, 0):
        nodes[0].take([porto.publish(arm)])
        sizes = [
            exchange(nodes[0], nodes[1], (memories[0], memories[1])),
            exchange(nodes[1], nodes[2], (memories[1], memories[2])),
        ]
        assert max(sizes) < whole + 200
        for node in nodes:
            assert node.letters["porto"].wire == porto.letters[-1].wire
            node.letters["porto"].verify()


def test_a_letter_that_cannot_be_built_is_asked_for_whole_in_the_same_exchange() -> None:
    """The origin was set up anew under another key: other contents under the same versions."""
    old, anew = Origin("porto"), Origin("porto", key="anew")
    for origin in (old, anew):
        for arm in (0, 1, 0):
            origin.publish(arm)
    faro, lisbon = new_node("faro"), new_node("lisbon")
    memories = memory(), memory()
    lisbon.trust("porto", anew.letters[0].key)
    lisbon.take([anew.letters[-1]])
    faro.take([old.letters[-2]])
    faro.trusted_keys["porto"] = anew.letters[0].key
    exchange(faro, lisbon, memories)
    assert faro.letters["porto"].wire == anew.letters[-1].wire


def test_only_a_sender_that_changed_something_is_blamed() -> None:
    faro, porto = new_node("faro"), Origin("porto")
    for arm in (0, 1, 0):
        porto.publish(arm)
    faro.take([porto.letters[2]])
    item = difference(porto.letters[3], 2, BLOCKS)
    assert item is not None
    numbers = np.frombuffer(item.numbers)
    cases = {
        "seal is broken": mended(item, numbers=(numbers + 1.0).tobytes()),
        "number of numbers": mended(item, numbers=item.numbers[:-8]),
        "cannot be read": mended(item, lags=b"\0\0\0"),
        "before the first version": mended(item, lags=b"\0\x09"),
    }
    for reason, damaged in cases.items():
        checked = faro.check_letters([], [damaged])
        (refusal,) = checked.refusals
        assert reason in refusal.reason
        assert (refusal.origin, refusal.is_sealed, checked.fresh) == ("porto", False, [])
    for other in (mended(item, rest=bytes(16)), mended(item, epoch=2), mended(item, since=3, version=9)):
        checked = faro.check_letters([], [other])
        assert checked.refusals == []
        assert checked.unbuilt_origins == frozenset(["porto"])
    assert faro.check_letters([], [item]).fresh == [porto.letters[3]]
    faro.take([porto.letters[3]])
    assert faro.check_letters([], [item]) == faro.check_letters([])


def test_a_letter_names_the_version_of_every_block_or_of_none(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(3)
            whole = faro.letter_of("porto", 3).summary
            summary = Summary.of("porto", 1, 3, whole.fingerprint, whole.numbers, (1, 0))
            seal = Seal(b"porto".ljust(32, b"."))
            checked = await faro.gossip.intake.take([seal.close(summary).wire], "porto")
            assert "versions of 2 blocks" in checked.refusals[0].reason
            with pytest.raises(BadSummary, match="no block can have changed"):
                Summary.of("porto", 1, 3, whole.fingerprint, whole.numbers, (4, 0))

    asyncio.run(story())


def test_a_letter_that_cannot_be_read_in_the_database_does_not_hinder_a_start(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(3)
            await faro.gossip.publisher.publish()
            for origin in ("faro", "porto"):
                wire = b"PMS0" + faro.letter_of(origin, 3).wire[4:]
                await faro.pricing.commit(SaveLetters([(origin, wire)], faro.clock.now))
            again = await faro.restart()
            assert again.editions == {"faro": (1, 3)}
            await again.teach(1, seed=1)
            await again.gossip.publisher.publish()
            await again.stop()

    asyncio.run(story())
