"""A city's database in the hands of a command: the city is stopped, and nobody else writes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from pricemesh.errors import NotStarted, SchemaOutdated, StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store import schema
from pricemesh.store.database import Database
from pricemesh.store.faults import reason
from pricemesh.store.startup import check_description
from pricemesh.store.tables import city


class OwnedDatabase(Database):
    @property
    def connection(self) -> Connection:
        """The one that owns the database, while it is used `alone`."""
        assert self._connection is not None
        return self._connection

    def insert(self, table: str, common: dict[str, Any], columns: Mapping[str, Sequence[Any]]) -> None:
        """Many rows in the transaction of `connection`: `common` is what all have, `columns` what differs."""
        self._backend.insert(self.connection, table, common, columns)

    @contextmanager
    def alone(self, description: dict[str, Any] | None = None) -> Iterator[Connection]:
        """The connection that owns the database, with tables of this version and a city in them. With a
        description the city must have been made for it, or is made for it now."""
        with self._starting():
            connection = self._own_patiently()
            self._check_schema(connection)
            self._backend.limit(connection, None)  # a large table takes its time
            with connection.begin():
                if description is not None:
                    check_description(connection, self._city, description)
                self.check_city(connection)
            yield connection

    def check_city(self, connection: Connection) -> None:
        name = connection.scalar(select(city.c.name))
        if name is None:
            raise NotStarted("no city has used this database yet: there is nothing to change")
        if name != self._city:
            raise NotStarted(f"this database belongs to the city {name}, not to {self._city}")

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """A connection that reads at one moment, also while the city serves."""
        try:
            with self._backend.engine.connect() as connection:
                self._backend.limit(connection, None)
                with self._backend.snapshot(connection):
                    if not schema.is_usable(connection):
                        raise SchemaOutdated(
                            "the database has the schema of another version of pricemesh: run "
                            "`pricemesh migrate` first"
                        )
                    yield connection
        except SQLAlchemyError as fault:
            raise StorageUnavailable(f"the database cannot be read: {reason(fault)}") from None


@contextmanager
def owning_database(
    url: str,
    city_name: str,
    runtime: Runtime | None = None,
    lock_wait_seconds: float = 0.0,
    description: dict[str, Any] | None = None,
) -> Iterator[OwnedDatabase]:
    """Nothing that the caller does outside a transaction of its connection is in the database."""
    database = OwnedDatabase(url, city_name, runtime or Runtime(), lock_wait_seconds)
    try:
        with database.alone(description):
            yield database
    finally:
        database.close()


@contextmanager
def owning(
    url: str, city_name: str, runtime: Runtime | None = None, lock_wait_seconds: float = 0.0
) -> Iterator[Connection]:
    """As `owning_database`, for callers that need its connection alone."""
    with owning_database(url, city_name, runtime, lock_wait_seconds) as database:
        yield database.connection
