"""Signals before a city serves. Loads nothing, so that they are handled from the first moment on.

While it serves, `server.Server` handles them.
"""

import os
import signal
import sys
from types import FrameType


def has_terminal() -> bool:
    """False also when the terminal has gone since."""
    return sys.stderr is not None and os.isatty(sys.stderr.fileno())


def handle_early_signals() -> None:
    """The first process of a container gets no signal without a handler. SIGHUP would end the process; on a
    terminal it may."""
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, _end)
    if hasattr(signal, "SIGHUP") and not has_terminal():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the keys are about to be read anyway


def _end(_sig: int, _frame: FrameType | None) -> None:
    """A city that stops when it is told to has not failed."""
    raise SystemExit(0)
