"""The database of a city that is stopped, for work beside which it may not serve. Each is one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

from pricemesh.store.acts import Act, ActKind, record_act
from pricemesh.store.forgetting import count_decisions, forget_subject
from pricemesh.store.maintenance import OwnedDatabase
from pricemesh.store.outside import sqlite_path
from pricemesh.store.pruning import Age, PrunePlan, PruneTransaction, plan_prune
from pricemesh.store.startup import check_description


class StoppedDatabase(OwnedDatabase):
    """Owned alone, also where the city has replicas."""

    def __init__(self, url: str, *arguments: Any) -> None:
        sqlite_path(url)
        super().__init__(url, *arguments)

    def claim(self) -> None:
        """Own the database from now on, or say at once that another process does."""
        with self.alone():
            pass

    @contextmanager
    def prune(self, description: dict[str, Any], age: Age) -> Iterator[PruneTransaction]:
        """Everything happens when this ends, or nothing does."""
        with self._transaction(description) as connection:
            yield PruneTransaction(connection, age, self._runtime)

    def plan_prune(self, age: Age) -> PrunePlan:
        """Also while the city serves."""
        with self.look() as connection:
            return plan_prune(connection, age)

    def forget(self, description: dict[str, Any], subject: str) -> int:
        """Remove a subject from all its decisions. Returns from how many."""
        with self._transaction(description) as connection:
            count = forget_subject(connection, subject)
            if count:
                act = Act(self._runtime.clock(), ActKind.FORGET, detail={"decisions": count})
                record_act(connection, act)
            return count

    def count_decisions(self, subject: str) -> int:
        """Also while the city serves."""
        with self.look() as connection:
            return count_decisions(connection, subject)

    @contextmanager
    def _transaction(self, description: dict[str, Any]) -> Iterator[Connection]:
        with self.alone() as connection:
            self._overwrite_what_is_deleted(connection)
            with connection.begin():
                check_description(connection, self._city, description)
                yield connection

    def _overwrite_what_is_deleted(self, connection: Connection) -> None:
        """SQLite would leave it in free pages of the file; Postgres removes it by its own vacuum."""
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA secure_delete=ON").close()
            connection.rollback()

    def vacuum(self) -> None:
        """Give the space of rows that left back to the file system. Postgres uses it for new rows by
        itself."""
        with self.alone() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("VACUUM").close()
                connection.rollback()
