"""A wall clock that jumps: what the steady clock notices, and what a city does meanwhile."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pricemesh.city.clock import SteadyClock
from pricemesh.city.deciding import Quote
from pricemesh.city.loop import FutureTicket
from pricemesh.city.pricing import Pricing
from pricemesh.http.collectors import CityCollector
from pricemesh.runtime import Runtime
from pricemesh.store.commands import FeedbackStatus
from tests.running import settings_for

NOON = 1_700_000_000.0
HOUR = 3600.0
CONTEXT = np.array([0.5, 0.25, 1.0, 0.1, 0.0]).tobytes()


class Clocks:
    """A wall clock and a monotonic one, moved by hand."""

    def __init__(self) -> None:
        self.wall = NOON
        self.elapsed = 100.0

    def run(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed += seconds

    def steady(self) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.elapsed, max_step_seconds=5.0, steady_seconds=60.0)


# The clock


@pytest.mark.parametrize("step", [2 * HOUR, -2 * HOUR, 5.1, -5.1])
def test_a_step_is_believed_once_it_has_lasted(step: float) -> None:
    clocks = Clocks()
    clock = clocks.steady()
    assert clock.read() == (NOON, NOON, True)
    clocks.wall += step
    assert not clock.read().is_steady
    assert clock.reason == f"the clock jumped by {step:+.1f} s"
    clocks.run(59.0)
    assert not clock.read().is_steady
    clocks.run(1.0)
    assert clock.read() == (clocks.wall, clocks.wall, True)
    assert clock.as_dict() == {"steady": True, "reason": None, "steps": 1}


@pytest.mark.parametrize("step", [2 * HOUR, -2 * HOUR])
def test_while_in_doubt_the_earlier_of_the_old_and_the_new_time_counts(step: float) -> None:
    clocks = Clocks()
    clock = clocks.steady()
    clocks.wall += step
    clocks.run(10.0)
    assert clock.read().earliest == NOON + 10.0 + min(step, 0.0)
    clocks.wall += 30.0  # jumps again: the time believed last stays the one of before the first jump
    assert clock.read().earliest == NOON + 10.0 + min(step + 30.0, 0.0)


def test_a_jump_there_and_back_takes_as_long_to_be_believed_as_any_other() -> None:
    clocks = Clocks()
    clock = clocks.steady()
    clocks.wall += 2 * HOUR
    clock.read()
    clocks.run(50.0)
    clocks.wall -= 2 * HOUR
    assert not clock.read().is_steady
    clocks.run(59.0)
    assert not clock.read().is_steady
    clocks.run(1.0)
    assert clock.read() == (NOON + 110.0, NOON + 110.0, True)


def test_slow_drift_is_no_jump_however_long_it_lasts_and_however_rarely_it_is_seen() -> None:
    clocks = Clocks()
    clock = clocks.steady()
    for pause_seconds in (0.5,) * 2000 + (86_400.0,) * 30:
        clocks.elapsed += pause_seconds
        clocks.wall += pause_seconds * 1.0005  # as fast as NTP slews a clock
        assert clock.read().is_steady


def test_many_small_steps_are_a_jump() -> None:
    clocks = Clocks()
    clock = clocks.steady()
    for _ in range(3):
        clocks.run(1.0)
        clocks.wall += 2.0
        steady = clock.read().is_steady
    assert not steady


def test_a_process_that_waits_while_it_reads_the_clocks_sees_no_jump() -> None:
    clocks = Clocks()

    def slow_clock() -> float:
        now = clocks.wall
        clocks.run(20.0)
        return now

    clock = SteadyClock(slow_clock, lambda: clocks.elapsed, max_step_seconds=5.0, steady_seconds=60.0)
    assert all(clock.read().is_steady for _ in range(10))


def test_a_jump_and_its_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks()
    clock = clocks.steady()
    for step in (HOUR, HOUR, -HOUR):
        clocks.wall += step
        for _ in range(3):
            clocks.run(1.0)
            clock.read()
    clocks.run(60.0)
    clock.read()
    clock.read()
    lines = [(record.levelno, record.getMessage().partition(":")[0]) for record in caplog.records]
    assert lines == [(logging.WARNING, "the clock jumped"), (logging.WARNING, "the clock is steady again")]


# A start


def test_a_start_counts_as_a_step_and_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks()
    clock = clocks.steady()
    clock.resume(NOON - 2 * HOUR, max_hold_seconds=7 * HOUR)
    assert clock.read() == (NOON, NOON - 2 * HOUR, False)
    clocks.run(60.0)
    assert clock.read().is_steady
    assert caplog.records == []


def test_a_clock_behind_the_newest_row_must_catch_up(caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks()
    clock = clocks.steady()
    clock.resume(NOON + 2 * HOUR, max_hold_seconds=7 * HOUR)
    assert "set the clock" in caplog.text
    clocks.run(HOUR)
    assert not clock.read().is_steady
    assert clock.reason == "the city started with a clock 7200 s behind its newest row"
    clocks.wall += HOUR  # as an operator sets it
    assert not clock.read().is_steady
    clocks.run(60.0)
    assert clock.read().is_steady
    assert "steady again" in caplog.text


def test_rows_from_the_far_future_hold_windows_no_longer_than_a_window() -> None:
    clocks = Clocks()
    clock = clocks.steady()
    clock.resume(NOON * 2, max_hold_seconds=7 * HOUR)
    clocks.run(7 * HOUR - 1)
    assert not clock.read().is_steady
    clocks.run(1)
    assert clock.read().is_steady


# A city


class City:
    """Without a socket; its clocks are moved by hand."""

    def __init__(self, folder: Path, clocks: Clocks, **sections: Any) -> None:
        runtime = Runtime(clock=lambda: clocks.wall, monotonic=lambda: clocks.elapsed)
        feedback = {"window_seconds": HOUR, "default_reward": -1.0}
        settings = settings_for(f"sqlite:///{folder}/city.db", feedback=feedback, **sections)
        self.clocks = clocks
        self.pricing = Pricing(settings, runtime)

    async def decide(self, count: int) -> list[str]:
        ticket = FutureTicket()
        self.pricing.quote(Quote([(None, None)] * count, CONTEXT * count), ticket)
        return [row.id for row in await ticket.future]

    async def feedback(self, *ids: str) -> list[str]:
        ticket = FutureTicket()
        self.pricing.feedback([(id_, 1.0) for id_ in ids], ticket)
        return [result.status for result in await ticket.future]

    async def settle(self) -> int:
        """How many decisions get the default reward now."""
        before = self.pricing.version
        while await self.pricing.close_window():
            pass
        return self.pricing.version - before


def run(folder: Path, *stories: Callable[[City], Coroutine[Any, Any, None]], **sections: Any) -> None:
    """Each story in a process of its own, one after another on the same database."""
    clocks = Clocks()

    async def whole() -> None:
        for story in stories:
            city = City(folder, clocks, **sections)
            await city.pricing.start()
            try:
                await story(city)
            finally:
                await city.pricing.stop()

    asyncio.run(whole())


def test_two_hours_forward_and_back_settle_nothing_and_refuse_nothing(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        before = await city.decide(20)
        city.clocks.wall += 2 * HOUR
        assert await city.settle() == 0
        assert await city.feedback(*before[:5]) == [FeedbackStatus.LEARNED] * 5
        city.clocks.wall -= 2 * HOUR
        city.clocks.run(61.0)
        assert await city.settle() == 0
        assert await city.feedback(*before[5:10]) == [FeedbackStatus.LEARNED] * 5

    run(tmp_path, story)


def test_decisions_made_after_a_jump_back_can_be_answered(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        city.clocks.wall -= 2 * HOUR
        during = await city.decide(3)
        assert await city.feedback(*during) == [FeedbackStatus.LEARNED] * 3

    run(tmp_path, story)


def test_a_new_time_that_lasts_is_believed(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        await city.decide(20)
        city.clocks.wall += 2 * HOUR
        assert await city.settle() == 0
        city.clocks.run(60.0)
        assert await city.settle() == 20

    run(tmp_path, story)


def test_what_is_late_by_both_times_is_refused_during_a_jump(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        (late,) = await city.decide(1)
        city.clocks.run(HOUR + 1)
        city.clocks.wall += 2 * HOUR
        assert await city.feedback(late) == [FeedbackStatus.TOO_LATE]

    run(tmp_path, story)


def test_a_clock_that_jumped_while_the_city_was_down_settles_nothing_at_once(tmp_path: Path) -> None:
    async def decide(city: City) -> None:
        ids.extend(await city.decide(20))
        city.clocks.wall += 2 * HOUR

    async def look(city: City) -> None:
        assert await city.settle() == 0
        assert await city.feedback(ids[0]) == [FeedbackStatus.LEARNED]
        city.clocks.run(60.0)
        assert await city.settle() == 19

    ids: list[str] = []
    run(tmp_path, decide, look)


def test_a_clock_that_is_behind_at_a_start_settles_nothing_until_it_has_caught_up(tmp_path: Path) -> None:
    async def decide(city: City) -> None:
        await city.decide(3)
        city.clocks.wall -= 4 * HOUR

    async def look(city: City) -> None:
        (early,) = await city.decide(1)
        city.clocks.run(0.9 * HOUR)
        assert await city.settle() == 0
        assert await city.feedback(early) == [FeedbackStatus.LEARNED]
        city.clocks.wall += 4 * HOUR
        assert await city.settle() == 0

    run(tmp_path, decide, look)


@pytest.mark.parametrize("count", [3, 700])  # more than one command closes
def test_decisions_from_a_far_future_hold_no_later_window_open(tmp_path: Path, count: int) -> None:
    async def story(city: City) -> None:
        city.clocks.wall *= 2
        strays = await city.decide(count)
        city.clocks.wall /= 2
        await city.decide(2)
        city.clocks.run(0.99 * HOUR)
        assert await city.settle() == 0
        assert await city.feedback(strays[0]) == [FeedbackStatus.LEARNED]
        city.clocks.run(0.02 * HOUR)
        assert await city.settle() == count + 1

    run(tmp_path, story)


def test_the_state_and_the_metrics_show_a_jump(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        def metrics() -> dict[str, float]:
            families = CityCollector(city.pricing, "lisbon").collect()
            return {sample.name: sample.value for family in families for sample in family.samples}

        assert (await city.pricing.state())["clock"] == {"steady": True, "reason": None, "steps": 0}
        assert (metrics()["pricemesh_clock_steady"], metrics()["pricemesh_clock_steps_total"]) == (1, 0)
        city.clocks.wall += 2 * HOUR
        reason = "the clock jumped by +7200.0 s"
        assert (await city.pricing.state())["clock"] == {"steady": False, "reason": reason, "steps": 1}
        assert (metrics()["pricemesh_clock_steady"], metrics()["pricemesh_clock_steps_total"]) == (0, 1)

    run(tmp_path, story)


def test_a_jump_that_is_over_before_the_next_look_is_noticed_by_a_decision(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        city.clocks.wall -= HOUR
        await city.decide(1)  # dated an hour ago
        city.clocks.wall += HOUR
        assert not city.pricing.clock.read().is_steady
        assert await city.pricing.close_window() == 0

    run(tmp_path, story)


def test_no_two_decisions_share_an_id_under_a_clock_that_goes_back(tmp_path: Path) -> None:
    async def story(city: City) -> None:
        for _ in range(50):
            city.clocks.wall = NOON  # the same instant, again and again
            ids.extend(await city.decide(2))
            city.clocks.wall -= HOUR
            ids.extend(await city.decide(1))

    ids: list[str] = []
    run(tmp_path, story, story)
    assert len(set(ids)) == len(ids) == 300
