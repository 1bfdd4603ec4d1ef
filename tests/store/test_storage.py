"""What happens to the database when things go wrong, and when its schema moves."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from pricemesh.core.policies import Shape, make_policy
from pricemesh.errors import (
    DatabaseInUse,
    InvalidParameter,
    SchemaChanged,
    SchemaOutdated,
    StorageUnavailable,
)
from pricemesh.runtime import Runtime
from pricemesh.store.commands import Command, SaveDecisions
from pricemesh.store.database import CommitResult, Database
from pricemesh.store.migration import migrate
from pricemesh.store.tables import learner as learner_table
from pricemesh.store.tables import metadata
from tests.postgres import Postgres
from tests.running import CONFIG, CONTEXT, RunningCity, settings_for
from tests.store.rows import decision, opened_at

Start = Callable[..., RunningCity]


def test_the_migrations_make_the_tables_that_the_code_expects(database_url: str) -> None:
    migrate(database_url, "head", "lisbon")
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_migrations_go_down_and_up_again_with_data_in_the_tables(start: Start, database_url: str) -> None:
    city = start()
    city.feedback(city.price()["decision_id"], 1.0)
    city.http.post("/admin/freeze", json={})
    city.stop()
    assert migrate(database_url, "0001", "lisbon") == ("0006", "0001")
    assert migrate(database_url, "head", "lisbon") == ("0001", "0006")
    again = start()
    assert again.state()["version"] == 1
    assert again.http.get("/decisions").json()["decisions"][0]["contributions"][0]["origin"] == "lisbon"
    again.stop()
    assert migrate(database_url, "base", "lisbon") == ("0006", None)
    assert migrate(database_url, "0001", "lisbon") == (None, "0001")
    assert migrate(database_url, "head", "lisbon") == ("0001", "0006")
    with pytest.raises(InvalidParameter, match="not migrated"):
        migrate(database_url, "9999", "lisbon")


def test_a_second_process_on_the_same_database_is_refused(city: RunningCity, database_url: str) -> None:
    other = Database(database_url, "lisbon", Runtime())
    with pytest.raises(DatabaseInUse, match="another process"):
        other.open(city.pricing.settings.schema_description)
    assert city.price()["city"] == "lisbon"


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"arms": {"prices": [8.0, 9.0, 10.0, 11.0, 13.0]}}, "new price 13; price 12 leaves"),
        (
            {"features": {**CONFIG["features"], "shared": CONFIG["features"]["shared"][::-1]}},
            "features in another order",
        ),
        ({"city": "porto"}, "belongs to the city lisbon"),
        ({"reward": {"kind": "purchase"}}, "reward.kind was value and cannot become purchase"),
    ],
)
def test_a_database_made_for_another_configuration_is_never_reinterpreted(
    start: Start, database_url: str, section: Any, text: str
) -> None:
    start().price()
    start().stop()
    settings = settings_for(database_url, **section)
    database = Database(database_url, settings.city, Runtime())
    with pytest.raises(SchemaChanged, match=text):
        database.open(settings.schema_description)


def test_postgres_without_a_schema_says_what_to_do(postgres: Postgres) -> None:
    url = postgres.new_database(f"empty{time.time_ns()}")
    database = Database(url, "lisbon", Runtime())
    with pytest.raises(SchemaOutdated, match="pricemesh migrate"):
        database.open(settings_for(url).schema_description)


def test_a_full_disk_is_a_503_that_loses_nothing_and_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may not grow beyond its pages. The limit is set in the writer's thread, which owns the
    connection."""
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"))
    ids = [city.price(decision_id=f"d{i}")["decision_id"] for i in range(20)]
    database = city.pricing.database
    write = database.write
    max_pages = 1  # SQLite takes the present number of pages for any number below it

    def write_within_limit(commands: Sequence[Command]) -> CommitResult:
        assert database._connection is not None
        database._connection.exec_driver_sql(f"PRAGMA max_page_count={max_pages}")
        database._connection.rollback()
        return write(commands)

    monkeypatch.setattr(database, "write", write_within_limit)
    statuses = set()
    status_by_id: dict[str, int] = {}
    for i in range(60):
        response = city.http.post("/price", json=CONTEXT | {"decision_id": f"full{i}"})
        statuses.add(response.status_code)
        status_by_id[f"full{i}"] = response.status_code
        statuses.add(city.feedback(ids[i % 20], float(i % 20)).status_code)
    assert 503 in statuses
    assert statuses <= {200, 503}
    refusal = city.http.post("/price", json=CONTEXT)
    assert refusal.headers["retry-after"] == "1"
    assert "full" in refusal.json()["detail"]
    version = city.state()["version"]
    max_pages = 1_000_000
    for id_, status in status_by_id.items():
        assert city.http.get(f"/decisions/{id_}").status_code == (200 if status == 200 else 404)
    assert city.feedback(city.price()["decision_id"], 1.0).json()["version"] == version + 1
    city.stop()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a file system: the full disk was not tried")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_file_system_is_a_503_that_loses_nothing_and_passes(tiny_disk: Path) -> None:
    city = RunningCity(settings_for(f"sqlite:///{tiny_disk}/city.db"))
    known = {city.price(decision_id=f"before{i}")["decision_id"] for i in range(50)}
    ballast = tiny_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    statuses = set()
    for i in range(150):
        answer = city.http.post("/price", json=CONTEXT | {"decision_id": f"full{i}"})
        statuses.add(answer.status_code)
        if answer.status_code == 200:
            known.add(f"full{i}")
        statuses.add(city.feedback(f"before{i % 50}", float(i % 50)).status_code)
    assert 503 in statuses
    assert statuses <= {200, 503}
    ballast.unlink()
    city.price(decision_id="after")
    for i in range(50):
        assert city.feedback(f"before{i}", float(i)).status_code == 200
    readable = {id_ for id_ in known if city.http.get(f"/decisions/{id_}").status_code == 200}
    assert readable == known
    assert city.state()["version"] == 50
    city.stop()


def test_a_postgres_that_drops_its_connections_costs_at_most_a_503(postgres: Postgres) -> None:
    url = postgres.new_database(f"drops{time.time_ns()}")
    migrate(url, "head", "lisbon")
    city = RunningCity(settings_for(url))
    for round_ in range(3):
        first = city.price()["decision_id"]
        postgres.end_connections()
        statuses = [city.feedback(first, 1.0).status_code for _ in range(5)]
        assert set(statuses) <= {200, 503}
        assert statuses[-1] == 200
        assert city.state()["version"] == round_ + 1
    city.stop()


def test_a_commit_that_failed_and_had_happened_is_learned_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"))
    first, second = (city.price()["decision_id"] for _ in range(2))

    def lose_the_answer() -> None:
        raise sa.exc.OperationalError("commit", {}, Exception("the answer got lost"))

    with monkeypatch.context() as patched:
        patched.setattr(city.pricing.runtime.disk, "after_commit", lose_the_answer)
        assert city.feedback(first, 0.5).status_code == 503
        assert city.state()["version"] == 0  # and no commit after it succeeds, not even a probe
    assert city.feedback(second, 0.7).json()["version"] == 2
    assert city.feedback(first, 0.5).json()["version"] == 1
    assert sum(arm["count"] for arm in city.state()["arms"]) == 2
    city.stop()


def test_a_command_that_the_database_refuses_does_not_fail_the_others(postgres: Postgres) -> None:
    url = postgres.new_database(f"refuses{time.time_ns()}")
    migrate(url, "head", "lisbon")
    database = opened_at(url)
    subjects = {"good": None, "bad": "too long " * 100, "better": None}
    commands = [SaveDecisions([decision(id_, subject)]) for id_, subject in subjects.items()]
    good, bad, better = database.commit(commands).results
    assert (good[0].id, better[0].id) == ("good", "better")
    assert isinstance(bad, StorageUnavailable)
    rows = database.reader.latest_decisions(limit=10)
    assert [row.decision.id for row in rows] == ["better", "good"]
    database.close()


def test_postgres_never_reads_a_table_whole_to_find_a_row(postgres: Postgres) -> None:
    """Not even by a plan that was made when the tables were empty, and is kept."""
    url = postgres.new_database(f"by_keys{time.time_ns()}")
    migrate(url, "head", "lisbon")
    city = RunningCity(settings_for(url))
    for i in range(30):
        decision = city.price(decision_id=f"order-{i}")
        assert city.feedback(decision["decision_id"], 0.5).status_code == 200
        city.http.get(f"/decisions/order-{i}").raise_for_status()
        city.http.get("/decisions").raise_for_status()
    city.stop()
    engine = sa.create_engine(url)
    reads = sa.text("""
        SELECT sum(idx_scan), sum(seq_tup_read) FROM pg_stat_user_tables
        WHERE relname IN ('decisions', 'feedback')
    """)
    deadline, by_index = time.monotonic() + 10, 0
    while by_index < 120 and time.monotonic() < deadline:  # sessions that have ended tell with some delay
        time.sleep(0.1)
        with engine.connect() as connection:
            by_index, in_passing = connection.execute(reads).one()
    engine.dispose()
    assert by_index >= 120
    assert in_passing == 0


def test_a_fault_in_learning_leaves_a_city_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"))
    first, second = (city.price()["decision_id"] for _ in range(2))
    with monkeypatch.context() as patched:
        patched.setattr(city.pricing.learner, "learn", lambda *_: 1 / 0)
        assert city.feedback(first, 0.5).json()["version"] == 1
    assert "after a commit" in caplog.text
    assert city.feedback(second, 0.5).json()["version"] == 2
    city.stop()
    again = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"))
    assert again.state()["version"] == 2
    again.stop()


def test_another_policy_or_ridge_is_learned_anew_from_all_feedback(start: Start) -> None:
    """Rows are the truth: a snapshot made under other parameters is not read in new terms."""
    city = start()
    for i in range(25):
        city.feedback(city.price()["decision_id"], 0.1 * i)
    for policy in (
        {"name": "netpool", "ridge": 5.0},
        {"name": "disjoint", "ridge": 5.0},
        {"name": "netsgducb"},
    ):
        city = start(policy=policy)
        rebuilt = make_policy(**policy).learner(Shape(5, 3, 2))
        for lessons in city.pricing.database.lessons(0):
            for lesson in lessons:
                rebuilt.learn(np.frombuffer(lesson.vectors, count=5), lesson.arm, lesson.reward)
        x = [0.1, 0.2, 0.3, 0.4, 0.5]
        np.testing.assert_allclose(city.pricing.learner.score(x).radius, rebuilt.score(x).radius, rtol=1e-9)
        state = city.state()
        assert (state["version"], sum(arm["count"] for arm in state["arms"])) == (25, 25)


def test_a_lesson_found_after_a_lost_answer_survives_a_second_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"))
    ids = [city.price()["decision_id"] for _ in range(3)]

    def lose_the_answer() -> None:
        raise sa.exc.OperationalError("commit", {}, Exception("the answer got lost"))

    def fail() -> None:
        raise OSError(28, "No space left on device")

    for id_, moment, fault in zip(
        ids, ("after_commit", "before_commit"), (lose_the_answer, fail), strict=False
    ):
        with monkeypatch.context() as patched:
            patched.setattr(city.pricing.runtime.disk, moment, fault)
            assert city.feedback(id_, 0.5).status_code == 503
    assert city.feedback(ids[2], 0.5).json()["version"] == 2
    assert sum(arm["count"] for arm in city.state()["arms"]) == 2
    city.stop()


def test_a_database_is_locked_by_whatever_name_it_is_reached(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/city.db"
    city = RunningCity(settings_for(url))
    (tmp_path / "alias.db").symlink_to(tmp_path / "city.db")
    with pytest.raises(DatabaseInUse):
        Database(f"sqlite:///{tmp_path}/alias.db", "lisbon", Runtime()).open(
            settings_for(url).schema_description
        )
    with pytest.raises(DatabaseInUse):
        migrate(url, "base", "lisbon")
    city.stop()


@pytest.mark.parametrize("damage", [b"", b"12345678", bytes(8 * 5 * (25 + 5 + 2))])
def test_a_damaged_snapshot_is_replaced_by_the_rows(start: Start, database_url: str, damage: bytes) -> None:
    city = start()
    for i in range(10):
        city.feedback(city.price()["decision_id"], 0.1 * i)
    state, before = city.state(), city.pricing.learner.score(np.ones(5))
    city.stop()
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        assert connection.execute(learner_table.update().values(payload=damage)).rowcount == 1
    engine.dispose()
    again = start()
    assert again.state() == state
    np.testing.assert_allclose(again.pricing.learner.score(np.ones(5)).estimate, before.estimate, rtol=1e-9)
