"""What an operator may do about other cities, over a network in memory and across restarts."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from pricemesh.errors import StorageUnavailable, UnknownCity
from tests.gossip.memory_network import MemoryNetwork, memory_mesh

NAMES = ("faro", "lisbon", "porto")


def test_a_dropped_city_stops_counting_and_is_not_taken_from_a_relay_either(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, NAMES) as (faro, lisbon, porto):
            await porto.teach(5)
            for city in (porto, lisbon, faro):
                await city.tick()
            assert list(faro.pricing.learner.attribution.origins) == ["lisbon", "porto"]
            await faro.gossip.operators.drop("porto")
            assert list(faro.pricing.learner.attribution.origins) == ["lisbon"]
            await porto.tick()
            assert "an operator of faro has dropped porto" in porto.peer("faro").fault
            for city in (lisbon, faro):
                await city.tick()
            assert "porto" not in faro.editions
            assert faro.status("porto") == "dropped"
            again = await faro.restart()
            assert again.status("porto") == "dropped"
            await again.gossip.operators.readmit("porto")
            for city in (lisbon, again):
                await city.tick()
            assert again.editions["porto"] == (1, 5)

    asyncio.run(story())


def test_a_drop_that_cannot_be_committed_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path) as (faro, lisbon):
            await lisbon.teach(3)
            await faro.tick()
            x = np.ones(faro.settings.shape.dim)
            score = faro.pricing.learner.score(x)
            faro.disk.is_full = True
            with pytest.raises(StorageUnavailable):
                await faro.gossip.operators.drop("lisbon")
            assert faro.editions["lisbon"] == (1, 3)
            np.testing.assert_array_equal(faro.pricing.learner.score(x), score)

    asyncio.run(story())


def test_operators_cannot_name_their_own_city_or_readmit_one_that_was_not_dropped(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            operators = faro.gossip.operators
            with pytest.raises(UnknownCity, match="POST /admin/leave"):
                await operators.drop("faro")
            with pytest.raises(UnknownCity, match="own key"):
                await operators.trust("faro", bytes(32))
            with pytest.raises(UnknownCity, match="'porto' has not been dropped here"):
                await operators.readmit("porto")

    asyncio.run(story())


def test_a_city_set_up_anew_is_refused_until_its_key_is_trusted(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path) as (faro, lisbon):
            await lisbon.teach(5)
            await faro.tick()
            await lisbon.stop()
            for end in ("", "-wal", "-shm"):
                (tmp_path / f"lisbon.db{end}").unlink(missing_ok=True)
            lisbon.clock.advance(1)  # another moment, another key
            anew = await lisbon.restart()
            await anew.teach(2)
            await anew.tick()
            assert faro.status("lisbon") == "quarantined"
            assert faro.editions["lisbon"] == (1, 5)
            await faro.gossip.operators.trust("lisbon", anew.gossip.publisher.seal.key)
            assert "lisbon" not in faro.editions
            for _ in range(2):
                await faro.tick()
            assert faro.editions["lisbon"] == (1, 2)
            assert faro.status("lisbon") == "fresh"
            again = await faro.restart()
            assert again.gossip.node.trusted_keys == {"lisbon": anew.gossip.publisher.seal.key}

    asyncio.run(story())


def test_a_city_that_leaves_tells_its_peers_and_calls_none_until_it_joins_again(tmp_path: Path) -> None:
    async def story() -> None:
        network = MemoryNetwork()
        async with memory_mesh(tmp_path, NAMES, network) as (faro, lisbon, porto):
            for city in (faro, lisbon, porto):
                await city.tick()
            await faro.teach(3)
            network.cut(faro.address, porto.address)
            assert await faro.gossip.operators.leave() == 1
            assert lisbon.editions["faro"] == (1, 3)  # its last letter comes with the notice
            assert lisbon.status("faro") == "left"
            network.mend()
            network.requests.clear()
            again = await faro.restart()
            assert again.gossip.left
            await again.tick()
            await lisbon.tick()
            assert all(faro.address not in (call.sender, call.receiver) for call in network.requests)
            await porto.tick()
            assert porto.status("faro") == "left"  # a city that has left says so when it is called
            await again.gossip.operators.join()
            await again.tick()
            assert lisbon.status("faro") == porto.status("faro") == "fresh"

    asyncio.run(story())
