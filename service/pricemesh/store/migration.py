"""Moves the schema of a database, as `pricemesh migrate` does."""

from pricemesh.runtime import Runtime
from pricemesh.store.database import Database
from pricemesh.store.shared_database import SharedDatabase


def migrate(
    url: str,
    revision: str,
    city: str,
    runtime: Runtime | None = None,
    lock_wait_seconds: float = 0.0,
    *,
    replicas: bool = False,
) -> tuple[str | None, str | None]:
    """Move the schema of a city's database up or down to a revision, unless the city is being served; with
    `replicas` up to the newest one, while other replicas serve it. Returns the revisions before and after."""
    kind = SharedDatabase if replicas and revision == "head" else Database
    database = kind(url, city, runtime or Runtime(), lock_wait_seconds)
    try:
        return database.migrate(revision)
    finally:
        database.close()
