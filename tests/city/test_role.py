"""A replica's role: one call of the lease at a time, also at the end."""

import asyncio
from collections.abc import Callable
from typing import Any

from pricemesh.city.replicas import Role
from pricemesh.runtime import Runtime, cancel_task
from pricemesh.store.lease import Lease


class RecordedLease(Lease):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def hold(self) -> bool:
        self.calls.append("hold")
        return True

    def release(self) -> None:
        self.calls.append("release")


def test_the_lease_is_released_after_the_call_under_way_though_nobody_waits_for_that() -> None:
    lease = RecordedLease()

    async def end_while_it_is_held() -> None:
        is_called, may_end = asyncio.Event(), asyncio.Event()

        async def in_thread(job: Callable[[], Any]) -> Any:
            if job == lease.hold:
                is_called.set()
                await may_end.wait()
            return job()

        role = Role(Runtime(in_thread=lambda job: asyncio.ensure_future(in_thread(job))), lease)

        async def catch_up() -> None: ...

        keeping = asyncio.create_task(role.keep(catch_up))
        await is_called.wait()
        await cancel_task(keeping)
        ending = asyncio.create_task(role.end())
        for _ in range(5):
            await asyncio.sleep(0)  # as far as it gets
        may_end.set()
        await ending

    asyncio.run(end_while_it_is_held())
    assert lease.calls == ["hold", "release"]
