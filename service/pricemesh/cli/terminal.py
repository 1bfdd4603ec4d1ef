"""Where people are spoken to: notes and progress go to standard error, results to standard output."""

import asyncio
import gc
import os
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pricemesh.errors import InvalidParameter

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


def check_writable(*paths: str | Path | None) -> None:
    """Before a long run: that its results will find a place, each its own."""
    taken: set[Path] = set()
    for path in paths:
        if path is None:
            continue
        if str(path) == "-":
            place = Path("-")
        else:
            place = Path(path).resolve()
            if not place.parent.is_dir() or place.is_dir() or not os.access(place.parent, os.W_OK):
                raise InvalidParameter(
                    f"cannot write {path}: no such folder, or one that may not be written to"
                )
        if place in taken:
            raise InvalidParameter(f"two results cannot both be written to {path}")
        taken.add(place)


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
