"""Moves the schema of a database, as `pricemesh migrate` does."""

from pricemesh.runtime import Runtime
from pricemesh.store.database import Database


def migrate(
    url: str,
    revision: str,
    city: str,
    runtime: Runtime | None = None,
    lock_wait_seconds: float = 0.0,
) -> tuple[str | None, str | None]:
    """Move the schema of a city's database up or down to a revision, unless the city is being served. Returns
    the revisions before and after."""
    database = Database(url, city, runtime or Runtime(), lock_wait_seconds)
    try:
        return database.migrate(revision)
    finally:
        database.close()
