"""What commands share: notes and progress go to standard error, results to standard output."""

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
    """The console for a table. In a file or a pipe no row is wrapped."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=200)


def open_standard_streams() -> None:
    """Open those that the parent has closed (`2>&-`): the next file that is opened would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def progress_bar(unit: str) -> Progress:
    """On a terminal only; it is gone when the work is done."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} " + unit),
        TimeRemainingColumn(),
        console=notes,
        transient=True,
        disable=not notes.is_terminal,
    )


def run_quickly(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on uvloop where it is installed, with rare garbage collections: their pauses in this
    process would be measured as latency of the cities."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def check_writable(*paths: str | Path | None) -> None:
    """For use before a long run: an error where a result cannot be written, or two go to one file."""
    targets: set[Path] = set()
    for path in paths:
        if path is None:
            continue
        if str(path) == "-":
            target = Path("-")
        else:
            target = Path(path).resolve()
            if not target.parent.is_dir() or target.is_dir() or not os.access(target.parent, os.W_OK):
                raise InvalidParameter(
                    f"cannot write {path}: its folder does not exist, or may not be written to"
                )
        if target in targets:
            raise InvalidParameter(f"two results cannot both be written to {path}")
        targets.add(target)


@contextmanager
def output(path: str) -> Iterator[TextIO]:
    """A file to write to; `-` is standard output."""
    if path == "-":
        yield sys.stdout
        return
    try:
        with Path(path).open("w", encoding="utf-8") as stream:
            yield stream
    except OSError as fault:
        raise InvalidParameter(f"cannot write {path}: {fault.strerror}") from None
