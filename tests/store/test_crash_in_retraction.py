"""kill -9 at random moments while feedback is retracted and retractions are lifted: a change is in force as a
whole or not at all, and what was acknowledged is.

A few kills in `make test`, all of them in `make soak`.
"""

import threading
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
from pricemesh.store.tables import city, decisions, feedback, mesh, retracted, retractions
from tests.postgres import Postgres
from tests.running import CityProcess, until

FEEDBACK = 600
PROBE = {"shared": {"demand": 0.3, "rain": 0.6, "event": 1.0}, "local": {"tourists": 0.5, "strike": 1.0}}
InForce = dict[int, frozenset[str]]  # ids of decisions, by retraction


@dataclass
class Operator:
    """Retracts and lifts without an end; knows what was acknowledged, and what was asked for last."""

    rng: Random
    in_force: InForce = field(default_factory=dict)
    next_id: int = 1
    attempt: InForce | None = None  # what would be in force after the call under way
    answers: int = 0

    def act(self, url: str) -> None:
        with httpx.Client(base_url=url, timeout=60) as http:
            while True:
                try:
                    self._change(http)
                except httpx.TransportError:
                    return

    def _change(self, http: httpx.Client) -> None:
        if self.in_force and self.rng.random() < 0.5:
            retraction = self.rng.choice(sorted(self.in_force))
            path, body = f"/admin/retractions/{retraction}/lift", {"reason": "right"}
            self.attempt = {id_: ids for id_, ids in self.in_force.items() if id_ != retraction}
        else:
            ids = self.rng.sample([f"d{i}" for i in range(FEEDBACK)], self.rng.randrange(1, 200))
            path, body = "/admin/retract", {"reason": "wrong", "decisions": ids}  # type: ignore[dict-item]
            self.attempt = {**self.in_force, self.next_id: frozenset(ids)}
        answer = http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["relearned"]
        self.know(self.attempt)
        self.answers += 1

    def know(self, in_force: InForce) -> None:
        self.next_id = max(self.next_id, *(id_ + 1 for id_ in in_force), 1)
        self.in_force, self.attempt = in_force, None


def teach(url: str, rng: Random) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        names = ("demand", "rain", "event"), ("tourists", "strike")
        for start in range(0, FEEDBACK, 100):
            ids = [f"d{i}" for i in range(start, start + 100)]
            shared, local = ([{name: rng.random() for name in each} for _ in ids] for each in names)
            requests = [
                {"shared": one, "local": other, "decision_id": id_}
                for one, other, id_ in zip(shared, local, ids, strict=True)
            ]
            http.post("/price/batch", json={"requests": requests}).raise_for_status()
            items = [{"decision_id": id_, "reward": rng.gauss(0, 1)} for id_ in ids]
            http.post("/feedback/batch", json={"items": items}).raise_for_status()


def stored(database_url: str) -> tuple[InForce, dict[str, Any]]:
    """The retractions in force, and all rows of decisions with their reward by id."""
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        active = connection.scalars(sa.select(retractions.c.id).where(retractions.c.lifted_at.is_(None)))
        covered: dict[int, set[str]] = {id_: set() for id_ in active}
        query = sa.select(retracted.c.retraction, decisions.c.id).select_from(
            retracted.join(feedback, feedback.c.number == retracted.c.feedback).join(
                decisions, decisions.c.number == feedback.c.decision
            )
        )
        for retraction, id_ in connection.execute(query):
            covered[retraction].add(id_)  # a lifted one covers nothing
        rows = connection.execute(
            sa.select(decisions.c.id, decisions.c.arm, decisions.c.vectors, feedback.c.reward)
            .join_from(decisions, feedback, feedback.c.decision == decisions.c.number, isouter=True)
            .order_by(feedback.c.version, decisions.c.number)
        ).all()
        rewrites = connection.scalar(sa.select(city.c.rewrites)) or 0
        epoch = connection.scalar(sa.select(mesh.c.epoch))
    engine.dispose()
    assert epoch == rewrites + 1, "every change begins an epoch"
    return {id_: frozenset(ids) for id_, ids in covered.items()}, {row.id: row for row in rows}


def check(url: str, database_url: str, operator: Operator, probe_id: str) -> None:
    in_force, rows = stored(database_url)
    assert in_force in (operator.in_force, operator.attempt), "neither before nor after"
    operator.know(in_force)
    hidden = frozenset().union(*in_force.values())
    rebuilt = make_policy("netpool").learner(Shape(5, 3, 2))
    for row in rows.values():
        context = np.frombuffer(row.vectors, count=5)
        if row.reward is None:
            rebuilt.pend(context[None], np.array([row.arm]))
        elif row.id not in hidden:
            rebuilt.learn(context, row.arm, row.reward)
    with httpx.Client(base_url=url, timeout=60) as http:
        state = http.get("/state").json()
        assert state["lessons"]["retracted"] == len(hidden)
        assert state["lessons"]["learned"] == FEEDBACK - len(hidden)
        http.post("/price", json=PROBE | {"decision_id": probe_id}).raise_for_status()
        arms: list[dict[str, Any]] = http.get(f"/decisions/{probe_id}").json()["arms"]
    score = rebuilt.score([0.3, 0.6, 1.0, 0.5, 1.0])
    np.testing.assert_allclose([arm["estimate"] for arm in arms], score.estimate, atol=1e-9)
    np.testing.assert_allclose([arm["radius"] for arm in arms], score.radius, atol=1e-9)


def change_until_killed(operator: Operator, process: CityProcess, seconds: float) -> None:
    """Kill the city this long after the first answer."""
    before = operator.answers
    acting = threading.Thread(target=operator.act, args=(process.url,))
    acting.start()
    until(lambda: operator.answers > before or not acting.is_alive())
    acting.join(seconds)
    process.kill()
    acting.join()
    assert operator.answers > before


def kill_again_and_again(folder: Path, database_url: str, kills: int) -> Operator:
    operator, moments = Operator(Random(kills)), Random(-kills)
    for run in range(kills):
        process = CityProcess(folder, database_url)
        if not run:
            teach(process.url, operator.rng)
        check(process.url, database_url, operator, f"probe{run}")
        change_until_killed(operator, process, moments.uniform(0.0, 0.15))
    process = CityProcess(folder, database_url)
    check(process.url, database_url, operator, "last-probe")
    assert process.stop() == 0
    return operator


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_kill_9_in_a_retraction_on_sqlite(tmp_path: Path, kills: int) -> None:
    operator = kill_again_and_again(tmp_path, f"sqlite:///{tmp_path}/city.db", kills)
    print(f"{kills} kills, {operator.answers} changes acknowledged")


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_kill_9_in_a_retraction_on_postgres(postgres: Postgres, tmp_path: Path, kills: int) -> None:
    url = postgres.new_database(f"retraction{kills}")
    migrate(url, "head", "lisbon")
    operator = kill_again_and_again(tmp_path, url, kills)
    print(f"{kills} kills, {operator.answers} changes acknowledged")
