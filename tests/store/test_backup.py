"""`pricemesh backup`: a copy of a running city's database that a city can be started on."""

import os
import shutil
import sqlite3
import threading
from pathlib import Path

import httpx
import pytest

from pricemesh.errors import InvalidParameter, NotStarted, StorageUnavailable
from pricemesh.store.backup import back_up
from pricemesh.store.database import Database
from tests.cli.test_cli import pricemesh
from tests.running import CONTEXT, CityProcess, RunningCity, settings_for
from tests.store.rows import opened, save


def counts(path: Path) -> tuple[int, int]:
    with sqlite3.connect(path) as connection:
        decisions, feedback = (
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("decisions", "feedback")
        )
    connection.close()
    return decisions, feedback


@pytest.fixture
def database(tmp_path: Path) -> Database:
    database = opened(tmp_path / "city.db")
    database.commit(save(*(f"d{i}" for i in range(500))))
    return database


def test_a_backup_of_a_running_city_is_a_city_again(tmp_path: Path) -> None:
    """In a process of its own, as an operator runs it; the city goes on meanwhile."""
    city = CityProcess(tmp_path / "city", f"sqlite:///{tmp_path}/city.db")
    with httpx.Client(base_url=city.url, timeout=20) as http:
        for i in range(5):
            body = {**CONTEXT, "decision_id": f"d{i}"}
            http.post("/price", json=body).raise_for_status()
            http.post("/feedback", json={"decision_id": f"d{i}", "reward": i / 8}).raise_for_status()
        config = tmp_path / "lisbon.toml"
        config.write_text(
            'city = "lisbon"\n[arms]\nprices = [8.0, 9.0]\n[features]\nshared = ["x"]\n[reward]\n'
            f'kind = "purchase"\n[database]\nurl = "sqlite:///{tmp_path}/city.db"\n'
        )
        run = pricemesh("backup", str(tmp_path / "copy.db"), "--config", str(config))
        assert run.returncode == 0, run.stderr
        assert "5 decisions, 5 feedback" in run.stderr
        assert f"cp {tmp_path}/copy.db {tmp_path}/city.db" in run.stderr
        http.post("/price", json={**CONTEXT, "decision_id": "later"}).raise_for_status()
        before = http.get("/decisions/d3").json()
    assert city.stop() == 0
    restored = RunningCity(settings_for(f"sqlite:///{tmp_path}/copy.db"))
    try:
        assert restored.state()["version"] == 5
        assert restored.http.get("/decisions/d3").json() == before
        assert restored.http.get("/decisions/later").status_code == 404
    finally:
        restored.stop()


def test_a_backup_is_one_moment_though_the_city_commits_meanwhile(tmp_path: Path, database: Database) -> None:
    """Each commit adds three decisions: no copy has a part of one."""
    is_over = threading.Event()

    def work() -> None:
        number = 0
        while not is_over.is_set():
            database.commit(save(*(f"m{number}-{part}" for part in range(3))))
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        sizes = []
        for i in range(5):
            back_up(f"sqlite:///{tmp_path}/city.db", "lisbon", tmp_path / f"copy{i}.db")
            sizes.append(counts(tmp_path / f"copy{i}.db")[0])
    finally:
        is_over.set()
        thread.join()
        database.close()
    assert all((size - 500) % 3 == 0 for size in sizes)
    assert sizes == sorted(sizes)


def test_the_copy_is_one_file_that_only_its_owner_may_read(tmp_path: Path, database: Database) -> None:
    steps: list[tuple[int, int]] = []
    result = back_up(
        f"sqlite:///{tmp_path}/city.db",
        "lisbon",
        tmp_path / "copy.db",
        lambda done, total: steps.append((done, total)),
    )
    database.close()
    assert (result.decisions, result.feedback) == (500, 0)
    assert result.size_bytes == (tmp_path / "copy.db").stat().st_size
    assert steps[-1][0] == steps[-1][1] > 0
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name) == ["copy.db"]


def test_a_backup_replaces_nothing(tmp_path: Path, database: Database) -> None:
    database.close()
    (tmp_path / "copy.db").write_text("another file")
    with pytest.raises(InvalidParameter, match="a backup never replaces a file"):
        back_up(f"sqlite:///{tmp_path}/city.db", "lisbon", tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "another file"
    with pytest.raises(InvalidParameter, match="cannot write"):
        back_up(f"sqlite:///{tmp_path}/city.db", "lisbon", tmp_path / "nowhere" / "copy.db")


def test_a_damaged_database_gives_no_backup(tmp_path: Path, database: Database) -> None:
    database.close()
    path = tmp_path / "city.db"
    with path.open("r+b") as stream:
        stream.seek(path.stat().st_size // 2)
        stream.write(os.urandom(8192))
    with pytest.raises((NotStarted, StorageUnavailable), match=r"damaged|malformed"):
        back_up(f"sqlite:///{path}", "lisbon", tmp_path / "copy.db")
    assert sorted(each.name for each in tmp_path.iterdir() if "copy" in each.name) == []


def test_what_is_no_database_of_this_city_is_refused(tmp_path: Path, database: Database) -> None:
    database.close()
    url = f"sqlite:///{tmp_path}/city.db"
    with pytest.raises(NotStarted, match="belongs to the city lisbon, not to porto"):
        back_up(url, "porto", tmp_path / "copy.db")
    with pytest.raises(NotStarted, match="there is no database"):
        back_up(f"sqlite:///{tmp_path}/other.db", "lisbon", tmp_path / "copy.db")
    with pytest.raises(InvalidParameter, match="use pg_dump"):
        back_up("postgresql+psycopg://me@db/lisbon", "lisbon", tmp_path / "copy.db")
    (tmp_path / "text.db").write_text("no database, but a text that is longer than a header of SQLite is")
    with pytest.raises(StorageUnavailable, match="not a database"):
        back_up(f"sqlite:///{tmp_path}/text.db", "lisbon", tmp_path / "copy.db")
    shutil.copy(tmp_path / "city.db", tmp_path / "empty.db")
    with sqlite3.connect(tmp_path / "empty.db") as connection:
        connection.execute("DELETE FROM city")
    connection.close()
    with pytest.raises(NotStarted, match="no database that a city has used"):
        back_up(f"sqlite:///{tmp_path}/empty.db", "lisbon", tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
