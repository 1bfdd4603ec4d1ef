"""The one thread that calls the database, as the city's loop sees it: one job at a time, and since when."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from pricemesh.runtime import Runtime

log = logging.getLogger("pricemesh")


class Writer:
    def __init__(self, runtime: Runtime) -> None:
        self._monotonic = runtime.monotonic
        self._worker = runtime.worker("writer")
        self._job: asyncio.Future[Any] | None = None
        self._started_at = 0.0
        self.is_late = False  # those who wait for the job have been answered

    async def run(self, job: Callable[..., Any], *arguments: Any) -> Any:
        """What a job returns, however late."""
        self._started_at = self._monotonic()
        self._job = self._worker.run(job, *arguments)
        try:
            return await self._job
        finally:
            if self.is_late:
                log.warning("the database answers again", extra={"seconds": round(self.busy_seconds, 3)})
            self._job, self.is_late = None, False

    @property
    def is_busy(self) -> bool:
        """A job that is done, while the loop has not got to its result, keeps nobody waiting."""
        return self._job is not None and not self._job.done()

    @property
    def busy_seconds(self) -> float:
        return self._monotonic() - self._started_at

    async def close(self) -> None:
        await self._worker.close()
