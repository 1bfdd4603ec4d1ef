"""A start on a SQLite file that is damaged, or that another program wrote, is refused in one line."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from pricemesh.city.configuration import as_variables
from pricemesh.errors import NotStarted, PricemeshError
from pricemesh.runtime import Runtime
from pricemesh.serving.app import create_app
from pricemesh.store.commands import AddPeers, SaveDecisions
from pricemesh.store.database import Database
from pricemesh.store.migration import migrate
from tests.running import CONFIG, settings_for
from tests.store.rows import decision, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "city.db"


def not_sqlite(path: Path) -> None:
    path.write_text("these are not the tables you are looking for\n" * 100)


def truncated(path: Path) -> None:
    ours(path)
    os.truncate(path, path.stat().st_size // 2)


def garbage_pages(path: Path) -> None:
    ours(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


def garbage_schema(path: Path) -> None:
    ours(path)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * 3996)


def other_program(path: Path) -> None:
    run_sql(path, "CREATE TABLE customers (name TEXT)")


def other_program_with_revisions(path: Path) -> None:
    run_sql(path, "CREATE TABLE customers (name TEXT)", "CREATE TABLE alembic_version (version_num TEXT)")
    run_sql(path, "INSERT INTO alembic_version VALUES ('0002')")


def newer_version(path: Path) -> None:
    ours(path)
    run_sql(path, "UPDATE alembic_version SET version_num = '9999'")


def several_revisions(path: Path) -> None:
    ours(path)
    run_sql(path, "INSERT INTO alembic_version VALUES ('0001')")


def unreadable_description(path: Path) -> None:
    ours(path)
    run_sql(path, "UPDATE city SET description = 'nonsense'")


def short_description(path: Path) -> None:
    ours(path)
    run_sql(path, "UPDATE city SET description = '{}'")


def cut_vectors(path: Path) -> None:
    ours(path)
    run_sql(path, "UPDATE decisions SET vectors = x'00'", "DELETE FROM learner")


def ours(path: Path) -> None:
    """A database with a decision, its feedback and peers."""
    database = opened(path)
    database.commit([SaveDecisions([decision(f"d{i}") for i in range(200)]), AddPeers(["http://a"], 1.0)])
    database.close()
    run_sql(
        path,
        "INSERT INTO feedback VALUES (1, 1, 0.5, 2.0, 0, 1, NULL, NULL)",
        "PRAGMA wal_checkpoint(TRUNCATE)",
    )


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement).fetchall()
            connection.commit()


DAMAGES = [
    (not_sqlite, "is not a SQLite file"),
    (truncated, "is damaged"),
    (garbage_pages, "is damaged"),
    (garbage_schema, "damaged"),
    (other_program, "of another program"),
    (other_program_with_revisions, "of another program"),
    (newer_version, "revision 9999"),
    (several_revisions, "more than one head"),
    (unreadable_description, "does not write"),
    (short_description, "does not write"),
]


@pytest.mark.parametrize(("damage", "text"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_a_start_on_a_damaged_or_foreign_file_says_so(
    path: Path, damage: Callable[[Path], None], text: str
) -> None:
    damage(path)
    before = path.read_bytes()
    url = f"sqlite:///{path}"
    database = Database(url, "lisbon", Runtime())
    with pytest.raises(NotStarted, match=text) as refusal:
        database.open(settings_for(url).schema_description)
    assert "\n" not in str(refusal.value)
    assert path.read_bytes() == before, "the file was changed"
    if "does not write" not in text:
        with pytest.raises(NotStarted, match=text):
            migrate(url, "head", "lisbon")


@pytest.mark.parametrize(
    ("command", "damage"),
    [
        ("serve", not_sqlite),
        ("serve", garbage_pages),
        ("serve", other_program),
        ("serve", cut_vectors),
        ("migrate", not_sqlite),
        ("migrate", garbage_pages),
        ("migrate", other_program),
    ],
)
def test_a_command_on_a_damaged_or_foreign_file_prints_one_line_and_exits_with_2(
    path: Path, command: str, damage: Callable[[Path], None]
) -> None:
    damage(path)
    config = {**CONFIG, "database": {"url": f"sqlite:///{path}"}, "server": {"port": 0}}
    run = subprocess.run(
        [sys.executable, "-m", "pricemesh", command],
        env={**os.environ, **as_variables(config)},
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2, run.stderr
    assert "Traceback" not in run.stderr
    errors = [line for line in run.stderr.splitlines() if "no API keys" not in line]
    assert len(errors) == 1, run.stderr
    assert errors[0].startswith("error: ")


@pytest.mark.parametrize("seed", range(8))
def test_no_damage_to_the_file_makes_a_start_end_in_a_traceback(path: Path, seed: int) -> None:
    settings = settings_for(f"sqlite:///{path}")
    ours(path)
    controls = "INSERT INTO controls VALUES ('freeze', '{\"reason\": \"audit\"}', 1.0)"
    run_sql(path, controls, "PRAGMA wal_checkpoint(TRUNCATE)")
    whole = path.read_bytes()
    rng, refusals = Random(seed), list[str]()
    for _ in range(12):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 40)):
            at, length = rng.randrange(len(damaged)), rng.choice((1, 16, 4096))
            damaged[at : at + length] = rng.randbytes(len(damaged[at : at + length]))
        for file in path.parent.glob("city.db*"):
            file.unlink()
        path.write_bytes(damaged)
        app = create_app(settings)
        try:
            app.pricing.open()
            app.gossip.open()
        except PricemeshError as refusal:
            refusals.append(str(refusal))
        finally:
            app.pricing.database.close()
    assert refusals
    assert "\n" not in "".join(refusals)
