"""A learner that is made again counts the peers as the one before it, and letters that come meanwhile."""

import asyncio
from pathlib import Path

import numpy as np

from tests.gossip.memory_network import MemoryCity, memory_mesh

CONTEXTS = np.random.default_rng(1).uniform(size=(20, 5))


def scores(city: MemoryCity) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    score = city.pricing.learner.score(CONTEXTS)
    return np.stack([score.estimate, score.radius])


def test_a_learner_that_is_made_again_counts_the_peers_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro", "porto"]) as (faro, porto):
            await faro.teach(4)
            alone = scores(faro)
            await porto.teach(30)
            for _ in range(2):
                await porto.tick()
                await faro.tick()
            before, learner = scores(faro), faro.pricing.learner
            assert not np.allclose(before, alone)
            await faro.pricing.relearner.relearn()
            assert faro.pricing.learner is not learner
            np.testing.assert_allclose(scores(faro), before, rtol=1e-9, atol=1e-9)

    asyncio.run(story())


def test_letters_that_are_absorbed_while_the_learner_is_made_again_count_in_the_new_one(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro", "porto"]) as (faro, porto):
            await faro.teach(4)
            for round_ in range(8):
                await porto.teach(10, seed=round_)
                await porto.tick()
                jobs = [faro.pricing.relearner.relearn(), faro.gossip.absorb()]
                await asyncio.gather(*(jobs if round_ % 2 else reversed(jobs)))
            await faro.pricing.relearner.relearn()
            assert await faro.gossip.absorb(), "the next tick absorbs all letters"
            assert not await faro.gossip.absorb(), "the one after it has nothing to do"
            found = scores(faro)
            again = await faro.restart()
            np.testing.assert_allclose(found, scores(again), rtol=1e-9, atol=1e-9)

    asyncio.run(story())
