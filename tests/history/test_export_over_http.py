"""`GET /export`: what a caller gets, and what it must not cost others."""

import asyncio
import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from pricemesh.history.extra import DATA_PACKAGES
from pricemesh.http.keys import new_key, write_keys
from pricemesh.http.routes import export as routes
from tests.running import CONTEXT, RunningCity, settings_for

ROWS = 1_200  # more than two pages


@pytest.fixture
def city(tmp_path: Path) -> Iterator[RunningCity]:
    running = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"))
    for start in range(0, ROWS, 400):
        requests = [{**CONTEXT, "decision_id": f"d{start + i}"} for i in range(400)]
        running.http.post("/price/batch", json={"requests": requests}).raise_for_status()
    running.feedback("d0", 0.5).raise_for_status()
    yield running
    running.stop()


def test_csv_comes_in_pages_and_is_complete(city: RunningCity) -> None:
    answer = city.http.get("/export")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="lisbon.csv"'
    assert answer.headers["transfer-encoding"] == "chunked"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["decision_id"] for row in rows] == [f"d{i}" for i in range(ROWS)]
    assert [row["reward"] for row in rows[:2]] == ["0.5", ""]


def test_parquet_filters_and_columns(city: RunningCity) -> None:
    parameters: dict[str, Any] = {"format": "parquet", "columns": "price,rain", "since": "2020-01-01"}
    answer = city.http.get("/export", params=parameters)
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    file = pq.read_table(io.BytesIO(answer.content))
    assert (file.column_names, file.num_rows) == (["price", "rain"], ROWS)
    arms = city.http.get("/export", params={"columns": "arm"}).text.split()[1:]
    assert sum(map(arms.count, "01234")) == ROWS
    for arm in range(5):
        rows = city.http.get("/export", params={"arm": arm, "columns": "arm"}).text.split()
        assert rows == ["arm", *[str(arm)] * arms.count(str(arm))]
    assert city.http.get("/export", params={"until": "0", "columns": "arm"}).text == "arm\n"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("columns=price,snow", "there is no column 'snow'"),
        ("since=yesterday", "since: must be Unix seconds or ISO 8601"),
        ("arm=7", "there is no arm 7"),
        ("format=xlsx", "format"),
    ],
)
def test_an_invalid_parameter_is_a_problem_before_anything_is_sent(
    city: RunningCity, query: str, message: str
) -> None:
    answer = city.http.get(f"/export?{query}")
    assert answer.status_code == 422
    assert message in answer.text


def test_head_has_the_headers_and_no_rows(city: RunningCity) -> None:
    answer = city.http.head("/export", params={"format": "parquet"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"


def test_only_so_many_run_at_once_and_one_that_is_left_makes_room(city: RunningCity) -> None:
    """Requests that are answered before their callers read: the stream waits for them in `send`."""
    streams = [Stream(city) for _ in range(routes.MAX_EXPORTS)]

    async def use() -> None:
        for stream in streams:
            await stream.begin()
        refused = Stream(city)
        await refused.run()
        assert (refused.status, refused.headers[b"retry-after"]) == (503, b"10")
        assert b"2 exports are under way" in refused.body
        await streams[0].leave()
        last = Stream(city, reads=True)
        await last.run()
        assert last.status == 200
        assert last.body.count(b"\n") == ROWS + 1
        assert last.is_complete
        await streams[1].leave()

    asyncio.run(use())


def test_a_caller_that_does_not_read_is_disconnected(
    city: RunningCity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MAX_SEND_SECONDS", 0.01)
    stream = Stream(city)
    asyncio.run(stream.run())
    assert stream.status == 200
    assert not stream.is_complete


def test_an_export_ends_early_when_the_city_stops(city: RunningCity) -> None:
    stream = Stream(city, reads=True)
    city.pricing.draining = True
    asyncio.run(stream.run())
    assert stream.status == 200
    assert not stream.is_complete


class Stream:
    """A request to the application itself, whose caller reads nothing, or everything."""

    def __init__(self, city: RunningCity, *, reads: bool = False) -> None:
        self._app = city.app
        self._gone = asyncio.Event()
        self._reads = reads
        self._begun = asyncio.Event()
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.is_complete = False

    async def run(self) -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/export",
            "raw_path": b"/export",
            "query_string": b"columns=price",
            "headers": [(b"host", b"localhost")],
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
        }
        await self._app(scope, self._receive, self._send)

    async def begin(self) -> None:
        self._task = asyncio.create_task(self.run())
        await self._begun.wait()

    async def leave(self) -> None:
        self._gone.set()
        await self._task

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
            return
        self._begun.set()
        self.body += message["body"]
        self.is_complete = not message.get("more_body")
        if not self._reads and message.get("more_body"):
            await self._gone.wait()


def test_it_needs_a_key_that_may_read(tmp_path: Path) -> None:
    presented = {}
    keys = {}
    for scope in ("read", "price"):
        presented[scope], key = new_key(scope)
        keys[key.id] = key
    write_keys(tmp_path / "keys.toml", keys)
    security = {"api_keys_file": str(tmp_path / "keys.toml")}
    running = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db", security=security))
    try:
        statuses = [
            httpx.get(f"{running.url}/export", headers={"X-API-Key": key}).status_code
            for key in (presented["read"], presented["price"], "pm_nobody")
        ]
        assert statuses == [200, 403, 401]
    finally:
        running.stop()


def test_parquet_without_its_extra_names_what_to_install(
    city: RunningCity, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert DATA_PACKAGES == ("pyarrow",)
    monkeypatch.setattr("pricemesh.history.extra.DATA_PACKAGES", ("no_such_package",))
    answer = city.http.get("/export?format=parquet")
    assert answer.status_code == 501
    assert "pip install 'pricemesh[data]'" in answer.json()["detail"]
    assert city.http.get("/export?format=csv").status_code == 200
