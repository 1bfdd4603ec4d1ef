"""The database of a city that is stopped, for work that no city may serve beside: in one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from pricemesh.errors import NotStarted, StorageUnavailable
from pricemesh.store.database import Database
from pricemesh.store.faults import reason
from pricemesh.store.pruning import Age, PrunePlan, PruneTransaction, plan_prune
from pricemesh.store.startup import check_description


class StoppedDatabase(Database):
    """Owned alone, also where the city has replicas."""

    def __init__(self, url: str, *arguments: Any) -> None:
        parts = make_url(url)
        if parts.get_backend_name() == "sqlite" and not Path(str(parts.database)).is_file():
            raise NotStarted(f"there is no database {parts.database}: check database.url")
        super().__init__(url, *arguments)

    @contextmanager
    def prune(self, description: dict[str, Any], age: Age) -> Iterator[PruneTransaction]:
        """Everything happens when this ends, or nothing does."""
        with self._starting():
            connection = self._own_patiently()
            self._check_schema(connection)
            self._backend.limit(connection, None)
            with connection.begin():
                check_description(connection, self._city, description)
                yield PruneTransaction(connection, age, self._runtime)

    def plan_prune(self, age: Age) -> PrunePlan:
        """Also while the city serves."""
        with self._look() as connection:
            return plan_prune(connection, age)

    @contextmanager
    def _look(self) -> Iterator[Connection]:
        """Read at one moment."""
        try:
            with self._backend.engine.connect() as connection:
                self._backend.limit(connection, None)
                with self._backend.snapshot(connection):
                    yield connection
        except SQLAlchemyError as fault:
            raise StorageUnavailable(f"the database cannot be read: {reason(fault)}") from None

    def vacuum(self) -> None:
        """Give the space of rows that left back to the file system. Postgres uses it for new rows by
        itself."""
        with self._starting():
            connection = self._own_patiently()
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("VACUUM").close()
                connection.rollback()
