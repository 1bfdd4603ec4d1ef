"""Which replica of a city is its publisher: the one whose connection has an advisory lock.

The connection must be used often. When its process is killed the server ends it at once; when the process is
stopped, or cut off, the server ends it after MAX_SILENCE_SECONDS. Then another replica gets the lock.
"""

from contextlib import suppress

import sqlalchemy as sa
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from pricemesh.store.advisory_locks import lock_key

MAX_SILENCE_SECONDS = 1.5
_TRY_LOCK = sa.text("SELECT pg_try_advisory_lock(:key)")
_STILL_THERE = sa.text("SELECT 1")
_LIMIT = sa.text(f"SELECT set_config('idle_session_timeout', '{round(1000 * MAX_SILENCE_SECONDS)}', false)")


class Lease:
    """Called from threads, one at a time."""

    def __init__(self, engine: Engine, city: str) -> None:
        self._engine = engine
        self._key = lock_key(f"pricemesh:{city}:publisher")
        self._connection: Connection | None = None
        self._is_held = False

    def hold(self) -> bool:
        """Take the lock or keep it; False while another replica has it, or the database cannot be asked."""
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
                self._connection.execute(_LIMIT)
            if self._is_held:
                self._connection.execute(_STILL_THERE)
            else:
                self._is_held = bool(self._connection.scalar(_TRY_LOCK, {"key": self._key}))
            self._connection.commit()
        except SQLAlchemyError:
            self.release()
        return self._is_held

    def release(self) -> None:
        """The server gives the lock back when the connection has ended."""
        self._is_held = False
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.invalidate()
                connection.close()
