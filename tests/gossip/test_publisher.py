"""What a city publishes: a version names one content, is committed first and never goes back."""

import asyncio
from pathlib import Path

import pytest

from pricemesh.core.news import YOUNG_LESSONS
from pricemesh.errors import NotStarted, StorageUnavailable
from pricemesh.gossip.letter import Leave
from pricemesh.store.commands import Retract, Selection, UpdateMesh
from tests.gossip.memory_network import FakeClock, MemoryCity, MemoryNetwork, memory_mesh
from tests.running import settings_for


def test_a_letter_is_written_only_when_something_was_learned(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            publisher = faro.gossip.publisher
            first = publisher.letter
            await publisher.publish()
            assert publisher.letter is first
            await faro.teach(3)
            await publisher.publish()
            assert publisher.letter is not None
            assert publisher.letter.edition == publisher.edition == (1, 3)
            assert publisher.published_at == faro.clock.now
            publisher.letter.verify()

    asyncio.run(story())


def test_a_letter_that_cannot_be_committed_is_not_published(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(3)
            faro.disk.is_full = True
            with pytest.raises(StorageUnavailable):
                await faro.gossip.publisher.publish()
            assert faro.editions["faro"] == (1, 0)
            faro.disk.is_full = False
            await faro.gossip.publisher.publish()
            assert faro.editions["faro"] == (1, 3)
            await faro.stop()
            assert faro.stored_editions() == {"faro": (1, 3)}

    asyncio.run(story())


def test_a_start_on_a_full_disk_publishes_once_it_can_commit(tmp_path: Path) -> None:
    """A letter that was sent and not committed could be written again with other bits after a restart."""

    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(3)
            await faro.stop()
            again = MemoryCity(faro.settings, faro.network, faro.clock)
            again.disk.is_full = True
            await again.start()
            assert again.editions == {"faro": (1, 0)}  # the one that was committed
            again.disk.is_full = False
            await again.gossip.publisher.publish()
            assert again.editions == {"faro": (1, 3)}
            await again.stop()
            assert again.stored_editions() == {"faro": (1, 3)}

    asyncio.run(story())


def test_a_restart_publishes_the_same_bits_and_then_continues(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(3)
            await faro.gossip.publisher.publish()
            wires, key = faro.wires, faro.gossip.publisher.seal.key
            again = await faro.restart()
            assert again.wires == wires
            assert again.gossip.publisher.seal.key == key
            await again.teach(2, seed=1)
            third = await again.restart()  # the last lessons were never published
            assert third.editions == {"faro": (1, 5)}

    asyncio.run(story())


def test_versions_that_would_name_another_content_get_a_new_epoch(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(3)
            await faro.gossip.publisher.publish()
            moved = await faro.restart(group="another")  # a letter of the old group cannot be continued
            assert moved.editions == {"faro": (2, 3)}
            again = await moved.restart()
            assert again.editions == {"faro": (2, 3)}

    asyncio.run(story())


def test_a_city_that_meets_a_newer_letter_of_its_own_continues_under_the_next_epoch(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            publisher = faro.gossip.publisher
            await faro.teach(2)
            newer = faro.letter_of("faro", 9, epoch=3)
            await publisher.renew(newer)
            assert faro.editions == {"faro": (4, 2)}
            await publisher.renew(newer)  # another peer shows the same letter
            assert faro.editions == {"faro": (4, 2)}
            await faro.stop()
            assert faro.stored_editions() == {"faro": (4, 2)}

    asyncio.run(story())


def test_a_letter_that_fits_into_no_request_stops_the_start(tmp_path: Path) -> None:
    settings = settings_for(f"sqlite:///{tmp_path}/faro.db", city="faro", limits={"body_bytes": 1024})
    shared = {"shared": [f"c{i}" for i in range(20)]}
    settings = settings.model_validate({**settings.model_dump(), "features": shared})
    city = MemoryCity(settings, MemoryNetwork(), FakeClock())
    city.pricing.open()
    with pytest.raises(NotStarted, match=r"raise limits\.body_bytes"):
        city.gossip.open()
    city.pricing.database.close()


def test_the_leave_notice_is_signed_and_there_is_none_while_a_city_takes_part(tmp_path: Path) -> None:
    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            publisher = faro.gossip.publisher
            assert publisher.leave_notice() == b""
            await faro.pricing.control("left", {})
            notice, letter = publisher.leave_notice(), publisher.letter
            assert letter is not None
            assert Leave.is_valid(notice, letter, faro.clock.now + 59)
            assert not Leave.is_valid(notice, letter, faro.clock.now + 61)
            assert not Leave.is_valid(notice[:-1] + b"x", letter, faro.clock.now)
            assert not Leave.is_valid(notice, faro.letter_of("faro", 0), faro.clock.now)

    asyncio.run(story())


# News


def test_a_grown_city_publishes_news_and_the_rest_when_it_has_waited_long_enough(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = {"lockstep": False, "interval_seconds": 1000.0, "news": 5.0, "news_seconds": 30.0}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            publisher = faro.gossip.publisher
            await faro.teach(YOUNG_LESSONS)
            await publisher.publish()
            assert faro.editions == {"faro": (1, 40)}
            await faro.teach(2, seed=1)
            await publisher.publish()
            assert (faro.editions, publisher.unpublished_lessons) == ({"faro": (1, 40)}, 2)
            faro.clock.advance(29.0)
            await publisher.publish()
            assert faro.editions == {"faro": (1, 40)}
            faro.clock.advance(1.0)
            await publisher.publish()
            assert (faro.editions, publisher.unpublished_lessons) == ({"faro": (1, 42)}, 0)
            await faro.teach(80, seed=2)  # three times the lessons: news in most arms
            await publisher.publish()
            assert faro.editions == {"faro": (1, 122)}

    asyncio.run(story())


def test_what_a_letter_left_out_gets_a_version_of_its_own(tmp_path: Path) -> None:
    """No lesson came since, and a version names one content."""

    async def story() -> None:
        gossip = {"lockstep": False, "interval_seconds": 1000.0, "news": 1.5, "news_seconds": 30.0}
        async with memory_mesh(tmp_path, ["faro"], gossip=gossip) as (faro,):
            publisher = faro.gossip.publisher
            for seed in range(40):
                await faro.teach(10, seed=seed)
                await publisher.publish()
                if publisher.unpublished_lessons > 0 and faro.editions["faro"][1] == faro.pricing.version:
                    break
            version = faro.pricing.version
            assert publisher.letter is not None
            assert 0 < max(publisher.letter.summary.lags) < version
            await publisher.publish(everything=True)
            assert faro.editions == {"faro": (1, version + 1)}
            assert publisher.unpublished_lessons == 0
            counts = faro.pricing.learner.layout.part("count", publisher.letter.summary.numbers)
            assert counts.sum() == version
            again = await faro.restart()
            assert again.wires == faro.wires  # the next version is not taken for a restored backup
            await again.teach(1, seed=99)
            await again.gossip.publisher.publish(everything=True)
            assert again.editions == {"faro": (1, version + 2)}


def test_what_was_retracted_is_never_told_under_the_epoch_that_begins_with_it(tmp_path: Path) -> None:
    """Between the retraction, which another replica may have committed, and the learner that is made again,
    nothing is published."""

    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(5)
            pricing, publisher = faro.pricing, faro.gossip.publisher
            await publisher.publish()
            first = publisher.letter
            rows = await pricing.latest_decisions(limit=2)
            ids = tuple(row.decision.id for row in rows)
            await pricing.commit(Retract(Selection(ids), "operator", "wrong", 1.0))
            publisher.continue_from(2)
            pricing.relearner.follow(1)
            await publisher.publish()
            assert publisher.letter is first
            assert await pricing.relearner.wait(1, 60.0)
            await publisher.publish()
            assert publisher.letter is not None
            assert publisher.letter.edition == (2, 5)
            counts = pricing.learner.layout.part("count", publisher.letter.summary.numbers)
            assert counts.sum() == 3
            again = await faro.restart()
            assert again.editions == {"faro": (2, 5)}

    asyncio.run(story())


def test_a_city_that_stops_drains_or_leaves_says_all_it_knows(tmp_path: Path) -> None:
    async def story() -> None:
        gossip = {"lockstep": False, "interval_seconds": 1000.0, "news": 1e9, "news_seconds": 1e9}
        async with memory_mesh(tmp_path, ("faro", "lisbon", "porto"), gossip=gossip) as cities:
            for city in cities:
                await city.teach(YOUNG_LESSONS - 1)
                await city.gossip.exchange()
                await city.teach(3, seed=1)
                assert city.gossip.publisher.unpublished_lessons == 3
            draining, stopping, leaving = cities
            draining.pricing.draining = True
            await draining.gossip.exchange()
            await stopping.stop()
            await leaving.gossip.operators.leave()
            assert draining.editions == dict.fromkeys(("faro", "lisbon", "porto"), (1, 42))


def test_an_epoch_never_goes_back_in_the_database(tmp_path: Path) -> None:
    """A city that was restored from a backup takes an epoch while an operator retracts."""

    async def story() -> None:
        async with memory_mesh(tmp_path, ["faro"]) as (faro,):
            await faro.teach(2)
            await faro.pricing.commit(UpdateMesh(epoch=7))
            await faro.pricing.commit(UpdateMesh(epoch=5))
            assert (await faro.restart()).gossip.publisher.epoch == 7

    asyncio.run(story())
