"""Databases and rows for tests that need no city."""

from pathlib import Path

from pricemesh.core.decision import Decision, Occasion
from pricemesh.runtime import Runtime
from pricemesh.store.commands import SaveDecisions
from pricemesh.store.database import Database
from tests.running import settings_for


def decision(id_: str, subject: str | None = None, price: float = 8.0) -> Decision:
    return Decision(id_, subject, 0, price, "[]", bytes(8 * 15), 1.0, None, Occasion(1.0, "netpool", 0))


def save(*ids: str) -> list[SaveDecisions]:
    return [SaveDecisions([decision(id_) for id_ in ids])]


def opened(path: Path, runtime: Runtime | None = None) -> Database:
    """A SQLite database."""
    return opened_at(f"sqlite:///{path}", runtime)


def opened_at(url: str, runtime: Runtime | None = None) -> Database:
    """A database that has nothing to learn."""
    database = Database(url, "lisbon", runtime or Runtime())
    database.open(settings_for(url).schema_description)
    assert list(database.lessons(0)) == []
    return database
