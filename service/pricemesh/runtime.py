"""What a city takes from the machine: time, randomness, threads, the network to its peers, the disk.

One `Runtime` is made where the parts meet and handed down. No other module of a city reads a clock, draws a
random number, starts a thread or builds an HTTP client, so that a test or a simulation can own all of it.
"""

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, Protocol

Rng = random.Random


class Reply(NamedTuple):
    """A peer's HTTP response. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """How this city reaches its peers."""

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_seconds: float, max_bytes: int
    ) -> Reply:
        """Raises OSError (ConnectionError, TimeoutError) when there is no complete answer, and ReplyTooLarge
        when the answer has more than `max_bytes`."""
        ...

    async def close(self) -> None: ...


class ReplyTooLarge(OSError):
    """A peer's answer has more bytes than the caller reads."""


class Worker(Protocol):
    """Runs jobs beside the event loop: one after another, or as many at a time as it was made for."""

    def run(self, job: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]": ...

    async def close(self) -> None:
        """Finish the jobs that wait, then end."""
        ...


class Disk:
    """Called around every commit; a simulation raises faults here."""

    def before_commit(self) -> None: ...

    def after_commit(self) -> None: ...


class HttpTransport:
    """The network: one pooled HTTP client, without proxies, redirects or headers of its own."""

    def __init__(self) -> None:
        import httpx  # a city without peers starts faster

        self._timeout = httpx.Timeout
        self._faults = (httpx.HTTPError, httpx.InvalidURL)
        self._http = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=32),
            follow_redirects=False,
            trust_env=False,
        )
        self._http.headers.clear()

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_seconds: float, max_bytes: int
    ) -> Reply:
        timeout = self._timeout(timeout_seconds)
        answer = bytearray()
        try:
            async with self._http.stream(
                "POST", url, content=body, headers=dict(headers), timeout=timeout
            ) as response:
                async for chunk in response.aiter_raw():
                    answer += chunk
                    if len(answer) > max_bytes:
                        raise ReplyTooLarge(f"{url} answers with more than {max_bytes} bytes")
        except self._faults as fault:
            raise ConnectionError(str(fault) or type(fault).__name__) from None
        return Reply(response.status_code, dict(response.headers), bytes(answer))

    async def close(self) -> None:
        await self._http.aclose()


class WorkerThread:
    """A thread that is woken once for a job, and wakes the event loop once; or several that share jobs."""

    def __init__(self, name: str, count: int = 1) -> None:
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        self._threads = [Thread(target=self._work, name=name, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def run(self, job: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._jobs.put((job, arguments, loop, future))
        return future

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, arguments, loop, future = item
            try:
                result = job(*arguments)
            except BaseException as fault:
                loop.call_soon_threadsafe(settle_future, future, None, fault)
            else:
                loop.call_soon_threadsafe(settle_future, future, result, None)

    async def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)


def settle_future(future: "asyncio.Future[Any]", result: Any, fault: BaseException | None) -> None:
    if future.done():  # its waiter was cancelled
        return
    if fault is not None:
        future.set_exception(fault)
    else:
        future.set_result(result)


async def cancel_task(task: "asyncio.Task[Any]") -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@dataclass(frozen=True)
class Runtime:
    """The machine itself, unless a test or a simulation says otherwise."""

    clock: Callable[[], float] = time.time  # Unix seconds; may step
    monotonic: Callable[[], float] = time.perf_counter  # seconds; never steps back
    sleep: Callable[[float], None] = time.sleep  # seconds; blocks, so only for threads
    rng: random.Random = field(default_factory=random.Random)  # for jitter and names, never for secrets
    random_bytes: Callable[[int], bytes] = secrets.token_bytes  # for keys and nonces
    in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread  # short reads and folds, many at a time
    worker: Callable[[str], Worker] = WorkerThread
    pool: Callable[[str, int], Worker] = WorkerThread  # so many jobs at a time
    transport: Callable[[], Transport] = HttpTransport
    disk: Disk = field(default_factory=Disk)
