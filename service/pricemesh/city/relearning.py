"""The learner made from the rows: at a start, and again while the city serves, when its past was changed.

A learner that is made again learns beside the one that serves, and takes its place between two commits, when
it has learned and counted all rows.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Protocol

from pricemesh.city.clock import SteadyClock
from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.loop import CityLoop
from pricemesh.city.settings import Settings
from pricemesh.core.summary import Summary
from pricemesh.core.terms import Reading
from pricemesh.errors import StorageUnavailable
from pricemesh.runtime import Runtime, cancel_task
from pricemesh.store.commands import Lesson, Margins, Position
from pricemesh.store.database import Database, StoredState
from pricemesh.store.pending import Change
from pricemesh.store.startup import Past

SECONDS_BETWEEN_TRIES = 1.0

log = logging.getLogger("pricemesh")


class Rows(Protocol):
    """A database, or a replay of it."""

    @property
    def position(self) -> Position: ...

    def changes_of_pending(self, counted: Position) -> Iterator[Change]: ...

    def lessons(self, version: int, counted: Position) -> Iterator[list[Lesson]]: ...


class Relearner:
    def __init__(
        self, settings: Settings, database: Database, live: LiveLearner, clock: SteadyClock, runtime: Runtime
    ) -> None:
        self._settings = settings
        self._database = database
        self._live = live
        self._clock = clock
        self._runtime = runtime
        self.loop: CityLoop | None = None  # once the city serves
        self.summaries: Callable[[], Mapping[str, Summary]] = dict  # of the peers, as gossip has them
        self.begin_epoch: Callable[[int], None] = lambda _epoch: None  # as gossip does it
        self._target = 0  # rewrites that the learner is to know
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def restore(self, stored: StoredState) -> None:
        """At a start: bring the learner and the clock to what the database holds."""
        if stored.newest_row_at is not None:
            self._clock.resume(stored.newest_row_at, self._settings.feedback.window_seconds)
        live, snapshot = self._live, stored.snapshot
        use_past(live, stored.past)
        if snapshot is None or not live.load(*snapshot):
            load_base(live, stored.past)
        follow_rows(live, self._database)

    # While the city serves

    @property
    def is_behind(self) -> bool:
        """Whether the learner that serves knows a past that was changed since."""
        return self._live.rewrites < self._target

    def follow(self, rewrites: int) -> None:
        """Learn again beside the prices, if the past was changed since."""
        self._target = max(self._target, rewrites)
        if self.is_behind and not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._relearn_surely(), name="relearning")

    async def wait(self, rewrites: int, max_seconds: float) -> bool:
        """Whether the learner that serves knows this many changes of the past, at the latest after this
        time."""
        if self._task is not None and self._live.rewrites < rewrites:
            await asyncio.wait({self._task}, timeout=max_seconds)
        return self._live.rewrites >= rewrites

    async def _relearn_surely(self) -> None:
        while self.is_behind:
            try:
                await self.relearn()
                continue
            except StorageUnavailable as fault:
                log.warning("the learner could not be made again yet", extra={"fault": str(fault)})
            except Exception:
                log.exception("unforeseen, in learning again")
            await asyncio.sleep(SECONDS_BETWEEN_TRIES)

    async def relearn(self) -> None:
        """Returns when the learner that serves has learned all rows that count, and no others."""
        began_at = self._runtime.monotonic()
        while not await self._learn_again():
            pass
        seconds = round(self._runtime.monotonic() - began_at, 3)
        log.info("the learner was made again", extra={"version": self._live.version, "seconds": seconds})

    async def _learn_again(self) -> bool:
        """False where the past was changed once more meanwhile."""
        assert self.loop is not None
        fresh: LiveLearner = await self._runtime.in_thread(self._learn_all)
        summaries = self.summaries()
        await self.loop.run_alone(lambda: self._catch_up(fresh, summaries), self._use)
        return self._live.rewrites == fresh.rewrites

    def _learn_all(self) -> LiveLearner:
        fresh = LiveLearner(self._settings)
        with self._database.replay() as replay:
            use_past(fresh, replay.past)
            load_base(fresh, replay.past)
            follow_rows(fresh, replay)
        return fresh

    def _catch_up(
        self, fresh: LiveLearner, summaries: Mapping[str, Summary]
    ) -> tuple[LiveLearner, int] | None:
        """In the writer's thread: rows that were committed meanwhile, and the peers. None where the past was
        changed once more."""
        with self._database.replay() as replay:
            if replay.past.rewrites != fresh.rewrites:
                return None
            follow_rows(fresh, replay)
        if fresh.learner.fields:  # not by the letter that this city published before
            peers = {origin: each for origin, each in summaries.items() if origin != self._settings.city}
            fresh.learner.absorb_summaries(self._settings.city, peers)
        self._database.realign(fresh.version, fresh.position)
        return fresh, replay.epoch

    def _use(self, learned: tuple[LiveLearner, int] | None) -> None:
        """On the event loop: from now on the new learner serves, and its letters have the epoch that began
        with the change."""
        if learned is not None:
            self._live.become(learned[0])
            self.begin_epoch(learned[1])

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            await cancel_task(self._task)


def use_past(live: LiveLearner, past: Past) -> None:
    """The terms in which rows are read, before any is."""
    live.rewrites = past.rewrites
    live.terms, live.terms_by_id = id_of_terms(past.terms), past.terms_by_id
    live.readings = readings_of(past)


def readings_of(past: Past) -> dict[int | None, Reading]:
    """Of rows made under other terms than those in force, by these."""
    all_terms = [past.terms_by_id[id_] for id_ in sorted(past.terms_by_id)]
    places = islice(sorted(past.terms_by_id), len(all_terms) - 1)
    return {id_of_terms(id_): Reading(all_terms[i:]) for i, id_ in enumerate(places)}


def id_of_terms(id_: int) -> int | None:
    """As rows have it: None for the first terms, whose rows were written before there were others."""
    return None if id_ == 1 else id_


def margins_of(settings: Settings, live: LiveLearner) -> Margins | None:
    """How money follows from units sold, for decisions of all terms; None in a city of values."""
    margin = settings.margin
    if margin is None:
        return None
    return {live.terms: margin} | {id_: reading.margin(margin) for id_, reading in live.readings.items()}


def load_base(live: LiveLearner, past: Past) -> None:
    if past.base is not None:
        live.load_base(*past.base)


def follow_rows(live: LiveLearner, rows: Rows) -> None:
    """Learn and count all rows after those that were."""
    counted = live.position
    if live.learner.counts_pending:
        for change in rows.changes_of_pending(counted):
            live.pend(change.begun)
            live.release(change.released)
    with live.learner.learning_many():
        for lessons in rows.lessons(live.version, counted):
            live.learn(lessons)
    live.position = rows.position
