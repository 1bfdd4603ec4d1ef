"""Virtual time, and processes that die without unwinding."""

import asyncio
from collections.abc import Iterator

import pytest

from pricemesh.lab.torture.virtual_loop import TICK_SECONDS, Deadlock, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    virtual = VirtualLoop()
    yield virtual
    virtual.close()


def test_time_passes_only_from_timer_to_timer(loop: VirtualLoop) -> None:
    moments: list[float] = []

    async def sleep_twice() -> None:
        await asyncio.sleep(3600.0)
        moments.append(loop.time())
        async with asyncio.timeout(5.0):
            await asyncio.sleep(1.0)
        moments.append(loop.time())

    task = loop.create_task(sleep_twice())
    assert loop.run_until(10_000.0, task.done)
    assert moments == pytest.approx([3600.0, 3601.0], abs=10 * TICK_SECONDS)


def test_a_killed_process_runs_nothing_more_and_others_go_on(loop: VirtualLoop) -> None:
    events: list[str] = []

    async def live(name: str) -> None:
        try:
            while True:
                await asyncio.sleep(1.0)
                events.append(name)
        finally:
            events.append(f"{name} unwound")

    processes = [loop.process(name) for name in ("one", "other")]
    for process in processes:
        loop.call_soon(lambda name: loop.create_task(live(name)), process.name, context=process.context)
    loop.run_until(1.5)
    processes[0].kill()
    loop.run_until(3.5)
    assert events == ["one", "other", "other", "other"]


def test_callbacks_without_end_are_an_error(loop: VirtualLoop) -> None:
    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(Deadlock):
        loop.run_until(1.0)


def test_an_exception_in_a_callback_is_recorded_with_its_process(loop: VirtualLoop) -> None:
    process = loop.process("lisbon")
    loop.call_soon(lambda: 1 / 0, context=process.context)
    loop.run_until(1.0)
    ((name, context),) = loop.faults
    assert name == "lisbon"
    assert isinstance(context["exception"], ZeroDivisionError)
