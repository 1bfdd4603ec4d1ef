"""Pages of decisions: a filter that few decisions pass does not read all of them."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from pricemesh.city.reading import MAX_READS, ReadLane
from pricemesh.core.decision import Occasion
from pricemesh.errors import Overloaded
from pricemesh.runtime import Runtime
from pricemesh.store import reads
from pricemesh.store.commands import SaveDecisions
from pricemesh.store.database import Database
from tests.store.rows import decision, opened_at

ROWS = 3000


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A decision a second; every thousandth is at another price."""
    database = opened_at(database_url)
    rows = [
        decision(f"d{i}", price=8.0 if i % 1000 else 9.0)._replace(occasion=Occasion(float(i), "netpool", 0))
        for i in range(1, ROWS + 1)
    ]
    database.commit([SaveDecisions(rows)])
    yield database
    database.close()


def all_pages(database: Database, **filters: Any) -> tuple[list[str], int]:
    """The ids on all pages, and how many pages there are."""
    ids: list[str] = []
    before, pages = None, 0
    while True:
        page = database.reader.page(before=before, **filters)
        ids += [row.decision.id for row in page.rows]
        pages += 1
        if page.next_before is None:
            return ids, pages
        assert before is None or page.next_before < before
        before = page.next_before


def test_pages_find_every_match_whatever_they_may_look_at(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[dict[str, Any]] = [
        {"price": 9.0},
        {"since": 2990.0},
        {"until": 5.0},
        {"since": 10.0, "until": 12.0},
    ]
    expected = [[3000, 2000, 1000], range(3000, 2989, -1), range(4, 0, -1), [11, 10]]
    for most, pages in ((50_000, [1, 1, 1, 1]), (500, [6, 1, 6, 6])):
        monkeypatch.setattr(reads, "MAX_SCANNED_ROWS", most)
        for filters, numbers, count in zip(cases, expected, pages, strict=True):
            assert all_pages(database, limit=50, **filters) == ([f"d{i}" for i in numbers], count)


def test_a_page_without_a_match_says_where_to_go_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MAX_SCANNED_ROWS", 500)
    assert database.reader.page(limit=5, until=5.0) == ([], ROWS + 1 - 500)
    assert database.reader.page(limit=5, since=float(ROWS + 1)) == ([], None)


def test_no_filter_scans_the_table(database: Database) -> None:
    engine = database.reader._backend.engine
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    page = "PRIMARY KEY (rowid>? AND rowid<?)" if engine.dialect.name == "sqlite" else "decisions_pkey"
    queries = [
        (reads.page_query(50, 2000, 1000, 9.0, 10.0, 20.0), page),
        (reads.page_query(50, 2000, 1000, None, 10.0, None), page),
        (reads.older_query(1000, 10.0, None), "decisions_made_at"),
        (reads.older_query(1000, None, 10.0), "decisions_made_at"),
        (reads.older_query(1000, None, None), "decisions_made_at"),
    ]
    with engine.connect() as connection:
        for query, index in queries:
            text = str(query.compile(engine, compile_kwargs={"literal_binds": True}))
            plan = "\n".join(str(tuple(row)) for row in connection.execute(sa.text(f"{explain} {text}")))
            assert index in plan, plan
            assert "Seq Scan on decisions" not in plan, plan
            assert "TEMP B-TREE" not in plan, plan


class HeldPool:
    """Runs nothing until it is told to."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[Any]] = []

    def run(self, job: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":  # noqa: ARG002
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    async def close(self) -> None: ...


def test_more_long_reads_than_may_wait_are_refused_until_one_has_ended() -> None:
    async def story() -> None:
        pool = HeldPool()
        lane = ReadLane(Runtime(pool=lambda _name, _count: pool), "long reads", 2, max_seconds=60.0)
        tasks = [asyncio.ensure_future(lane.run(list)) for _ in range(MAX_READS)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="long reads"):
            await lane.run(list)
        tasks[0].cancel()  # its thread is still busy
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await lane.run(list)
        pool.futures[0].set_result([])
        await asyncio.sleep(0)
        tasks.append(asyncio.ensure_future(lane.run(list)))
        await asyncio.sleep(0)
        for future in pool.futures[1:]:
            future.set_result([])
        assert await asyncio.gather(*tasks[1:]) == [[]] * MAX_READS

    asyncio.run(story())
