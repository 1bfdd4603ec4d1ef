"""Reads a city's database without owning it: beside the process that serves the city, or while none does."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from pricemesh.errors import NotStarted, SchemaOutdated
from pricemesh.store import schema
from pricemesh.store.backend import Backend, TimeLimits
from pricemesh.store.postgres import Postgres
from pricemesh.store.reads import Reader
from pricemesh.store.sqlite import Sqlite
from pricemesh.store.startup import check_description_of_reader, refuse_damaged_values


def sqlite_path(url: str) -> Path | None:
    """The file that a URL names, which has to exist; None for Postgres."""
    parts = make_url(url)
    if parts.get_backend_name() != "sqlite":
        return None
    path = Path(str(parts.database))
    if not path.is_file():
        raise NotStarted(f"there is no database {path}: name the city's file in database.url")
    return path


@contextmanager
def reader_beside(
    url: str, city: str, description: dict[str, Any], limits: TimeLimits | None = None
) -> Iterator[Reader]:
    """A reader of a database that was made for this city and this configuration."""
    backend: Backend
    if sqlite_path(url) is not None:
        backend = Sqlite(make_url(url), limits or TimeLimits())
        event.listen(backend.engine, "connect", _refuse_writes)
    else:
        backend = Postgres(make_url(url), limits or TimeLimits())
    try:
        _check(backend, city, description)
        yield Reader(backend)
    finally:
        backend.engine.dispose()


def _check(backend: Backend, city: str, description: dict[str, Any]) -> None:
    try:
        with refuse_damaged_values(), backend.engine.connect() as connection:
            if not schema.is_usable(connection):
                current, target = schema.revisions(connection)
                raise SchemaOutdated(
                    f"the database is at revision {current or 'none'}, not {target}: run `pricemesh "
                    "migrate`, or use the version of pricemesh that serves this city"
                )
            check_description_of_reader(connection, city, description)
    except SQLAlchemyError as fault:
        raise backend.start_fault(fault) from None


def _refuse_writes(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA query_only=ON").close()
