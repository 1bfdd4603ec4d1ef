"""An event loop without real time, for several processes that run, stop and die independently.

Time passes only when nothing is ready. A callback belongs to the process in whose context it was scheduled;
once that process has been killed, its callbacks are never run, as after `kill -9`; while it is stopped, they
wait until it goes on.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any

TICK_SECONDS = 1e-6  # that pass from timer to timer: no computer calls two at the same moment
MAX_CALLBACKS_AT_ONCE = 200_000  # at one moment: more is an endless loop


class Process:
    """Tasks and callbacks that live and die together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_stopped = False
        self.backlog: list[asyncio.Handle] = []  # what became due since it was stopped
        self.at_statement: Callable[[], None] | None = None  # called before each statement to a server
        self.threads: set[Any] = set()  # those that wait, referred to for the same reason as tasks
        self.tasks: list[asyncio.Task[Any]] = []  # referred to, so that no dead one is collected and unwound
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def kill(self) -> None:
        self.is_alive = self.is_stopped = False
        self.backlog.clear()

    def stop(self) -> None:
        """SIGSTOP."""
        self.is_stopped = self.is_alive


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class Deadlock(Exception):
    """What is waited for can never happen, or the callbacks of one moment never end."""


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._due: deque[tuple[Process | None, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, Process | None, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._processes: list[Process] = []
        self._current: Process | None = None  # whose callback is running
        self.faults: list[tuple[str, dict[str, Any]]] = []  # unhandled, with the name of the process

    def process(self, name: str) -> Process:
        process = Process(name)
        self._processes.append(process)
        return process

    def resume(self, process: Process) -> None:
        """SIGCONT."""
        backlog, process.backlog = process.backlog, []
        process.is_stopped = False
        self._due.extend((process, handle) for handle in backlog)

    # Time

    def time(self) -> float:
        return self._now

    def run_until(self, deadline: float, is_done: Callable[[], bool] = lambda: False) -> bool:
        """Run what is due until a moment, or until something has happened; whether it has."""
        asyncio._set_running_loop(self)
        try:
            while True:
                if self._run_ready(is_done):
                    return True
                if not self._timers or self._timers[0][0] > deadline:
                    self._now = max(self._now, deadline)
                    return False
                when, _, process, handle = heapq.heappop(self._timers)
                self._now = max(self._now + TICK_SECONDS, when)
                self._due.append((process, handle))
        finally:
            asyncio._set_running_loop(None)

    def _run_ready(self, is_done: Callable[[], bool]) -> bool:
        for _ in range(MAX_CALLBACKS_AT_ONCE):
            if is_done():
                return True
            if not self._due:
                return False
            process, handle = self._due.popleft()
            if handle.cancelled() or (process is not None and not process.is_alive):
                continue
            if process is not None and process.is_stopped:
                process.backlog.append(handle)
                continue
            self._current = process
            handle._run()
        raise Deadlock(f"more than {MAX_CALLBACKS_AT_ONCE} callbacks at {self._now}: a loop without end")

    def close(self) -> None:
        """Unwind the coroutines of all processes that were killed; nothing that they do on the way counts."""
        for process in self._processes:
            process.kill()
            for thread in sorted(process.threads, key=id):
                with suppress(Exception):
                    thread.end()
            process.threads.clear()
            for task in process.tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    coroutine = task.get_coro()
                    assert isinstance(coroutine, Coroutine)
                    with suppress(Exception):  # a coroutine that awaits while it is closed
                        process.context.copy().run(coroutine.close)
            process.tasks.clear()
        self._due.clear()
        self._timers.clear()
        super().close()

    # What tasks and futures call

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._due.append((PROCESS.get() if context is None else context.get(PROCESS), handle))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there are no threads

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        process = PROCESS.get() if context is None else context.get(PROCESS)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, process, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + max(0.0, delay), callback, *args, context=context)

    def create_task(
        self, coro: Any, *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(
            coro, loop=self, name=None if name is None else str(name), context=context
        )
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        process = self._current
        if process is None or process.is_alive:
            self.faults.append((process.name if process else "", context))

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...
