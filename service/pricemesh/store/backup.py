"""A copy of a city's SQLite database, made beside the running city by SQLite's own backup, and checked."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from pricemesh.errors import InvalidParameter, NotStarted, StorageUnavailable
from pricemesh.store.outside import sqlite_path

PAGES_PER_STEP = 2_000
BUSY_SECONDS = 10.0  # for a process that has the file locked, as one that is starting


class Backup(NamedTuple):
    source: Path
    size_bytes: int
    decisions: int
    feedback: int


def back_up(
    url: str,
    city: str,
    target: Path,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Backup:
    """Copy the database of the city to a file that does not exist yet, and check the copy. `on_progress` gets
    the pages copied and all pages. The copy is what was committed at one moment."""
    source = sqlite_path(url)
    if source is None:
        raise InvalidParameter("this city is on Postgres: use pg_dump, as docs/backup.md says")
    if target.exists():
        raise InvalidParameter(f"{target} exists: a backup never replaces a file, so name another one")
    with _part_of(target) as part:
        try:
            _copy(source, part, on_progress)
            result = _check(source, part, city)
        except sqlite3.Error as fault:
            raise StorageUnavailable(f"{source} was not backed up: {fault}") from None
        _publish(part, target)
    return result


@contextmanager
def _part_of(target: Path) -> Iterator[Path]:
    """A file beside the target that is gone afterwards. It holds the city's private key: only its owner may
    read it."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield part
    except OSError as fault:
        raise InvalidParameter(f"cannot write {target}: {fault.strerror or fault}") from None
    finally:
        part.unlink(missing_ok=True)


def _copy(source: Path, part: Path, on_progress: Callable[[int, int], None]) -> None:
    with closing(_connection(source)) as old, closing(_connection(part)) as new:
        old.execute("PRAGMA query_only=ON")
        # One read transaction around all steps: otherwise every commit of the city would start them again.
        old.execute("BEGIN")
        old.execute("SELECT 1 FROM sqlite_master").fetchall()

        def report(_status: int, remaining: int, total: int) -> None:
            on_progress(total - remaining, total)

        old.backup(new, pages=PAGES_PER_STEP, progress=report, sleep=0.0)
        new.execute("PRAGMA journal_mode=DELETE").fetchall()  # one file, without a WAL


def _check(source: Path, part: Path, city: str) -> Backup:
    with closing(_connection(part)) as copy:
        (verdict,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise NotStarted(
                f"{source} is damaged ({verdict}): keep earlier backups. `sqlite3 {source} .recover` may "
                "save what can be read"
            )
        tables = {name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        owner = copy.execute("SELECT name FROM city").fetchone() if "city" in tables else None
        if owner is None:
            raise NotStarted(f"{source} is no database that a city has used")
        if owner[0] != city:
            raise NotStarted(
                f"{source} belongs to the city {owner[0]}, not to {city}: give its configuration"
            )
        counts = [
            copy.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("decisions", "feedback")
        ]
    return Backup(source, part.stat().st_size, *counts)


def _publish(part: Path, target: Path) -> None:
    """Give the copy its name once it is on the disk; a file that has this name meanwhile stays."""
    handle = os.open(part, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    try:
        os.link(part, target)
    except FileExistsError:
        raise InvalidParameter(
            f"{target} exists: a backup never replaces a file, so name another one"
        ) from None
    except OSError:  # a file system without links
        os.rename(part, target)


def _connection(path: Path) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
