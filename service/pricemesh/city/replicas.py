"""One replica among those of a city: whether it is the publisher, and how far behind the others it is.

The publisher signs letters, calls peers, closes windows and keeps snapshots. A city of one process is always
its own publisher.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pricemesh.city.following import Look
from pricemesh.city.settings import Settings
from pricemesh.errors import StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store.database import Database, TimeLimits
from pricemesh.store.lease import Lease
from pricemesh.store.shared_database import SharedDatabase

MAX_BEHIND_SECONDS = 1.0  # then a replica refuses traffic until it has looked at what others wrote
SECONDS_BETWEEN_TRIES = 0.25  # to become or stay the publisher

CatchUp = Callable[[], Awaitable[None]]
ConnectDatabase = Callable[[Settings, Runtime], Database]

log = logging.getLogger("pricemesh")


class Role:
    """Of this process. Without a lease it is the only one."""

    def __init__(self, runtime: Runtime, lease: Lease | None = None, look: Look | None = None) -> None:
        self._runtime = runtime
        self._lease = lease
        self.look = look  # at what other replicas wrote; None: there are none
        self._hold: asyncio.Future[Any] | None = None  # the newest call of `Lease.hold`
        self.is_publisher = lease is None
        self.followed_at = runtime.monotonic()  # when this replica last knew all rows

    @property
    def is_replica(self) -> bool:
        return self._lease is not None

    @property
    def is_behind(self) -> bool:
        """Whether others may have changed what is in force without this replica knowing: it was stopped, or
        the database does not answer."""
        return self._lease is not None and self._behind_seconds > MAX_BEHIND_SECONDS

    @property
    def _behind_seconds(self) -> float:
        return self._runtime.monotonic() - self.followed_at

    async def keep(self, catch_up: CatchUp) -> None:
        """Become the publisher when nobody is, for ever."""
        while True:
            try:
                await self.renew(catch_up)
            except StorageUnavailable:
                pass  # the next try tells
            except Exception:
                log.exception("unforeseen, in the choice of a publisher")
            await asyncio.sleep(SECONDS_BETWEEN_TRIES)

    async def renew(self, catch_up: CatchUp) -> None:
        """A publisher knows all that was published, so `catch_up` reads all rows first."""
        if self._lease is None:
            return
        self._hold = asyncio.ensure_future(self._runtime.in_thread(self._lease.hold))
        is_held = await asyncio.shield(self._hold)
        if is_held and not self.is_publisher:
            await catch_up()
        if is_held != self.is_publisher:
            text = "this replica is the publisher now" if is_held else "this replica is not the publisher now"
            log.info(text)
        self.is_publisher = is_held

    async def end(self) -> None:
        if self._lease is not None:
            self.is_publisher = False
            if self._hold is not None:  # it has gone on though nobody waits for it
                await asyncio.wait([self._hold])
            await self._runtime.in_thread(self._lease.release)

    def as_dict(self) -> dict[str, Any] | None:
        """What `/state` shows; None for a city of one process."""
        if self._lease is None:
            return None
        return {"publisher": self.is_publisher, "behind_seconds": round(self._behind_seconds, 3)}


def connect_database(settings: Settings, runtime: Runtime) -> Database:
    storage = settings.database
    limits = TimeLimits(storage.timeout_seconds, storage.read_timeout_seconds)
    kind = SharedDatabase if storage.replicas else Database
    return kind(storage.url, settings.city, runtime, storage.lock_wait_seconds, limits)


def role_of(database: Database, runtime: Runtime) -> Role:
    if isinstance(database, SharedDatabase):
        return Role(runtime, database.lease(), database.follow)
    return Role(runtime)
