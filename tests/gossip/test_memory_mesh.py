"""Whole meshes on a network that loses, repeats, delays and cuts, by seed: what holds after all of it."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from pricemesh.gossip.peers import TICKS_UNTIL_SENT_AGAIN
from tests.gossip.memory_network import MemoryCity, MemoryNetwork, memory_mesh

NAMES = ("faro", "lisbon", "porto", "sines")


async def live_through_faults(folder: Path, seed: int) -> tuple[list[MemoryCity], MemoryNetwork, list[int]]:
    """The cities at the end, all requests, and how many lessons each city has learned."""
    rng = Random(seed)
    network = MemoryNetwork(seed, loss=0.2, answer_loss=0.2, duplication=0.2, delay=0.2)
    lessons = [0] * len(NAMES)
    async with memory_mesh(folder, NAMES, network) as cities:
        for step in range(25):
            i = rng.randrange(len(NAMES))
            act = rng.choice(("learn", "tick", "tick", "deliver", "cut", "restart", "wait"))
            if act == "learn":
                await cities[i].teach(2, seed=step)
                lessons[i] += 2
            elif act == "tick":
                await cities[i].tick()
            elif act == "deliver":
                await network.deliver_delayed()
            elif act == "cut":
                network.cut(cities[i].address, cities[rng.randrange(len(NAMES))].address)
            elif act == "restart":
                cities[i] = await cities[i].restart()
            cities[i].clock.advance(rng.uniform(0.0, 20.0))
        network.mend()
        await network.deliver_delayed()
        for _ in range(TICKS_UNTIL_SENT_AGAIN + 1):
            for city in cities:
                await city.tick()
    return cities, network, lessons


@pytest.mark.parametrize("seed", range(6))
def test_when_the_faults_end_all_cities_have_the_same_bits_and_count_every_lesson_once(
    tmp_path: Path, seed: int
) -> None:
    cities, _, lessons = asyncio.run(live_through_faults(tmp_path, seed))
    expected = {name: (1, count) for name, count in zip(NAMES, lessons, strict=True)}
    for city in cities:
        assert city.editions == expected
        assert city.wires == cities[0].wires
        assert city.gossip.intake.quarantine.marks == {}
        counts = city.pricing.learner.layout.part("count", city.gossip.node.summaries["faro"].numbers)
        assert counts.sum() == lessons[0]


def test_the_same_seed_gives_the_same_history_to_the_byte(tmp_path: Path) -> None:
    histories = []
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        _, network, _ = asyncio.run(live_through_faults(tmp_path / run, 7))
        histories.append(network.requests)
    assert len(histories[0]) > 50
    assert histories[0] == histories[1]
