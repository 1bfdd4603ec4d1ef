"""A SQLite file that is deleted, moved or replaced while its city runs: nothing is acknowledged into it."""

import json
import logging
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pricemesh.errors import StorageUnavailable
from pricemesh.runtime import Disk, Runtime
from pricemesh.store.database import Database
from tests.running import CONTEXT, CityProcess
from tests.store.rows import opened, save


def error_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "city.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    database = opened(path)
    yield database
    database.close()


def copy_of(path: Path) -> Path:
    """Made by another process: opening a database's file in this one would drop SQLite's locks on it."""
    copy = path.with_name("older.db")
    subprocess.run(["cp", str(path), str(copy)], check=True)
    return copy


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    copy_of(path).rename(path)


def delete_wal(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


def replace_wal(path: Path) -> None:
    wal = path.with_name(path.name + "-wal")
    copy_of(wal).rename(wal)


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


LOSSES = [
    (delete, "was deleted or moved away"),
    (replace, "was replaced by another"),
    (delete_wal, "-wal was deleted or moved away"),
    (replace_wal, "-wal was replaced by another"),
]
loss = pytest.mark.parametrize(("lose", "text"), LOSSES, ids=[lose.__name__ for lose, _ in LOSSES])
Lose = Callable[[Path], None]


@loss
def test_nothing_is_acknowledged_into_a_file_that_is_gone(
    database: Database, path: Path, lose: Lose, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    database.commit(save("first"))
    assert database.fault() is None
    lose(path)
    for id_ in ("second", "third"):
        with pytest.raises(StorageUnavailable, match=text):
            database.commit(save(id_))
    with pytest.raises(StorageUnavailable, match=text):
        database.reader.totals()
    assert text in str(database.fault())
    assert len(error_lines(caplog)) == 1


def test_a_file_that_goes_during_a_commit_is_noticed_before_the_commit_is_acknowledged(path: Path) -> None:
    class Deleting(Disk):
        armed = False

        def before_commit(self) -> None:
            if self.armed:
                path.unlink()

    disk = Deleting()
    database = opened(path, Runtime(disk=disk))
    database.commit(save("first"))
    disk.armed = True
    with pytest.raises(StorageUnavailable, match="deleted"):
        database.commit(save("second"))
    database.close()


def test_the_same_file_moved_back_is_served_again_and_has_lost_nothing(
    database: Database, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database.commit(save("first"))
    aside = path.with_name("aside.db")
    path.rename(aside)
    with pytest.raises(StorageUnavailable, match="deleted or moved away"):
        database.commit(save("second"))
    shutil.copy(__file__, path)  # and then something else in its place
    with pytest.raises(StorageUnavailable, match="replaced"):
        database.commit(save("third"))
    aside.rename(path)
    assert database.fault() is None
    database.commit(save("fourth"))
    assert database.reader.decision("first") is not None
    assert database.reader.decision("third") is None
    assert database.reader.decision("fourth") is not None
    assert len(error_lines(caplog)) == 1


def test_a_clean_stop_saves_what_was_acknowledged_before_the_wal_was_deleted(path: Path) -> None:
    database = opened(path)
    database.commit(save("first"))
    delete_wal(path)
    with pytest.raises(StorageUnavailable, match="SIGTERM"):
        database.commit(save("second"))
    database.close()
    again = opened(path)
    assert again.reader.decision("first") is not None
    again.close()


def test_a_reader_never_opens_the_file_that_took_the_place(database: Database, path: Path) -> None:
    other = opened(path.with_name("other.db"))
    other.commit(save("of another city"))
    other.close()
    database.commit(save("first"))
    path.with_name("other.db").rename(path)
    for _ in range(3):
        with pytest.raises(StorageUnavailable, match="replaced"):
            database.reader.decision("of another city")


def test_a_link_that_is_pointed_elsewhere_is_a_replaced_file(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "one.db")
    database = opened(link)
    database.commit(save("first"))
    link.unlink()
    link.symlink_to(tmp_path / "two.db")
    with pytest.raises(StorageUnavailable, match="deleted or moved away"):
        database.commit(save("second"))
    database.close()


# Through real processes


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.txt").read_text().splitlines()]


@pytest.mark.parametrize(("lose", "text"), [*LOSSES, (move_folder, "was deleted or moved away")])
def test_a_city_whose_file_is_gone_answers_503_and_is_not_ready(
    tmp_path: Path, lose: Lose, text: str
) -> None:
    folder, path = tmp_path / "run", tmp_path / "data" / "city.db"
    path.parent.mkdir()
    city = CityProcess(folder, f"sqlite:///{path}")
    with httpx.Client(base_url=city.url, timeout=20) as http:
        first = http.post("/price", json=CONTEXT).json()["decision_id"]
        assert http.get("/readyz").status_code == 200
        lose(path)
        for _ in range(3):
            refusal = http.post("/price", json=CONTEXT)
            assert (refusal.status_code, text in refusal.json()["detail"]) == (503, True), refusal.text
            assert http.post("/feedback", json={"decision_id": first, "reward": 0.5}).status_code == 503
        unready = http.get("/readyz")
        assert (unready.status_code, text in unready.text) == (503, True), unready.text
        for address in ("/state", "/decisions", f"/decisions/{first}"):
            assert http.get(address).status_code == 503
        assert http.get("/healthz").status_code == 200
    assert city.stop() == 0
    errors = [line["message"] for line in log_of(folder) if line["level"] == "error"]
    assert [text in message for message in errors] == [True]


def test_readiness_notices_a_lost_file_without_a_commit(tmp_path: Path) -> None:
    city = CityProcess(tmp_path / "run", f"sqlite:///{tmp_path}/city.db")
    (tmp_path / "city.db").unlink()
    assert httpx.get(f"{city.url}/readyz").status_code == 503
    city.kill()
