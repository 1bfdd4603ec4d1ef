"""The machine under a simulated city: its disk, its worker threads and its files.

Jobs run on the virtual loop, one at a time and late, so a city can be killed before a commit, and between a
commit and its answer. The files are real SQLite files; those of a killed city are copied for its successor,
so that nothing the dead one still holds open can reach them.
"""

import asyncio
import shutil
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy.exc import OperationalError

from pricemesh.lab.torture.threads import Thread
from pricemesh.lab.torture.virtual_loop import VirtualLoop
from pricemesh.runtime import Disk, Runtime, settle_future
from pricemesh.store.migration import migrate

MIN_JOB_SECONDS, MAX_JOB_SECONDS = 0.0002, 0.01
MAX_SLOW_JOB_SECONDS = 2.5
FILES = ("city.db", "city.db-wal")


class FaultyDisk(Disk):
    """Full, slow, or failing for some commits."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.is_full = False
        self.is_slow = False
        self.commits_to_refuse = 0  # before anything is written
        self.answers_to_lose = 0  # of commits that do happen

    def seconds(self) -> float:
        """That the next job takes."""
        slowest = MAX_SLOW_JOB_SECONDS if self.is_slow and self._rng.random() < 0.3 else MAX_JOB_SECONDS
        return self._rng.uniform(MIN_JOB_SECONDS, slowest)

    def before_commit(self) -> None:
        if self.is_full:
            raise _fault("database or disk is full")
        if self.commits_to_refuse:
            self.commits_to_refuse -= 1
            raise _fault("disk I/O error")

    def after_commit(self) -> None:
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            raise _fault("disk I/O error")

    def mend(self) -> None:
        self.is_full = self.is_slow = False
        self.commits_to_refuse = self.answers_to_lose = 0


def _fault(text: str) -> OperationalError:
    return OperationalError("COMMIT", None, sqlite3.OperationalError(text))


class VirtualWorker:
    """Jobs one after another. A job is done a while after it was handed over, and known to be done later."""

    def __init__(self, loop: VirtualLoop, disk: FaultyDisk) -> None:
        self._loop = loop
        self._disk = disk
        self._jobs: deque[tuple[Callable[..., Any], tuple[Any, ...], asyncio.Future[Any]]] = deque()

    def run(self, job: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        future = self._loop.create_future()
        self._jobs.append((job, arguments, future))
        if len(self._jobs) == 1:
            self._loop.call_later(self._disk.seconds(), self._work)
        return future

    def _work(self) -> None:
        job, arguments, _ = self._jobs[0]
        Thread(partial(job, *arguments), self._end).start()

    def _end(self, result: Any, fault: Exception | None) -> None:
        self._loop.call_later(self._disk.seconds() / 4, self._settle, result, fault)

    def _settle(self, result: Any, fault: Exception | None) -> None:
        _, _, future = self._jobs.popleft()
        if self._jobs:
            self._loop.call_later(self._disk.seconds(), self._work)
        settle_future(future, result, fault)

    async def close(self) -> None:
        while self._jobs:
            await asyncio.sleep(MAX_JOB_SECONDS)


def virtual_runtime(
    loop: VirtualLoop, disk: FaultyDisk, rng: Random, clock: Callable[[], float], transport: Callable[[], Any]
) -> Runtime:
    async def in_thread(job: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(disk.seconds())
        future = loop.create_future()
        Thread(partial(job, *arguments, **options), partial(settle_future, future)).start()
        return await future

    return Runtime(
        clock=clock,
        monotonic=loop.time,
        sleep=_refuse_to_block,
        rng=rng,
        random_bytes=rng.randbytes,
        in_thread=in_thread,
        worker=lambda _name: VirtualWorker(loop, disk),
        pool=lambda _name, _count: VirtualWorker(loop, disk),
        transport=transport,
        disk=disk,
    )


def _refuse_to_block(seconds: float) -> None:
    raise AssertionError(f"a city would block for {seconds} s: nothing else here can run meanwhile")


# Files


def create_files(folder: Path) -> None:
    """Of a city that was never started."""
    folder.mkdir(parents=True)
    (folder / FILES[0]).write_bytes(_empty_database())


@cache
def _empty_database() -> bytes:
    with TemporaryDirectory(prefix="pricemesh-torture-") as folder:
        path = Path(folder) / FILES[0]
        migrate(f"sqlite:///{path}", "head", "city")
        return path.read_bytes()


def copy_files(source: Path, target: Path) -> None:
    """As they are on the disk now: what `kill -9` leaves behind."""
    target.mkdir(parents=True)
    for name in FILES:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def back_up(source: Path, target: Path) -> None:
    """A consistent copy, also of a city that is running."""
    target.mkdir(parents=True)
    with (
        closing(sqlite3.connect(source / FILES[0])) as original,
        closing(sqlite3.connect(target / FILES[0])) as copy,
    ):
        original.backup(copy)
