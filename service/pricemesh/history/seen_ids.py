"""Which decision ids a file has had so far. On the disk, because a file may have any number of them."""

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import suppress

KEYS_PER_QUERY = 500
CACHE_KIB = 16_384


class SeenIds:
    """`add` says which ids came before, and in which line."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None)  # a file that SQLite deletes at the end
        for statement in (
            "PRAGMA journal_mode=OFF",
            "PRAGMA synchronous=OFF",
            f"PRAGMA cache_size=-{CACHE_KIB}",
            "CREATE TABLE ids (key BLOB PRIMARY KEY, line INTEGER NOT NULL) WITHOUT ROWID",
        ):
            self._connection.execute(statement).fetchall()

    def add(self, ids: Sequence[str], lines: Sequence[int]) -> dict[int, int]:
        """For each place in `ids` whose id came before: the line of the first."""
        keys = [hashlib.blake2b(id_.encode(), digest_size=16).digest() for id_ in ids]
        self._connection.execute("BEGIN")
        done = self._connection.executemany(
            "INSERT OR IGNORE INTO ids VALUES (?, ?)", zip(keys, lines, strict=True)
        )
        self._connection.execute("COMMIT")
        if done.rowcount == len(keys):
            return {}
        first = self._lines_of(keys)
        return {
            place: first[key]
            for place, (key, line) in enumerate(zip(keys, lines, strict=True))
            if first[key] != line
        }

    def _lines_of(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for start in range(0, len(keys), KEYS_PER_QUERY):
            several = keys[start : start + KEYS_PER_QUERY]
            marks = ", ".join("?" * len(several))
            found |= self._connection.execute(f"SELECT key, line FROM ids WHERE key IN ({marks})", several)
        return found

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
