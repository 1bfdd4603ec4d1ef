"""Threads on the virtual loop: jobs that can wait in the middle while everything else goes on.

A job runs as a greenlet. One that belongs to a killed process never goes on.
"""

from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from greenlet import getcurrent, greenlet

from pricemesh.lab.torture.virtual_loop import PROCESS, Process, VirtualLoop

OnEnd = Callable[[Any, Exception | None], None]


class Wake:
    """Lets a thread go on, once: with a value, or with a fault that is raised there. To be called by a
    callback of the loop."""

    def __init__(self, thread: "Thread") -> None:
        self._thread = thread
        self.is_used = False

    def __call__(self, value: Any = None, fault: Exception | None = None) -> None:
        if not self.is_used:
            self.is_used = True
            self._thread.resume(value, fault)


class Thread:
    def __init__(self, job: Callable[[], Any], on_end: OnEnd) -> None:
        self._job = job
        self._on_end = on_end
        self._greenlet = greenlet(self._run)
        self._greenlet.gr_context = copy_context()
        self._greenlet.thread = self
        process = PROCESS.get()
        self._waiting = process.threads if process is not None else None

    def start(self) -> None:
        """Run until the job ends or waits."""
        self._greenlet.switch()

    def end(self) -> None:
        """Unwind a job that waits."""
        self._greenlet.throw()

    def resume(self, value: Any, fault: Exception | None) -> None:
        self._greenlet.switch((value, fault))

    def _run(self) -> None:
        result, fault = None, None
        try:
            result = self._job()
        except Exception as raised:
            fault = raised
        self._on_end(result, fault)

    def wait(self, arrange: Callable[[Wake], object]) -> Any:
        """Give way until the `Wake` that `arrange` gets is called."""
        wake = Wake(self)
        arrange(wake)
        if self._waiting is not None:
            self._waiting.add(self)
        value, fault = self._greenlet.parent.switch()
        if self._waiting is not None:
            self._waiting.discard(self)
        if fault is not None:
            raise fault
        return value


def current_thread() -> Thread | None:
    """None in a callback of the loop."""
    return getattr(getcurrent(), "thread", None)


def sleep(loop: VirtualLoop, seconds: float) -> None:
    """Of the current thread."""
    thread = current_thread()
    assert thread is not None
    thread.wait(lambda wake: loop.call_later(seconds, wake))


def obey_signal(process: Process, loop: VirtualLoop) -> None:
    """Before a statement: a process may be killed or stopped just there."""
    if process.at_statement is not None:
        process.at_statement()
    if process.is_alive and not process.is_stopped:
        return
    thread = current_thread()
    assert thread is not None
    thread.wait(lambda wake: loop.call_soon(wake, context=process.context))
