"""An import: the city learns the rows of a file as if it had decided them, once, and all or none."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pricemesh.city.settings import Settings
from pricemesh.errors import DatabaseInUse, InvalidParameter
from pricemesh.history.importing import Import, ImportResult, digest_of, learn
from pricemesh.history.reading import HistoryReader
from pricemesh.history.tables import open_table
from pricemesh.runtime import Runtime
from pricemesh.store.importing import abandon
from pricemesh.store.maintenance import owning
from pricemesh.store.tables import decisions, feedback, import_rows, imports, learner
from tests.running import CONTEXT, RunningCity, settings_for

Start = Callable[..., RunningCity]
ROWS = 4_500  # more than two chunks
HEAD = "decision_id,time,demand,rain,event,tourists,strike,price,reward"


def row(i: int, rng: random.Random) -> str:
    context = [rng.uniform(-1, 1), rng.random(), float(i % 2), rng.random(), 0.0]
    reward = "" if i % 100 == 99 else f"{rng.random()}"
    return f"h{i},{1.7e9 + i},{','.join(map(repr, context))},{8 + i % 5},{reward}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = random.Random(5)
    file = tmp_path / "history.csv"
    file.write_text("\n".join([HEAD, *(row(i, rng) for i in range(ROWS))]) + "\n")
    return file


def run(settings: Settings, file: Path, name: str = "history", **steps: Any) -> ImportResult:
    work = Import(settings, file, name, digest_of(file), Runtime())
    return work.run(HistoryReader(settings, open_table(file)), **steps)


def counts(settings: Settings) -> dict[str, int]:
    engine = sa.create_engine(settings.database.url)
    with engine.connect() as connection:
        found = {
            table.name: connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
            for table in (decisions, feedback, import_rows, imports)
        }
    engine.dispose()
    return found


def beliefs(city: RunningCity) -> list[float]:
    arms = city.http.post("/beliefs", json=CONTEXT).raise_for_status().json()["arms"]
    return [arm[name] for arm in arms for name in ("estimate", "radius")]


def test_a_city_believes_what_it_would_have_learned_from_the_same_feedback(
    start: Start, database_url: str, file: Path
) -> None:
    """Against a city that is given the same contexts, prices and rewards one by one."""
    settings = settings_for(database_url, policy={"name": "disjoint"})
    result = run(settings, file)
    assert result == ImportResult(ROWS - ROWS // 100, 0, ROWS // 100)
    city = start(policy={"name": "disjoint"})
    state = city.state()
    assert (state["decisions"], state["version"]) == (result.counted, result.counted)
    own = settings.learner()
    for batch in HistoryReader(settings, open_table(file)).batches():
        for context, arm, amount in zip(batch.contexts, batch.arms, batch.amounts, strict=True):
            if amount is not None:
                own.learn(context, int(arm), amount)
    context = settings.features.space.vector(CONTEXT["shared"], CONTEXT["local"])
    score = own.score(context)
    expected = [value for pair in zip(score.estimate, score.radius, strict=True) for value in pair]
    assert beliefs(city) == pytest.approx(expected, rel=1e-9)
    record = city.http.get("/decisions/h7").raise_for_status().json()
    assert (record["made_at"], record["policy"], record["price"]) == (1.7e9 + 7, "import", 10.0)
    assert record["feedback"]["version"] == 8
    price = city.price()
    assert city.feedback(price["decision_id"], 0.5).json()["learned"]


def test_what_was_imported_is_learned_before_the_city_starts(
    start: Start, database_url: str, file: Path
) -> None:
    settings = settings_for(database_url)
    counted = run(settings, file).counted
    assert learn(settings, Runtime()) == counted
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        assert connection.scalar(sa.select(learner.c.version)) == counted
    engine.dispose()
    from_snapshot = beliefs(start())
    engine = sa.create_engine(database_url)
    start().stop()
    with engine.begin() as connection:
        connection.execute(learner.delete())
    engine.dispose()
    assert beliefs(start()) == pytest.approx(from_snapshot, rel=1e-9)


def test_a_file_is_imported_once(database_url: str, file: Path) -> None:
    settings = settings_for(database_url)
    run(settings, file)
    before = counts(settings)
    with pytest.raises(InvalidParameter, match="this file was imported before, as 'history'"):
        run(settings, file, "again")
    file.write_text(file.read_text() + f"{row(1, random.Random(0)).replace('h1', 'new')}\n")
    with pytest.raises(InvalidParameter, match="another file was imported as 'history'"):
        run(settings, file)
    assert counts(settings) == before
    assert run(settings, file, "longer") == ImportResult(1, before["decisions"], ROWS // 100)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("chunks", [1, 2])
def test_an_import_that_is_interrupted_counts_for_nothing_and_then_goes_on(
    database_url: str, file: Path, chunks: int
) -> None:
    settings = settings_for(database_url)
    calls = iter(range(chunks - 1))

    def kill(_rows: int) -> None:
        if next(calls, None) is None:
            raise Killed

    with pytest.raises(Killed):
        run(settings, file, on_rows=kill)
    found = counts(settings)
    assert (found["decisions"], found["feedback"], found["imports"]) == (0, 0, 1)
    assert 0 < found["import_rows"] < ROWS
    other = file.with_name("other.csv")
    other.write_text("\n".join([HEAD, row(1, random.Random(3)).replace("h1", "x1")]) + "\n")
    with pytest.raises(InvalidParameter, match="was interrupted: finish it first"):
        run(settings, other, "other")
    result = run(settings, file)
    assert (result.counted, result.known) == (ROWS - ROWS // 100, 0)
    assert counts(settings)["import_rows"] == 0
    assert run(settings, other, "other").counted == 1


def test_an_import_that_is_abandoned_leaves_nothing(database_url: str, file: Path) -> None:
    settings = settings_for(database_url)

    def kill(_rows: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        run(settings, file, on_rows=kill)
    with owning(database_url, "lisbon") as connection:
        assert abandon(connection) == "history"
        assert abandon(connection) is None
    assert counts(settings) == {"decisions": 0, "feedback": 0, "import_rows": 0, "imports": 0}


def test_decisions_that_the_city_has_already_are_left_out(
    start: Start, database_url: str, file: Path
) -> None:
    city = start()
    decided = city.price(decision_id="h3")
    city.stop()
    result = run(settings_for(database_url), file)
    assert (result.counted, result.known) == (ROWS - ROWS // 100 - 1, 1)
    record = start().http.get("/decisions/h3").json()
    assert (record["policy"], record["price"]) == (decided["policy"], decided["price"])


def test_a_city_that_is_served_is_not_imported_into(city: RunningCity, file: Path) -> None:
    settings = city.pricing.settings
    database = settings.database.model_copy(update={"lock_wait_seconds": 0.0})
    with pytest.raises(DatabaseInUse):
        run(settings.model_copy(update={"database": database}), file)


def test_rows_without_id_or_time_and_at_other_prices_are_learned_by_demand(
    start: Start, database_url: str, tmp_path: Path
) -> None:
    sections: dict[str, Any] = {"reward": {"kind": "purchase", "cost": 1.0}, "features": {"shared": ["rain"]}}
    file = tmp_path / "sales.csv"
    file.write_text("rain,price,sold\n0.5,8,1\n0.5,8.5,1\n0.5,9,0\n")
    settings = settings_for(database_url, **sections)
    assert run(settings, file).counted == 3
    city = start(**sections)
    assert city.state()["version"] == 3
    lines = city.http.get("/export?columns=price,arm,sold,reward,estimate").text.split()
    assert lines[1:] == ["8.0,0,1.0,7.0,", "8.5,,1.0,7.5,", "9.0,1,0.0,0.0,"]
    records = city.http.get("/decisions").raise_for_status().json()["decisions"]
    assert [record["arm"] for record in records] == [1, None, 0]
