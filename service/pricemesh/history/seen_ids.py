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
        known = self._lines_of(keys)
        repeated: dict[int, int] = {}
        fresh: list[tuple[bytes, int]] = []
        for place, (key, line) in enumerate(zip(keys, lines, strict=True)):
            if key in known:
                repeated[place] = known[key]
            else:
                known[key] = line
                fresh.append((key, line))
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO ids VALUES (?, ?)", fresh)
        self._connection.execute("COMMIT")
        return repeated

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
