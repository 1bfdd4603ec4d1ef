"""The advisory locks of a city in Postgres: their keys, and which sessions of replicas share one."""

import hashlib

import sqlalchemy as sa
from sqlalchemy import Connection

from pricemesh.errors import DatabaseInUse, ReplicasServe

_PIDS = """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ShareLock' AND granted
  AND ((classid::BIGINT << 32) | objid::BIGINT) = :key
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_COUNT = sa.text(f"SELECT count(*) FROM ({_PIDS}) AS replicas")
_END = sa.text(f"SELECT count(pg_terminate_backend(pid)) FROM ({_PIDS}) AS replicas")


def lock_key(name: str) -> int:
    """Of an advisory lock."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def in_use(connection: Connection, city: str, key: int) -> DatabaseInUse:
    """Who has the lock that a process needs to be alone."""
    count = connection.scalar(_COUNT, {"key": key}) or 0
    if not count:
        return DatabaseInUse(f"another process already serves {city} from this database: stop it first")
    if count == 1:
        return ReplicasServe(f"a replica serves {city} from this database: stop it first")
    return ReplicasServe(f"{count} replicas serve {city} from this database: stop all of them first")


def end_sessions(connection: Connection, key: int) -> int:
    """A replica loses its lock with its session. What it was committing is committed or rolled back before
    the lock is free. Returns how many there were."""
    ended: int = connection.scalar(_END, {"key": key}) or 0
    return ended
