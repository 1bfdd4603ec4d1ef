"""A WAL is replayed only into the file that it was written for; nothing acknowledged is lost by that."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from pricemesh.city.configuration import as_variables
from pricemesh.errors import DatabaseInUse, NotStarted, StorageUnavailable
from pricemesh.store.commands import SaveDecisions
from pricemesh.store.database import Database
from tests.running import CONFIG, CONTEXT, CityProcess
from tests.store.rows import decision, opened, save

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "city.db"


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def lock(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def rows(start: int, end: int) -> list[SaveDecisions]:
    return [SaveDecisions([decision(f"d{i}") for i in range(start, end)])]


def with_an_older_copy(path: Path) -> tuple[Database, Path]:
    """A database that is open, with 500 rows, most of them only in the WAL; and a copy of its first 100."""
    database = opened(path)
    database.commit(rows(0, 100))
    database.close()
    older = path.with_name("older.db")
    shutil.copy(path, older)
    database = opened(path)
    for start in range(100, 500, 100):
        database.commit(rows(start, start + 100))
    return database, older


def assert_intact(path: Path, count: int) -> None:
    database = opened(path)
    assert database.reader.totals()[:2] == (count, 0)
    database.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# A clean stop


def test_a_start_on_an_older_copy_has_that_copy_and_nothing_else(path: Path) -> None:
    database, older = with_an_older_copy(path)
    older.rename(path)
    with pytest.raises(StorageUnavailable, match="replaced"):
        database.commit(save("late"))
    database.close()
    assert not wal(path).exists()
    assert_intact(path, 100)


def test_a_file_that_was_moved_away_is_complete_after_a_clean_stop(path: Path) -> None:
    database, older = with_an_older_copy(path)
    aside = path.with_name("aside.db")
    path.rename(aside)
    database.close()
    assert_intact(aside, 500)
    older.rename(path)
    assert_intact(path, 100)


@contextmanager
def open_elsewhere(path: Path) -> Iterator[None]:
    """Another program reads the database."""
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM city').fetchall()"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", f"{script}; print(flush=True); input()", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    program.stdout.readline()
    yield
    program.communicate(b"\n")


def test_a_wal_that_cannot_be_saved_is_moved_away_and_found_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database, older = with_an_older_copy(path)
    aside = path.with_name("aside.db")
    path.rename(aside)
    inode = aside.stat().st_ino
    with open_elsewhere(aside):
        database.close()
    orphan = wal(path).with_name(f"city.db-wal.orphan-{inode}")
    assert f"is now {orphan}" in caplog.text
    shutil.copy(older, path)
    assert_intact(path, 100)
    path.unlink()
    aside.rename(path)
    with pytest.raises(NotStarted, match=f"rename it to {wal(path)}"):
        opened(path)
    orphan.rename(wal(path))
    assert_intact(path, 500)


def test_the_wal_of_another_process_is_left_alone(path: Path) -> None:
    database, older = with_an_older_copy(path)
    older.rename(path)
    lock(path).unlink()
    lock(path).touch()  # another process has locked this one, as far as the first can know
    size = wal(path).stat().st_size
    database.close()
    assert wal(path).stat().st_size == size


def test_a_backup_that_is_put_in_place_after_a_clean_stop_is_served(path: Path) -> None:
    database, older = with_an_older_copy(path)
    database.close()
    older.rename(path)
    assert_intact(path, 100)


# A kill


def killed(path: Path) -> Path:
    """What a city that was killed leaves behind, 500 rows; returns a copy of the first 100."""
    script = (
        "import os, sys; from pathlib import Path; from tests.store.test_stray_wal import with_an_older_copy;"
        "with_an_older_copy(Path(sys.argv[1])); os._exit(9)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    run = subprocess.run([sys.executable, "-c", script, str(path)], env=environment, check=False)
    assert run.returncode == 9
    assert wal(path).stat().st_size > 0
    return path.with_name("older.db")


def test_after_a_kill_the_same_files_are_served(path: Path) -> None:
    killed(path)
    assert_intact(path, 500)


def replace(path: Path, older: Path) -> None:
    older.rename(path)


def move_away(path: Path, older: Path) -> None:
    path.rename(older)


@pytest.mark.parametrize(("lose", "text"), [(replace, "was replaced"), (move_away, "is missing")])
def test_after_a_kill_the_wal_of_another_file_is_refused(
    path: Path, lose: Callable[[Path, Path], None], text: str
) -> None:
    older = killed(path)
    lose(path, older)
    before = wal(path).read_bytes()
    for _ in range(2):
        with pytest.raises(NotStarted, match=text) as refusal:
            opened(path)
    assert f"move {wal(path)} and {path}-shm away" in str(refusal.value)
    assert wal(path).read_bytes() == before
    wal(path).rename(path.with_name("away-wal"))
    assert_intact(path, 100 if lose is replace else 0)


def test_after_a_kill_the_file_may_be_put_back(path: Path) -> None:
    killed(path)
    aside = path.with_name("aside.db")
    path.rename(aside)
    with pytest.raises(NotStarted, match="put that file back"):
        opened(path)
    aside.rename(path)
    assert_intact(path, 500)


def test_a_folder_that_is_copied_after_a_kill_is_served(path: Path) -> None:
    killed(path)
    copy = path.parent / "elsewhere"
    copy.mkdir()
    for file in path.parent.glob("city.db*"):
        shutil.copy(file, copy / file.name)
    assert_intact(copy / path.name, 500)


def test_a_file_and_its_wal_may_be_restored_together(path: Path) -> None:
    killed(path)
    for file in (path, wal(path)):
        copy = file.with_name(file.name + ".backup")
        shutil.copy(file, copy)
        copy.rename(file)
    assert_intact(path, 500)


@pytest.mark.parametrize("content", ["", "nonsense", "[1, 2]", '{"lock": 1}'])
def test_a_lock_file_without_a_record_does_not_hinder(path: Path, content: str) -> None:
    killed(path)
    lock(path).write_text(content)
    assert_intact(path, 500)


# The lock file


@pytest.mark.parametrize("replacement", [None, "another"])
def test_a_city_whose_lock_file_was_removed_acknowledges_nothing(path: Path, replacement: str | None) -> None:
    database = opened(path)
    database.commit(save("first"))
    lock(path).unlink()
    if replacement is not None:
        lock(path).write_text(replacement)
    assert "lock file" in str(database.fault())
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match=r"lock file .* no other city uses this database"):
            database.commit(save("second"))
    database.close()
    again = opened(path)
    assert again.fault() is None
    again.commit(save("third"))
    again.close()


def test_a_second_city_does_not_start_on_an_open_file_whose_lock_file_was_removed(path: Path) -> None:
    database = opened(path)
    database.commit(save("first"))
    lock(path).unlink()
    for _ in range(2):
        with pytest.raises(DatabaseInUse, match="another process owns"):
            opened(path)
    database.close()
    opened(path).close()


def test_a_program_that_only_reads_does_not_hinder_a_start(path: Path) -> None:
    killed(path)
    with open_elsewhere(path):
        assert_intact(path, 500)


# Through real processes


def start_code(path: Path) -> tuple[int, list[str]]:
    config = {**CONFIG, "database": {"url": f"sqlite:///{path}"}, "server": {"port": 0}}
    run = subprocess.run(
        [sys.executable, "-m", "pricemesh", "serve"],
        env={**os.environ, **as_variables(config)},
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return run.returncode, [line for line in run.stderr.splitlines() if "no API keys" not in line]


def prices(city: CityProcess, count: int) -> list[int]:
    with httpx.Client(base_url=city.url, timeout=20) as http:
        batch = {"requests": [CONTEXT] * count}
        return [http.post("/price/batch", json=batch).status_code, http.get("/readyz").status_code]


@pytest.mark.parametrize("kill", [False, True])
def test_a_city_restarts_on_a_file_of_the_operators_choice(tmp_path: Path, path: Path, kill: bool) -> None:
    older, url = path.with_name("older.db"), f"sqlite:///{path}"
    city = CityProcess(tmp_path / "run", url)
    assert prices(city, 300) == [200, 200]
    assert city.stop() == 0
    shutil.copy(path, older)
    city = CityProcess(tmp_path / "run", url)
    for _ in range(3):
        assert prices(city, 500) == [200, 200]
    older.rename(path)
    assert prices(city, 10) == [503, 503]
    if kill:
        city.kill()
        code, errors = start_code(path)
        assert (code, len(errors)) == (2, 1), errors
        assert errors[0].startswith(f"error: {path} was replaced while a city was running")
        wal(path).unlink()
    else:
        assert city.stop() == 0
    city = CityProcess(tmp_path / "run", url)
    assert httpx.get(f"{city.url}/state").json()["decisions"] == 300
    assert prices(city, 300) == [200, 200]
    assert city.stop() == 0
    assert_intact(path, 600)
