"""Feedback that is taken back: the learner is the one that never had it, until the retraction is lifted."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from pricemesh.city.deciding import Quote
from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.loop import FutureTicket
from pricemesh.city.pricing import Pricing
from pricemesh.city.retracting import Retractor, RewriteTicket
from pricemesh.core.decision import Decision
from pricemesh.errors import NothingToRetract, UnknownDecision, UnknownRetraction
from pricemesh.runtime import Runtime
from pricemesh.store.commands import Retract, Selection
from pricemesh.store.tables import city as city_table
from pricemesh.store.tables import compatibility, decisions, feedback, imports, mesh, retracted
from tests.rewriting import assert_same_learner, learner_without
from tests.running import settings_for

SALES = {"kind": "purchase", "cost": 1.0}
KINDS: dict[str, dict[str, Any]] = {"netpool": {}, "demand": {"reward": SALES}}


EPOCH_AND_REWRITES = sa.select(mesh.c.epoch, sa.select(city_table.c.rewrites).scalar_subquery())


class City:
    def __init__(self, url: str, seed: int = 1, **sections: Any) -> None:
        self.url = url
        self.sections = sections
        self.settings = settings_for(url, **sections)
        self.pricing = Pricing(self.settings, Runtime())
        self.retractor = Retractor(self.pricing)
        self.rng = np.random.default_rng(seed)

    @property
    def live(self) -> LiveLearner:
        return self.pricing.live

    async def price(self, name: str, count: int) -> list[Decision]:
        ticket = FutureTicket()
        contexts = self.rng.uniform(size=(count, 5)).tobytes()
        self.pricing.quote(Quote([(f"{name}{i}", None) for i in range(count)], contexts), ticket)
        rows: list[Decision] = await ticket.future
        return rows

    async def tell(self, amounts: Sequence[tuple[str, float]], key: str | None = None) -> None:
        ticket = FutureTicket()
        self.pricing.feedback(amounts, ticket, key)
        await ticket.future

    async def teach(
        self, name: str, count: int, *, absurd: bool = False, key: str | None = None
    ) -> list[str]:
        """Honest feedback, or what no customer would do: everything is sold, or rewards of 1000."""
        rows = await self.price(name, count)
        is_purchase = self.settings.reward.is_purchase
        usual = self.rng.random(count) < 0.3 if is_purchase else self.rng.normal(size=count)
        amounts = np.full(count, 1.0 if is_purchase else 1000.0) if absurd else usual
        await self.tell([(row.id, float(amount)) for row, amount in zip(rows, amounts, strict=True)], key)
        return [row.id for row in rows]

    def never_had(self, folder: Path, omitted: Sequence[str]) -> LiveLearner:
        target = settings_for(f"sqlite:///{folder}/never-had.db", **self.sections)
        return learner_without(self.url, target, frozenset(omitted))


def run(story: Callable[..., Coroutine[Any, Any, None]], *cities: City) -> None:
    async def whole() -> None:
        for city in cities:
            await city.pricing.start()
        try:
            await story(*cities)
        finally:
            for city in cities:
                await city.pricing.stop()

    asyncio.run(whole())


def rows_of(url: str, query: sa.Executable) -> list[Any]:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = list(connection.execute(query).all())
    engine.dispose()
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_retraction_the_learner_is_that_of_a_city_that_never_had_the_feedback(
    database_url: str, tmp_path: Path, kind: str
) -> None:
    async def story(city: City) -> None:
        absurd = []
        for i in range(5):
            await city.teach(f"honest{i}-", 60)
            absurd += await city.teach(f"absurd{i}-", 9, absurd=True)
        await city.price("waiting", 7)
        before = np.array(city.live.learner.numbers())
        result, is_relearned = await city.retractor.retract(
            Selection(tuple(absurd)), "operator", "a broken till"
        )
        assert is_relearned
        assert result.counts == (45, 0, 0)
        assert not np.allclose(city.live.learner.numbers(), before, rtol=1e-3)
        assert_same_learner(city.live, city.never_had(tmp_path, absurd))
        assert (city.live.version, city.live.counts.retracted) == (345, 45)
        more = await city.teach("later", 20)
        assert (await city.pricing.decision(more[0])).feedback is not None
        assert city.live.version == 365

    run(story, City(database_url, **KINDS[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_lifting_a_retraction_restores_the_learner(database_url: str, kind: str) -> None:
    """To the last bit, if it was made from the rows before, too; else but for the rounding of what decisions
    counted while they waited for feedback."""

    async def story(city: City) -> None:
        await city.teach("honest", 100)
        absurd = await city.teach("absurd", 30, absurd=True)
        await city.price("waiting", 3)
        first = {name: np.array(value) for name, value in city.live.learner.state().items()}
        await city.pricing.relearner.relearn()
        before = {name: np.array(value) for name, value in city.live.learner.state().items()}
        counts = city.live.lesson_counts.tolist()
        result, _ = await city.retractor.retract(Selection(tuple(absurd)), "k1", "wrong")
        lifted, is_relearned = await city.retractor.lift(result.retraction.id, "k2", "it was right")
        assert is_relearned
        assert (lifted.restored, lifted.still_retracted, lifted.pruned) == (30, 0, 0)
        assert (lifted.retraction.lifted_by, lifted.retraction.lift_reason) == ("k2", "it was right")
        for name, value in city.live.learner.state().items():
            np.testing.assert_array_equal(value, before[name])
            np.testing.assert_allclose(value, first[name], rtol=1e-9, atol=1e-9)
        assert city.live.lesson_counts.tolist() == counts
        assert city.live.counts.retracted == 0

    run(story, City(database_url, **KINDS[kind]))


def test_feedback_that_two_retractions_cover_counts_again_when_both_are_lifted(database_url: str) -> None:
    async def story(city: City) -> None:
        ids = await city.teach("d", 10)
        first, _ = await city.retractor.retract(Selection(tuple(ids[:6])), "operator", "first")
        second, _ = await city.retractor.retract(Selection(tuple(ids[4:])), "operator", "second")
        assert (first.counts, second.counts) == ((6, 0, 0), (6, 2, 0))
        assert city.live.counts.retracted == 10
        stored = (await city.pricing.decision(ids[4])).feedback
        assert stored is not None
        assert stored.retracted is not None
        assert (stored.retracted.retraction, stored.retracted.reason) == (second.retraction.id, "second")
        lifted, _ = await city.retractor.lift(first.retraction.id, "operator", "no")
        assert (lifted.restored, lifted.still_retracted) == (4, 2)
        assert city.live.counts.retracted == 6
        lifted, _ = await city.retractor.lift(second.retraction.id, "operator", "no")
        assert (lifted.restored, lifted.still_retracted) == (6, 0)
        assert city.live.counts.retracted == 0
        assert city.live.lesson_counts.sum() == 10

    run(story, City(database_url))


def test_what_one_key_sent_or_came_in_a_time_can_be_retracted(database_url: str, tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.teach("own", 20, key="0a0a0a0a0a0a")
        theirs = await city.teach("theirs", 5, absurd=True, key="0b0b0b0b0b0b")
        selection = Selection(key="0b0b0b0b0b0b")
        assert await city.retractor.count(selection) == (5, 0, 0)
        assert city.live.counts.retracted == 0, "a count changes nothing"
        result, _ = await city.retractor.retract(selection, "operator", "a stolen key")
        assert result.counts.selected == 5
        assert_same_learner(city.live, city.never_had(tmp_path, theirs))
        times = rows_of(city.url, sa.select(feedback.c.received_at).order_by(feedback.c.number))
        first, last = times[0][0], times[-1][0]
        assert await city.retractor.count(Selection(since=first, until=last)) == (20, 0, 0)
        assert await city.retractor.count(Selection(since=last)) == (5, 5, 0)
        assert await city.retractor.count(Selection(until=first)) == (0, 0, 0)
        everything, _ = await city.retractor.retract(Selection(since=first), "operator", "all")
        assert everything.counts == (25, 5, 0)
        assert city.live.lesson_counts.sum() == 0

    run(story, City(database_url))


@pytest.mark.parametrize("kind", KINDS)
def test_an_import_of_absurd_feedback_among_much_honest_one_is_taken_back(
    database_url: str, tmp_path: Path, kind: str
) -> None:
    async def story(city: City) -> None:
        for i in range(5):
            await city.teach(f"honest{i}-", 500)
        absurd = await city.teach("absurd", 500, absurd=True)
        for i in range(5, 10):
            await city.teach(f"honest{i}-", 500)
        pretend_import(city.url, "till-2024", absurd)
        result, is_relearned = await city.retractor.retract(
            Selection(import_name="till-2024"), "operator", "absurd"
        )
        assert is_relearned
        assert result.counts == (500, 0, 0)
        assert_same_learner(city.live, city.never_had(tmp_path, absurd))

    run(story, City(database_url, **KINDS[kind]))


def pretend_import(url: str, name: str, ids: Sequence[str]) -> None:
    engine = sa.create_engine(url)
    values = {"id": 1, "name": name, "source": "", "digest": "", "started_at": 1.0, "finished_at": 2.0}
    with engine.begin() as connection:
        connection.execute(sa.insert(imports).values(values | {"row_count": len(ids), "progress": "{}"}))
        connection.execute(decisions.update().where(decisions.c.id.in_(ids)).values(import_id=1))
    engine.dispose()


def test_what_cannot_be_retracted_is_named_and_changes_nothing(database_url: str) -> None:
    async def story(city: City) -> None:
        ids = await city.teach("d", 3)
        (waiting,) = await city.price("waiting", 1)
        retract = city.retractor.retract
        unknown = tuple(f"nobody{i}" for i in range(25))
        with pytest.raises(UnknownDecision, match=r"'nobody0', .*'nobody19' and 5 more"):
            await retract(Selection((*ids, *unknown)), "operator", "x")
        with pytest.raises(UnknownDecision, match="nobody3"):
            await city.retractor.count(Selection((ids[0], "nobody3")))
        for nothing in (Selection((waiting.id,)), Selection(key="0c0c0c0c0c0c"), Selection(until=1.0)):
            with pytest.raises(NothingToRetract, match="nothing was changed"):
                await retract(nothing, "operator", "x")
        with pytest.raises(NothingToRetract, match="no import 'till'"):
            await retract(Selection(import_name="till"), "operator", "x")
        with pytest.raises(UnknownRetraction, match="no retraction 7"):
            await city.retractor.lift(7, "operator", "x")
        assert await city.retractor.retractions(limit=10) == []
        assert (city.live.rewrites, city.live.lesson_counts.sum()) == (0, 3)
        result, _ = await retract(Selection((ids[0], waiting.id, ids[0])), "operator", "x")
        assert result.counts == (1, 0, 1)

    run(story, City(database_url))


def test_the_same_retraction_again_and_the_same_lift_again_change_nothing(database_url: str) -> None:
    """So a caller whose answer was lost may ask again."""

    async def story(city: City) -> None:
        await city.teach("d", 4, key="0a0a0a0a0a0a")
        selection = Selection(key="0a0a0a0a0a0a")
        first, _ = await city.retractor.retract(selection, "operator", "x")
        again, _ = await city.retractor.retract(selection, "operator", "x")
        assert again.retraction == first.retraction
        assert again.rewrites == first.rewrites == 1
        await city.teach("more", 1, key="0a0a0a0a0a0a")
        wider, _ = await city.retractor.retract(selection, "operator", "x")
        assert (wider.retraction.id, wider.counts) == (2, (5, 4, 0))
        lifted, _ = await city.retractor.lift(2, "operator", "y")
        twice, _ = await city.retractor.lift(2, "operator", "z")
        assert twice.retraction == lifted.retraction
        assert (twice.restored, twice.rewrites) == (0, lifted.rewrites)
        assert [each.id for each in await city.retractor.retractions(limit=10)] == [2, 1]
        assert [each.id for each in await city.retractor.retractions(limit=10, before=2)] == [1]

    run(story, City(database_url))


def test_a_retraction_begins_an_epoch_and_locks_out_older_software(database_url: str) -> None:
    async def story(city: City) -> None:
        ids = await city.teach("d", 2)
        assert rows_of(city.url, sa.select(compatibility.c.oldest_revision)) < [("0005",)]
        result, _ = await city.retractor.retract(Selection((ids[0],)), "operator", "x")
        assert rows_of(city.url, EPOCH_AND_REWRITES) == [(2, 1)]
        assert rows_of(city.url, sa.select(compatibility.c.oldest_revision)) == [("0005",)]
        await city.retractor.lift(result.retraction.id, "operator", "x")
        assert rows_of(city.url, EPOCH_AND_REWRITES) == [(3, 2)]
        assert rows_of(city.url, sa.select(retracted)) == []

    run(story, City(database_url))


def test_a_city_that_stops_between_the_commit_and_the_learning_learns_again_at_its_start(
    database_url: str, tmp_path: Path
) -> None:
    absurd: list[str] = []

    async def story(city: City) -> None:
        await city.teach("honest", 50)
        absurd.extend(await city.teach("absurd", 10, absurd=True))
        command = Retract(Selection(tuple(absurd)), "operator", "x", 1.0)
        result = await city.pricing.commit(command)  # nobody follows it
        assert (result.rewrites, city.live.rewrites, city.live.counts.retracted) == (1, 0, 0)

    run(story, City(database_url))  # its snapshot has what was retracted
    stored = rows_of(database_url, sa.text("SELECT version FROM learner"))
    assert stored == [(60,)]

    async def restarted(city: City) -> None:
        assert (city.live.rewrites, city.live.counts.retracted) == (1, 10)
        assert_same_learner(city.live, city.never_had(tmp_path, absurd))

    run(restarted, City(database_url))


def test_a_caller_that_leaves_after_the_commit_leaves_no_retraction_unlearned(database_url: str) -> None:
    async def story(city: City) -> None:
        ids = await city.teach("d", 5)
        ticket = RewriteTicket(city.pricing)
        city.pricing.loop.submit(Retract(Selection(tuple(ids[:2])), "operator", "x", 1.0), ticket)
        ticket.future.cancel()
        async with asyncio.timeout(20):
            while city.live.counts.retracted != 2:
                await asyncio.sleep(0.001)

    run(story, City(database_url))


def test_prices_and_feedback_go_on_while_the_learner_is_made_again(database_url: str, tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.teach("honest", 400)
        absurd = await city.teach("absurd", 100, absurd=True)
        retraction = asyncio.create_task(city.retractor.retract(Selection(tuple(absurd)), "operator", "x"))
        rounds = 0
        while not retraction.done():
            await city.teach(f"meanwhile{rounds}-", 3)
            rounds += 1
        assert retraction.result()[1]
        assert rounds > 1
        assert_same_learner(city.live, city.never_had(tmp_path, absurd))

    run(story, City(database_url))


def test_several_retractions_at_once_are_all_in_force(database_url: str, tmp_path: Path) -> None:
    async def story(city: City) -> None:
        ids = await city.teach("d", 40)
        results = await asyncio.gather(
            *(city.retractor.retract(Selection((id_,)), "operator", "x") for id_ in ids[:8])
        )
        assert sorted(result.retraction.id for result, _ in results) == list(range(1, 9))
        assert all(is_relearned for _, is_relearned in results)
        assert_same_learner(city.live, city.never_had(tmp_path, ids[:8]))

    run(story, City(database_url))


def test_the_log_says_who_retracted_what_and_why(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(city: City) -> None:
        ids = await city.teach("d", 2)
        await city.retractor.retract(Selection(tuple(ids)), "0a0a0a0a0a0a", "a broken till")
        await city.retractor.lift(1, "0b0b0b0b0b0b", "it was whole")

    with caplog.at_level(logging.WARNING, "pricemesh"):
        run(story, City(database_url))
    lines = [vars(record) for record in caplog.records if record.levelno == logging.WARNING]
    assert [(line["message"], line["by"], line["reason"]) for line in lines] == [
        ("feedback was retracted", "0a0a0a0a0a0a", "a broken till"),
        ("a retraction was lifted", "0b0b0b0b0b0b", "it was whole"),
    ]
    assert [(line["retraction"], line["feedback"]) for line in lines] == [(1, 2), (1, 2)]
