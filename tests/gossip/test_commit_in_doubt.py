"""A commit of the mesh whose answer was lost: the city goes on from what is in its database."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pricemesh.errors import InDoubt
from pricemesh.gossip.letter import Seal
from pricemesh.store.commands import Probe
from tests.gossip.memory_network import MemoryCity, memory_mesh


@contextmanager
def answer_lost(city: MemoryCity) -> Iterator[None]:
    """The commit in this block happens, and its caller is told that nobody knows."""
    city.disk.loses_answers = True
    with pytest.raises(InDoubt):
        yield
    city.disk.loses_answers = False


async def commits_again(city: MemoryCity) -> None:
    await city.pricing.commit(Probe())


def test_a_city_whose_drop_was_not_answered_is_dropped_and_one_readmitted_is_heard(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path) as (faro, lisbon):
            await lisbon.teach(3)
            await faro.tick()
            with answer_lost(faro):
                await faro.gossip.operators.drop("lisbon")
            await commits_again(faro)
            assert faro.status("lisbon") == "dropped"
            assert "lisbon" not in faro.editions
            await faro.tick()
            assert list(faro.pricing.learner.attribution.origins) == []
            with answer_lost(faro):
                await faro.gossip.operators.readmit("lisbon")
            await commits_again(faro)
            await lisbon.tick()
            assert faro.editions["lisbon"] == (1, 3)

    asyncio.run(story())


def test_a_key_whose_commit_was_not_answered_is_trusted_and_ends_the_letter_under_another(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path) as (faro, lisbon):
            await lisbon.teach(3)
            await faro.tick()
            key = Seal(bytes(32)).key
            with answer_lost(faro):
                await faro.gossip.operators.trust("lisbon", key)
            assert faro.gossip.node.trusted_keys == {}
            await commits_again(faro)
            assert faro.gossip.node.trusted_keys == {"lisbon": key}
            assert "lisbon" not in faro.editions

    asyncio.run(story())


def test_a_drop_outlives_a_trust_before_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path) as (faro, lisbon):
            await faro.gossip.operators.trust("lisbon", lisbon.gossip.publisher.seal.key)
            with answer_lost(faro):
                await faro.gossip.operators.drop("lisbon")
            await commits_again(faro)
            assert faro.status("lisbon") == "dropped"

    asyncio.run(story())


def test_a_letter_whose_commit_was_not_answered_counts_and_no_older_one_replaces_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path) as (faro, lisbon):
            wires = []
            for seed in range(2):
                await lisbon.teach(2, seed)
                await lisbon.gossip.publisher.publish()
                wires.append(lisbon.wires["lisbon"])
            with answer_lost(faro):
                await faro.gossip.intake.take(wires[1:], "lisbon")
            assert "lisbon" not in faro.editions
            await faro.gossip.intake.take(wires[:1], "lisbon")
            assert faro.editions["lisbon"] == (1, 4)
            await faro.stop()
            assert faro.stored_editions()["lisbon"] == (1, 4)

    asyncio.run(story())


def test_a_letter_counts_once_it_is_committed_also_when_its_caller_gave_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path) as (faro, lisbon):
            await lisbon.teach(3)
            await lisbon.gossip.publisher.publish()
            message = lisbon.gossip.node.full_message([lisbon.gossip.node.letters["lisbon"]])
            call = asyncio.ensure_future(faro.gossip.intake.receive(message))
            while not faro.pricing.waiting_rows:
                await asyncio.sleep(0)
            call.cancel()
            await commits_again(faro)
            await asyncio.sleep(0)
            assert call.cancelled()
            assert faro.editions["lisbon"] == (1, 3)

    asyncio.run(story())


def test_an_own_letter_whose_commit_was_not_answered_is_published(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(3)
            with answer_lost(faro):
                await faro.gossip.publisher.publish()
            assert faro.editions["faro"] == (1, 0)
            await commits_again(faro)
            assert faro.editions["faro"] == (1, 3)

    asyncio.run(story())


def test_a_city_whose_leave_or_join_was_not_answered_has_left_or_joined(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path) as (faro, lisbon):
            for city in (faro, lisbon):
                await city.tick()
            with answer_lost(faro):
                await faro.gossip.operators.leave()
            await commits_again(faro)
            await lisbon.tick()
            assert lisbon.status("faro") == "left"
            with answer_lost(faro):
                await faro.gossip.operators.join()
            await commits_again(faro)
            await faro.tick()
            assert lisbon.status("faro") == "fresh"

    asyncio.run(story())
