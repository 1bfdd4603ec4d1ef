"""One replica among those of a city: whether it is the publisher, and how far behind the others it is.

The publisher signs letters, calls peers, closes windows and keeps snapshots. A city of one process is always
its own publisher.
"""

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Any

from pricemesh.runtime import Runtime
from pricemesh.store.database import Database
from pricemesh.store.lease import Lease
from pricemesh.store.shared_database import SharedDatabase

SECONDS_BETWEEN_TRIES = 0.25  # to become or stay the publisher

log = logging.getLogger("pricemesh")


class Role:
    """Of this process. Without a lease it is the only one."""

    def __init__(self, runtime: Runtime, lease: Lease | None = None) -> None:
        self._runtime = runtime
        self._lease = lease
        self.is_publisher = lease is None
        self.followed_at = -inf  # monotonic: when this replica last knew all rows

    @property
    def is_replica(self) -> bool:
        return self._lease is not None

    async def keep(self, before: Callable[[], Any]) -> None:
        """Become the publisher when nobody is, for ever. `before` is awaited first: a publisher knows all
        that was published."""
        while True:
            await self.renew(before)
            await asyncio.sleep(SECONDS_BETWEEN_TRIES)

    async def renew(self, before: Callable[[], Any]) -> None:
        if self._lease is None:
            return
        is_held = await self._runtime.in_thread(self._lease.hold)
        if is_held and not self.is_publisher:
            await before()
        if is_held != self.is_publisher:
            text = "this replica is the publisher now" if is_held else "this replica is not the publisher now"
            log.info(text)
        self.is_publisher = is_held

    async def end(self) -> None:
        if self._lease is not None:
            self.is_publisher = False
            await self._runtime.in_thread(self._lease.release)

    def as_dict(self) -> dict[str, Any] | None:
        """What `/state` shows; None for a city of one process."""
        if self._lease is None:
            return None
        behind = self._runtime.monotonic() - self.followed_at
        return {"publisher": self.is_publisher, "behind_seconds": round(behind, 3)}


def role_of(database: Database, runtime: Runtime) -> Role:
    return Role(runtime, database.lease() if isinstance(database, SharedDatabase) else None)
