"""How connections to either database are set up."""

from typing import Any

from sqlalchemy import URL, Engine, create_engine, event

# After so many, SQLite moves its log into the database, within a commit. Done seldom, it takes long, and
# callers who ask for one price each wait; done often, it slows batches, whose commits are as large as a short
# log.
SHORT_LOG, LONG_LOG = 400, 4000


def sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url)
    event.listen(engine, "connect", _durable)
    return engine


def _durable(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "busy_timeout=5000",
        "foreign_keys=ON",
        f"wal_autocheckpoint={SHORT_LOG}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def postgres_engine(url: URL) -> Engine:
    import psycopg  # a city on SQLite starts without it

    class BinaryCursor(psycopg.Cursor[Any]):
        """Results come as bytes, not as text to be read: vectors are most of them."""

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.format = psycopg.pq.Format.BINARY

    engine = create_engine(url, pool_pre_ping=True, connect_args={"cursor_factory": BinaryCursor})
    event.listen(engine, "connect", _by_keys)
    return engine


def _by_keys(connection: Any, _record: Any) -> None:
    """All we look up, we look up by a key. A plan that Postgres makes while tables are empty, and keeps, must
    not be to read them whole."""
    for way in ("seqscan", "hashjoin", "mergejoin"):
        connection.execute(f"SET enable_{way} = off")
    connection.commit()
