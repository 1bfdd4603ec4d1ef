"""The database of a city whose replicas serve, taken from them for a moment.

Each replica has a lock that it shares with the others, in the session by which it writes. Ending these
sessions frees it. A replica that connects again meanwhile is refused; one that connects later finds the
city's new terms, and ends.
"""

from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from pricemesh.errors import StorageCause
from pricemesh.store.advisory_locks import end_sessions, in_use, lock_key
from pricemesh.store.backend import Backend
from pricemesh.store.causes import cause_of
from pricemesh.store.maintenance import OwnedDatabase
from pricemesh.store.postgres import LOCK, Postgres, configure

MAX_TRIES = 5
TRY_MILLISECONDS = 1000


class _TakingPostgres(Postgres):
    def _lock(self, connection: Connection, city: str) -> None:
        """While this session waits for the lock, the server gives it to no replica, also not shared. Only one
        that connects between the two statements makes another try necessary."""
        key = lock_key(f"pricemesh:{city}")
        configure(connection, {"lock_timeout": TRY_MILLISECONDS})
        connection.commit()
        for _ in range(MAX_TRIES):
            end_sessions(connection, key)
            try:
                connection.execute(LOCK, {"key": key})
                return
            except DBAPIError as fault:
                if cause_of(fault) != StorageCause.TIMEOUT:
                    raise
                connection.rollback()
        raise in_use(connection, city, key)


class TakenDatabase(OwnedDatabase):
    def _backend_of(self, url: str) -> Backend:
        parts = make_url(url)
        if parts.get_backend_name() == "sqlite":  # has no replicas
            return super()._backend_of(url)
        return _TakingPostgres(parts, self._limits)
