"""The file of API keys while a city serves: read again when it changes, and when someone asks for it."""

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path

from pricemesh.errors import WrongConfiguration
from pricemesh.http.keys import Gatekeeper, Key, read_keys
from pricemesh.runtime import Runtime

log = logging.getLogger("pricemesh")

LOOK_SECONDS = 0.5  # a change is in force after two looks, so that a file is not read while it is written

Mark = tuple[int, ...]  # two marks differ where the file has changed


class KeyFile:
    """Keeps a gatekeeper's keys as their file has them. A file that cannot be read changes nothing."""

    def __init__(self, path: Path, gatekeeper: Gatekeeper, runtime: Runtime) -> None:
        self._path = path
        self._gatekeeper = gatekeeper
        self._in_thread = runtime.in_thread
        self._reload_request = asyncio.Event()
        self._latest_mark: Mark | None = None
        self._read_mark: Mark | None = None  # of the file that was read last
        self.fault: str | None = None  # why the keys in force are not those of the file

    @property
    def key_count(self) -> int:
        """How many are in force."""
        return len(self._gatekeeper.keys or ())

    def request_reload(self) -> None:
        """Read the file soon, whether it has changed or not."""
        self._reload_request.set()

    async def watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._reload_request.wait()
            try:
                await self.look()
            except Exception:  # the next look may succeed
                log.exception("unforeseen, in the file of API keys")

    async def look(self) -> None:
        """Read the file if it was asked for, or if it has changed and now rests."""
        is_requested = self._reload_request.is_set()
        self._reload_request.clear()
        mark: Mark = await self._in_thread(_mark, self._path)
        is_at_rest, self._latest_mark = mark == self._latest_mark, mark
        if is_requested or (is_at_rest and mark != self._read_mark):
            await self._reload(is_requested=is_requested)
            self._read_mark = mark  # of before it was read: a change since then is seen at the next look

    async def _reload(self, *, is_requested: bool) -> None:
        try:
            keys: dict[str, Key] = await self._in_thread(read_keys, self._path)
        except WrongConfiguration as error:
            (fault,) = error.faults
            if is_requested or fault != self.fault:
                log.error(
                    "the API keys could not be read again; those from before stay in force",
                    extra={"fault": fault, "keys": self.key_count},
                )
            self.fault = fault
            return
        has_news = keys != self._gatekeeper.keys or self.fault is not None
        self._gatekeeper.keys = keys
        self.fault = None
        if has_news or is_requested:
            level = logging.INFO if keys else logging.WARNING
            log.log(level, "API keys were read again; these are in force", extra={"keys": len(keys)})


def _mark(path: Path) -> Mark:
    try:
        status = os.stat(path)
    except OSError as fault:
        return (fault.errno or 0,)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
