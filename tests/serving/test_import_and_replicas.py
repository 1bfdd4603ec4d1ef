"""An import and the replicas of a city, on one Postgres: never at the same time, and one after the other."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from pricemesh.city.pricing import Pricing
from pricemesh.city.settings import Settings
from pricemesh.errors import DatabaseInUse
from pricemesh.history.importing import Import, ImportResult, digest_of, learn
from pricemesh.history.reading import HistoryReader
from pricemesh.history.tables import open_table
from pricemesh.runtime import Runtime
from pricemesh.store.tables import decisions, feedback, import_rows, imports
from tests.rewriting import assert_same_learner
from tests.running import CONTEXT, RunningCity, settings_for, until

ROWS = 4_500  # more than two chunks


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng, path = Random(5), tmp_path / "history.csv"
    rows = (
        f"h{i},{1.7e9 + i},{rng.uniform(-1, 1)},{rng.random()},0,{rng.random()},0,{8 + i % 5},{rng.random()}"
        for i in range(ROWS)
    )
    head = "decision_id,time,demand,rain,event,tourists,strike,price,reward"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


@pytest.fixture
def settings(postgres_url: str) -> Settings:
    return settings_for(postgres_url, database={"replicas": True, "lock_wait_seconds": 0.0})


def run(settings: Settings, file: Path, **steps: Any) -> ImportResult:
    work = Import(settings, file, "history", digest_of(file), Runtime())
    return work.run(HistoryReader(settings, open_table(file)), **steps)


@pytest.fixture
def replicas(settings: Settings) -> Iterator[list[RunningCity]]:
    cities = [RunningCity(settings) for _ in range(2)]
    yield cities
    for city in cities:
        city.stop()


def test_an_import_beside_replicas_that_serve_is_refused_with_what_to_do(
    settings: Settings, file: Path, replicas: list[RunningCity]
) -> None:
    refusals = {
        2: r"2 replicas serve lisbon .*stop all of them first",
        1: r"a replica serves .*stop it first",
    }
    for serving, refusal in refusals.items():
        with pytest.raises(DatabaseInUse, match=refusal):
            run(settings, file)
        engine = sa.create_engine(settings.database.url)
        with engine.connect() as connection:
            for table in (imports, import_rows, feedback):
                assert connection.scalar(sa.select(sa.func.count()).select_from(table)) == 0
        engine.dispose()
        assert replicas[0].price(decision_id=f"d{serving}")["decision_id"] == f"d{serving}"
        replicas[1].stop()
    replicas[0].stop()
    assert run(settings, file).counted == ROWS


def test_replicas_cannot_start_before_an_import_has_ended_and_then_have_learned_it(
    settings: Settings, file: Path, tmp_path: Path
) -> None:
    def start_beside(_rows: int) -> None:
        with pytest.raises(DatabaseInUse, match="a process that must be alone"):
            Pricing(settings, Runtime()).open()

    with_earlier_replicas = RunningCity(settings)
    first = with_earlier_replicas.price(decision_id="first")
    assert with_earlier_replicas.feedback("first", 0.5).json()["version"] == 1
    with_earlier_replicas.stop()
    assert run(settings, file, on_rows=start_beside).counted == ROWS
    assert learn(settings, Runtime()) == ROWS + 1
    cities = [RunningCity(settings) for _ in range(2)]
    body = CONTEXT | {"decision_id": "later"}
    later = cities[0].http.post("/price", json=body).raise_for_status().json()
    assert cities[1].feedback("later", 0.75).json()["version"] == ROWS + 2
    until(lambda: all(city.pricing.version == ROWS + 2 for city in cities))
    alone = settings_for(f"sqlite:///{tmp_path}/alone.db")
    expected = Pricing(alone, Runtime()).live
    _learn_by_hand(expected, settings, file, first, later)
    for city in cities:
        assert_same_learner(city.pricing.live, expected)
        city.stop()
    engine = sa.create_engine(settings.database.url)
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(decisions)) == ROWS + 2
        versions = sorted(connection.scalars(sa.select(feedback.c.version)))
    engine.dispose()
    assert versions == list(range(1, ROWS + 3))


def _learn_by_hand(live: Any, settings: Settings, file: Path, first: Any, later: Any) -> None:
    """The same rows in the same order, in one learner that has no database."""
    context = settings.features.space.vector(CONTEXT["shared"], CONTEXT["local"])

    def learn_one(x: Any, arm: int, reward: float) -> None:
        live.learner.learn(x, arm, reward)
        live.lesson_counts[arm] += 1
        live.reward_sums[arm] += reward
        live.rewards.add(reward)

    learn_one(context, first["arm"], 0.5)
    for batch in HistoryReader(settings, open_table(file)).batches():
        for x, arm, amount in zip(batch.contexts, batch.arms, batch.amounts, strict=True):
            assert amount is not None
            learn_one(x, int(arm), amount)
    learn_one(context, later["arm"], 0.75)
