"""How Postgres runs this city's statements: what it may do, and how many rows it reads."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from pricemesh.runtime import Runtime
from pricemesh.store.backend import TimeLimits
from pricemesh.store.commands import SaveDecisions, SaveFeedback, Selection
from pricemesh.store.database import Database
from pricemesh.store.postgres import Postgres
from pricemesh.store.retracting import feedback_queries
from pricemesh.store.shared_database import SharedDatabase
from pricemesh.store.shared_postgres import SharedPostgres
from pricemesh.store.tables import decisions, imports
from tests.running import settings_for, until
from tests.store.rows import decision

LOOKS, SIZE = 30, 200
_ROWS_READ = sa.text(
    "SELECT sum(coalesce(idx_tup_fetch, 0) + seq_tup_read) FROM pg_stat_user_tables "
    "WHERE relname IN ('decisions', 'feedback')"
)
_OTHERS = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.mark.parametrize("backend_type", [Postgres, SharedPostgres])
def test_no_connection_lets_the_server_compile_statements(
    postgres_url: str, backend_type: type[Postgres]
) -> None:
    backend = backend_type(make_url(postgres_url), TimeLimits())
    with backend.engine.connect() as connection:
        assert connection.scalar(sa.text("SHOW jit")) == "off"
    backend.release(None)


def replica(url: str) -> SharedDatabase:
    database = SharedDatabase(url, "lisbon", Runtime())
    stored = database.open(settings_for(url).schema_description)
    assert sum(len(change.begun) for change in database.changes_of_pending(stored.position)) == 0
    assert sum(len(lessons) for lessons in database.lessons(stored.position.feedback)) == 0
    return database


def test_a_look_reads_the_new_rows_and_not_all_that_wait(postgres_url: str) -> None:
    """Also once Postgres keeps a plan that is not made for the values of the moment: after ten executions."""
    writer, reader = replica(postgres_url), replica(postgres_url)
    groups = [[f"d{i}-{k}" for k in range(SIZE)] for i in range(LOOKS)]
    for ids in groups:
        writer.commit([SaveDecisions([decision(id_) for id_ in ids])])
        outcome = reader.follow()
        assert outcome is not None
        assert len(outcome.begun) == SIZE
    for i, ids in enumerate(groups):
        writer.commit([SaveFeedback([(ids[0], 1.0)], 2.0, False, 0.0)])
        outcome = reader.follow()
        assert outcome is not None
        assert [lesson.version for lesson in outcome.lessons] == [i + 1]
    for database in (writer, reader):
        database.close()
    assert LOOKS * SIZE <= rows_read(postgres_url) < 2 * LOOKS * SIZE  # each once, and a few more a look


def rows_read(url: str) -> int:
    """By all sessions that have ended; they report at their end."""
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        until(lambda: connection.scalar(_OTHERS) == 0)
        count = int(connection.scalar(_ROWS_READ))
    engine.dispose()
    return count


def of_import(url: str, rows: int, imported: int) -> tuple[Engine, sa.Select[Any]]:
    """A city with many decisions, few of them imported, and the query of feedback that an import brought."""
    database = Database(url, "lisbon", Runtime())
    database.open(settings_for(url).schema_description)
    assert list(database.lessons(0)) == []
    ids = [f"d{i}" for i in range(rows)]
    database.commit([SaveDecisions([decision(id_) for id_ in ids])])
    database.commit([SaveFeedback([(id_, 1.0) for id_ in ids], 2.0, False, 0.0)])
    database.close()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(decisions.update().where(decisions.c.number <= imported).values(import_id=1))
        connection.execute(
            imports.insert().values(
                id=1,
                name="old",
                source="",
                digest="",
                started_at=0.0,
                finished_at=1.0,
                row_count=imported,
                progress="{}",
            )
        )
        queries = feedback_queries(connection, Selection(import_name="old"))
    assert isinstance(queries, list)
    return engine, queries[0]


def test_the_rows_of_an_import_are_found_without_a_look_at_all_decisions_on_sqlite(tmp_path: Path) -> None:
    engine, query = of_import(f"sqlite:///{tmp_path}/city.db", 2_000, 50)
    text = query.compile(engine, compile_kwargs={"literal_binds": True})
    with engine.connect() as connection:
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]
        assert len(connection.execute(query).all()) == 50
    engine.dispose()
    assert any("USING COVERING INDEX decisions_import_id" in step for step in plan), plan
    assert not any(step.startswith("SCAN") for step in plan), plan


def test_the_rows_of_an_import_are_found_without_a_look_at_all_decisions_on_postgres(
    postgres_url: str,
) -> None:
    engine, query = of_import(postgres_url, 2_000, 50)
    engine.dispose()
    before = rows_read(postgres_url)
    backend = Postgres(make_url(postgres_url), TimeLimits())
    with backend.engine.connect() as connection:
        assert len(connection.execute(query).all()) == 50
    backend.release(None)
    assert rows_read(postgres_url) - before <= 4 * 50
