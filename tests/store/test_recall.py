"""What decisions with a subject depend on is read by index, in two statements for any number of them."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from pricemesh.core.decision import Decision
from pricemesh.errors import StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store.commands import SaveDecisions
from pricemesh.store.database import Database, Recall
from pricemesh.store.migration import migrate
from tests.postgres import Postgres
from tests.store.rows import decision, opened_at

ODD_NAMES = ['"quoted"', "back\\slash", "{braces,}", "über", "日本", "it's", "NULL", "a b", "😀"]


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = opened_at(database_url, Runtime())
    yield database
    database.close()


def commit(database: Database, rows: list[Decision]) -> None:
    database.commit([SaveDecisions(rows)])


def test_recall_finds_decisions_by_id_and_each_subjects_last_price(database: Database) -> None:
    rows = [
        decision("a", "ann", 8.0),
        decision("b", "bob", 9.0),
        decision("c", "ann", 10.0),
        decision("d", None, 12.0),
    ]
    commit(database, rows)
    recalled = database.recall(["a", "d", "missing"], ["ann", "bob", "carol"])
    assert recalled == Recall({"a": rows[0], "d": rows[3]}, {"ann": 10.0, "bob": 9.0})
    commit(database, [decision("e", "bob", 8.0)])
    assert database.recall([], ["bob"]) == Recall({}, {"bob": 8.0})
    assert database.recall(["e"], []).decisions.keys() == {"e"}
    assert database.recall([], []) == Recall({}, {})


def test_a_price_is_the_last_by_number_not_by_time(database: Database) -> None:
    late, early = decision("late", "ann", 8.0), decision("early", "ann", 9.0)
    late = late._replace(occasion=late.occasion._replace(made_at=100.0))
    commit(database, [late, early])
    assert database.recall([], ["ann"]).latest_prices == {"ann": 9.0}


def test_names_of_any_characters_are_recalled(database: Database) -> None:
    commit(database, [decision(f"id {name}", name, float(i)) for i, name in enumerate(ODD_NAMES)])
    recalled = database.recall([f"id {name}" for name in ODD_NAMES], ODD_NAMES)
    assert recalled.latest_prices == {name: float(i) for i, name in enumerate(ODD_NAMES)}
    assert recalled.decisions.keys() == {f"id {name}" for name in ODD_NAMES}


def test_thousands_are_recalled_in_two_statements_by_index(database: Database) -> None:
    rows = [decision(f"d{i}", f"s{i % 3000}", float(i)) for i in range(6000)]
    for start in range(0, len(rows), 2000):
        commit(database, rows[start : start + 2000])
    engine = database.reader._backend.engine
    statements: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        statements.append((statement, parameters))

    sa.event.listen(engine, "before_cursor_execute", note)
    ids, subjects = [f"d{i}" for i in range(0, 7000, 2)], [f"s{i}" for i in range(4000)]
    recalled = database.recall(ids, subjects)
    sa.event.remove(engine, "before_cursor_execute", note)
    assert len(recalled.decisions) == 3000
    assert recalled.latest_prices == {f"s{i}": float(3000 + i) for i in range(3000)}
    assert len(statements) == 2
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        plans = [
            "\n".join(str(tuple(row)) for row in connection.exec_driver_sql(f"{explain} {query}", values))
            for query, values in statements
        ]
    for plan, index in zip(plans, ("decisions_id", "decisions_subject"), strict=True):
        assert index in plan, plan
        assert "SCAN decisions" not in plan, plan
        assert "Seq Scan on decisions" not in plan, plan


def test_a_fault_becomes_storage_unavailable_and_passes(database: Database, database_url: str) -> None:
    commit(database, [decision("a", "ann", 8.0)])
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE decisions RENAME TO elsewhere")
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        database.recall(["a"], ["ann"])
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO decisions")
    engine.dispose()
    assert database.recall(["a"], ["ann"]).latest_prices == {"ann": 8.0}
    commit(database, [decision("b", "ann", 9.0)])
    assert database.recall(["b"], ["ann"]).latest_prices == {"ann": 9.0}


def test_a_connection_that_was_dropped_is_made_anew(postgres: Postgres) -> None:
    url = postgres.new_database(f"recall{time.time_ns()}")
    migrate(url, "head", "lisbon")
    database = opened_at(url)
    commit(database, [decision("a", "ann", 8.0)])
    postgres.end_connections()
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        database.recall(["a"], ["ann"])
    assert database.recall(["a"], ["ann"]).latest_prices == {"ann": 8.0}
    database.close()
