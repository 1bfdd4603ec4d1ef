"""Where people are spoken to: notes and progress go to standard error, results to standard output."""

import asyncio
import gc
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from service.errors import InvalidParameter

notes = Console(stderr=True)
Result = TypeVar("Result")


def results(*, stderr: bool) -> Console:
    """Where a table goes; one that is not a terminal is as wide as the table."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=200)


def round_progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} rounds"),
        TimeRemainingColumn(),
        console=notes,
        transient=True,
        disable=not notes.is_terminal,
    )


def run_quickly(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end on the fastest event loop there is, undisturbed by the garbage collector's long looks:
    its pauses would pass for the service's."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def check_writable(path: str) -> None:
    """Before a long run: that its results will find a place."""
    if path != "-" and (not Path(path).resolve().parent.is_dir() or Path(path).is_dir()):
        raise InvalidParameter(f"cannot write {path}: there is no such folder, or it is one")


@contextmanager
def output(path: str) -> Iterator[TextIO]:
    if path == "-":
        yield sys.stdout
        return
    try:
        with Path(path).open("w", encoding="utf-8") as stream:
            yield stream
    except OSError as fault:
        raise InvalidParameter(f"cannot write {path}: {fault.strerror}") from None
