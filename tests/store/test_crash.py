"""kill -9 at random moments under load: nothing acknowledged is lost, nothing is learned twice.

A few kills in `make test`, all of them in `make soak`.
"""

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest
import sqlalchemy as sa

from pricemesh.core.policies import Shape, make_policy
from pricemesh.store.migration import migrate
from pricemesh.store.tables import decisions, feedback
from tests.postgres import Postgres
from tests.running import CityProcess

CALLERS = 4


@dataclass
class Answers:
    """What callers were answered."""

    decisions: dict[str, int] = field(default_factory=dict)
    feedback: dict[str, tuple[float, int]] = field(default_factory=dict)


def load(url: str, run: int, caller: int, answers: Answers, stop: threading.Event) -> None:
    """Ask for prices and answer them, most of them twice, until the city is gone."""
    rng = Random(run * 100 + caller)
    with httpx.Client(base_url=url, timeout=10) as http:
        number = 0
        while not stop.is_set():
            number += 1
            id_ = f"r{run}-c{caller}-{number}"
            body = {
                "shared": {"demand": rng.random(), "rain": rng.random(), "event": 0.0},
                "local": {"tourists": rng.random(), "strike": 0.0},
                "decision_id": id_,
            }
            try:
                answer = http.post("/price", json=body)
                assert answer.status_code == 200, answer.text
                answers.decisions[id_] = answer.json()["arm"]
                reward = rng.gauss(0, 1)
                for _ in range(rng.choice((1, 2))):
                    answer = http.post("/feedback", json={"decision_id": id_, "reward": reward})
                    assert answer.status_code == 200, answer.text
                    answers.feedback[id_] = (reward, answer.json()["version"])
            except httpx.TransportError:
                return


def check(url: str, database_url: str, answers: Answers, probe_id: str) -> None:
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        arms_by_id = dict(connection.execute(sa.select(decisions.c.id, decisions.c.arm)).all())
        rows = connection.execute(
            sa.select(decisions, feedback.c.reward, feedback.c.version)
            .join_from(feedback, decisions, feedback.c.decision == decisions.c.number)
            .order_by(feedback.c.version)
        ).all()
        waiting = connection.execute(
            sa.select(decisions.c.arm, decisions.c.vectors)
            .join_from(decisions, feedback, feedback.c.decision == decisions.c.number, isouter=True)
            .where(feedback.c.number.is_(None))
        ).all()
    engine.dispose()
    assert answers.decisions.items() <= arms_by_id.items(), "an acknowledged decision was lost"
    rewards = {row.id: (row.reward, row.version) for row in rows}
    assert len(rewards) == len(rows), "a decision was learned twice"
    assert answers.feedback.items() <= rewards.items(), "an acknowledged feedback was lost or changed"
    assert [row.version for row in rows] == list(range(1, len(rows) + 1))

    rebuilt = make_policy("netpool").learner(Shape(5, 3, 2))
    for row in rows:
        rebuilt.learn(np.frombuffer(row.vectors, count=5), row.arm, row.reward)
    for row in waiting:
        rebuilt.pend(np.frombuffer(row.vectors, count=5)[None], np.array([row.arm]))
    probe = {
        "shared": {"demand": 0.3, "rain": 0.6, "event": 1.0},
        "local": {"tourists": 0.5, "strike": 1.0},
    }
    with httpx.Client(base_url=url, timeout=10) as http:
        assert http.get("/state").json()["version"] == len(rows)
        sales = http.get("/sales").json()["total"]
        assert (sales["decisions"], sales["answered"]) == (len(arms_by_id), len(rows))
        assert sales["reward"] == pytest.approx(sum(row.reward for row in rows), abs=1e-6)
        assert http.post("/price", json=probe | {"decision_id": probe_id}).status_code == 200
        arms: list[dict[str, Any]] = http.get(f"/decisions/{probe_id}").json()["arms"]
    score = rebuilt.score([0.3, 0.6, 1.0, 0.5, 1.0])
    np.testing.assert_allclose([arm["estimate"] for arm in arms], score.estimate, atol=1e-9)
    np.testing.assert_allclose([arm["radius"] for arm in arms], score.radius, atol=1e-9)


def kill_again_and_again(folder: Path, database_url: str, kills: int) -> Answers:
    rng = Random(kills)
    answers = Answers()
    for run in range(kills):
        city = CityProcess(folder, database_url)
        check(city.url, database_url, answers, f"probe{run}")
        stop = threading.Event()
        callers = [
            threading.Thread(target=load, args=(city.url, run, caller, answers, stop))
            for caller in range(CALLERS)
        ]
        for caller in callers:
            caller.start()
        enough, deadline = len(answers.feedback) + 12, time.monotonic() + 30
        while len(answers.feedback) < enough and time.monotonic() < deadline:
            time.sleep(0.005)
        stop.wait(rng.uniform(0.0, 0.4))
        city.kill()
        stop.set()
        for caller in callers:
            caller.join()
    city = CityProcess(folder, database_url)
    check(city.url, database_url, answers, "last-probe")
    assert city.stop() == 0
    return answers


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_kill_9_on_sqlite(tmp_path: Path, kills: int) -> None:
    answers = kill_again_and_again(tmp_path, f"sqlite:///{tmp_path}/city.db", kills)
    print(
        f"{kills} kills, {len(answers.decisions)} decisions and {len(answers.feedback)} feedback acknowledged"
    )
    assert len(answers.feedback) > 10 * kills


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_kill_9_on_postgres(postgres: Postgres, tmp_path: Path, kills: int) -> None:
    url = postgres.new_database(f"crash{kills}")
    migrate(url, "head", "lisbon")
    answers = kill_again_and_again(tmp_path, url, kills)
    print(
        f"{kills} kills, {len(answers.decisions)} decisions and {len(answers.feedback)} feedback acknowledged"
    )
    assert len(answers.feedback) > 10 * kills
