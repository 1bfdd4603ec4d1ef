"""An operator's control whose commit was not answered: what is stored is in force, before any restart."""

from pathlib import Path

import pytest

from pricemesh.city.retracting import Retractor
from pricemesh.errors import InDoubt, StorageUnavailable
from pricemesh.store.acts import ActKind
from pricemesh.store.commands import FeedbackStatus, Probe, Selection
from tests.city.test_loop import City, run


async def commit_again(city: City) -> None:
    city.disk.fails_after = city.disk.fails_before = False
    await city.pricing.commit(Probe())


def test_a_pin_that_was_stored_is_obeyed_once_the_database_is_back_and_so_is_its_end(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        city.disk.fails_after = True
        with pytest.raises(InDoubt):
            await city.pricing.pin(11.0, "campaign")
        assert city.pricing.controls.as_dict() == {}
        await commit_again(city)
        assert (await city.quote((None, None)))[0].price == 11.0
        city.disk.fails_after = True
        with pytest.raises(InDoubt):
            await city.pricing.lift(ActKind.LIFT_PIN)
        await commit_again(city)
        assert city.pricing.controls.as_dict() == {}

    run(tmp_path, story)


def test_a_freeze_that_was_stored_is_obeyed_once_the_database_is_back(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.quote(("d", None))
        city.disk.fails_after = True
        with pytest.raises(InDoubt):
            await city.pricing.freeze("odd rewards")
        await commit_again(city)
        (result,) = await city.feedback(("d", 1.0))
        assert (result.status, city.pricing.version) == (FeedbackStatus.STORED, 0)

    run(tmp_path, story)


def test_a_pin_committed_together_with_the_recovery_of_an_older_one_wins(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        city.disk.fails_after = True
        with pytest.raises(InDoubt):
            await city.pricing.pin(11.0, "campaign")
        city.disk.fails_after = False
        await city.pricing.pin(9.0, "campaign")
        assert (await city.quote((None, None)))[0].price == 9.0

    run(tmp_path, story)


def test_a_pin_that_was_not_stored_is_not_in_force(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        city.disk.fails_before = True
        with pytest.raises(StorageUnavailable):
            await city.pricing.pin(11.0, "campaign")
        await commit_again(city)
        assert city.pricing.controls.as_dict() == {}

    run(tmp_path, story)


def test_a_retraction_that_was_stored_is_learned_once_the_database_is_back(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.quote(*((f"d{i}", None) for i in range(6)))
        await city.feedback(*((f"d{i}", 1.0) for i in range(6)))
        retractor = Retractor(city.pricing)
        city.disk.fails_after = True
        with pytest.raises(InDoubt):
            await retractor.retract(Selection(("d0", "d1")), "operator", "wrong")
        assert city.pricing.live.counts.retracted == 0
        await commit_again(city)
        assert city.pricing.relearner.is_behind
        assert await city.pricing.relearner.wait(1, 60.0)
        assert (city.pricing.live.counts.retracted, city.pricing.live.lesson_counts.sum()) == (2, 4)
        again, _ = await retractor.retract(Selection(("d0", "d1")), "operator", "wrong")
        assert (again.retraction.id, again.rewrites) == (1, 1), "asked again, it is not made twice"

    run(tmp_path, story)
