"""`pricemesh reshape --reload-replicas` while replicas serve: no decision or lesson under the wrong terms."""

import os
import subprocess
import threading
import time
from collections import deque
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest
import sqlalchemy as sa
import tomli_w

from pricemesh.city.settings import Settings
from pricemesh.core.policies import Learner
from pricemesh.errors import ReplicasServe
from pricemesh.runtime import Runtime
from pricemesh.serving.server import OUTDATED
from pricemesh.store.maintenance import owning
from pricemesh.store.takeover import TakenDatabase
from tests.city.test_reshaping import FIRST, KINDS, SHARED, WEEKEND, context, states_agree
from tests.cli.test_reshape import command
from tests.running import MAX_WAIT_SECONDS, CityProcess, RunningCity, patient, settings_for, until
from tests.serving.test_supervisor import Parent

OLD = {**FIRST, **KINDS["netpool"]}
NEW = {
    **OLD,
    "arms": {"prices": [9.0, 9.5, 10.0, 11.0, 12.0]},  # every number of an arm means another price
    "features": {"shared": [WEEKEND, *SHARED], "local": FIRST["features"]["local"]},
}
FILL = ("--fill", "weekend=0.5")
UNANSWERED = 5  # decisions of a caller that wait for feedback at any time
CALLERS = 3


def write_configuration(path: Path, url: str, sections: dict[str, Any]) -> Path:
    values = patient(url, {**sections, "database": {"replicas": True}})
    path.write_text(tomli_w.dumps(values))
    return path


def reshape(path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "COLUMNS": "200", "PRICEMESH_DATABASE_LOCK_WAIT_SECONDS": "0"}
    arguments = command(path, *FILL, *options)
    return subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)


class Callers:
    """They send the context of the terms that the city last accepted."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.priced: dict[str, tuple[float, dict[str, Any]]] = {}  # acknowledged: price and context
        self.answered: dict[str, tuple[float, int]] = {}  # acknowledged: reward and version
        self.priced_anew = 0  # of these, under the new terms
        self._done = threading.Event()
        self._faults: list[BaseException] = []
        self._threads = [threading.Thread(target=self._try, args=(place,)) for place in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def _try(self, place: int) -> None:
        try:
            self._drive(place)
        except BaseException as fault:
            self._faults.append(fault)

    def _drive(self, place: int) -> None:
        rng, waiting, count = Random(place), deque[str](), 0
        with httpx.Client(base_url=self._address, timeout=5.0) as http:
            while not self._done.is_set():
                id_, count = f"{place}-{count}", count + 1
                old, new = context(rng, OLD), context(rng, NEW)
                body, answer = self._price(http, id_, [old, new])
                self.priced[id_] = answer["price"], body
                self.priced_anew += body is new
                waiting.append(id_)
                if len(waiting) > UNANSWERED:
                    oldest, reward = waiting.popleft(), rng.uniform(-5.0, 5.0)
                    body = {"decision_id": oldest, "reward": reward}
                    told = self._call(http, "/feedback", body).json()
                    self.answered[oldest] = reward, told["version"]

    def _price(
        self, http: httpx.Client, id_: str, bodies: list[dict[str, Any]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        for body in bodies:
            answer = self._call(http, "/price", {**body, "decision_id": id_})
            if answer.status_code == 200:
                return body, answer.json()
        raise AssertionError(answer.text)

    def _call(self, http: httpx.Client, path: str, body: dict[str, Any]) -> httpx.Response:
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while time.monotonic() < deadline:
            try:
                answer = http.post(path, json=body)
            except httpx.TransportError:
                continue
            if answer.status_code != 503:
                assert answer.status_code in (200, 422), answer.text
                return answer
        raise AssertionError(f"no replica answered {path}")

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
        if self._faults:
            raise self._faults[0]


class Rows:
    """What is stored, read by the names of the features that each row was made under."""

    def __init__(self, url: str) -> None:
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            query = "SELECT * FROM decisions LEFT JOIN feedback ON decision = decisions.number"
            self.rows = {row.id: row for row in connection.execute(sa.text(query))}
        engine.dispose()

    def sections(self, row: Any) -> dict[str, Any]:
        return OLD if row.terms is None else NEW

    def context(self, row: Any) -> dict[str, dict[str, float]]:
        features = self.sections(row)["features"]
        names = [(part, each["name"]) for part in ("shared", "local") for each in features[part]]
        values: dict[str, dict[str, float]] = {"shared": {}, "local": {}}
        for (part, name), value in zip(names, np.frombuffer(row.vectors), strict=False):
            values[part][name] = float(value)
        return values

    def learner(self, settings: Settings) -> Learner:
        """One that learns them from nothing, in the new terms."""
        learner, prices = settings.learner(), list(settings.arms.prices)
        names = [each.name for each in (*settings.features.shared, *settings.features.local)]
        for row in sorted(self.rows.values(), key=lambda row: (row.version is None, row.version, row.id)):
            if row.price not in prices:
                continue
            known = self.context(row)
            values = {"weekend": 0.5} | known["shared"] | known["local"]
            x, arm = np.array([values[name] for name in names]), prices.index(row.price)
            if row.version is None:
                learner.pend(x[None], np.array([arm]), None)
            else:
                learner.learn(x, arm, row.reward)
        return learner


def test_replicas_reload_under_load_and_nothing_is_lost_or_misread(postgres_url: str, tmp_path: Path) -> None:
    path = write_configuration(tmp_path / "city.toml", postgres_url, OLD)
    parent = Parent(tmp_path, {}, 2, config=path)
    try:
        address = str(parent.wait_for("replicas", 1)[0]["address"])
        parent.wait_for("serving", 2)
        callers = Callers(address)
        try:
            until(lambda: len(callers.answered) > 100)
            write_configuration(path, postgres_url, NEW)
            result = reshape(path, "--reload-replicas")
            assert result.returncode == 0, result.stderr
            parent.wait_for("serving", 4)
            until(lambda: callers.priced_anew > 100)
        finally:
            callers.stop()
        codes = [line["code"] for line in parent.lines("a replica ended and is started again")]
        assert set(codes) == {OUTDATED}
        parent.process.terminate()
        assert parent.process.wait(MAX_WAIT_SECONDS) == 0
    finally:
        parent.process.kill()
        parent.process.wait()
    check(callers, Rows(postgres_url), settings_for(postgres_url, **NEW))


def check(callers: Callers, stored: Rows, settings: Settings) -> None:
    for id_, (price, body) in callers.priced.items():
        row = stored.rows[id_]
        assert (row.price, stored.context(row)) == (price, body)
        assert stored.sections(row)["arms"]["prices"][row.arm] == price
    for id_, answer in callers.answered.items():
        assert (stored.rows[id_].reward, stored.rows[id_].version) == answer
    versions = sorted(row.version for row in stored.rows.values() if row.version is not None)
    assert versions == list(range(1, len(versions) + 1))
    single = RunningCity(settings)
    try:
        states_agree(stored.learner(settings).state(), single.pricing.learner.state())
    finally:
        single.stop()


def test_a_replica_with_the_old_configuration_ends_and_does_not_start_again(
    postgres_url: str, tmp_path: Path
) -> None:
    sections: dict[str, Any] = {**OLD, "database": {"replicas": True}}
    replica = CityProcess(tmp_path, postgres_url, **sections)
    result = reshape(write_configuration(tmp_path / "new.toml", postgres_url, NEW), "--reload-replicas")
    assert result.returncode == 0, result.stderr
    assert replica.wait() == OUTDATED
    assert "the city was reshaped" in replica.log
    with pytest.raises(RuntimeError, match=r"it was reshaped since\. Start it with the later one"):
        CityProcess(tmp_path, postgres_url, **sections)


def test_a_replica_whose_city_was_reshaped_takes_no_traffic(postgres_url: str, tmp_path: Path) -> None:
    replica = RunningCity(settings_for(postgres_url, **OLD, database={"replicas": True}))
    try:
        body = context(Random(1), OLD)
        assert replica.http.post("/price", json=body).status_code == 200
        path = write_configuration(tmp_path / "new.toml", postgres_url, NEW)
        assert reshape(path, "--reload-replicas").returncode == 0
        until(lambda: replica.pricing.health.is_outdated)
        for call, sent in (("/price", body), ("/feedback", {"decision_id": "none", "reward": 1.0})):
            answer = replica.http.post(call, json=sent)
            assert (answer.status_code, "reshape" in answer.text) == (503, True)
        assert replica.http.get("/readyz").status_code == 503
    finally:
        replica.stop()


def test_replicas_go_on_where_the_database_was_taken_and_nothing_changed(postgres_url: str) -> None:
    """As after a command that was killed right before its commit."""
    replica = RunningCity(settings_for(postgres_url, **OLD, database={"replicas": True}))
    try:
        database = TakenDatabase(postgres_url, "lisbon", Runtime())
        with database.alone():
            until(lambda: replica.http.get("/readyz").status_code == 503)
            assert replica.http.post("/price", json=context(Random(1), OLD)).status_code == 503
        database.close()
        until(lambda: replica.http.get("/readyz").status_code == 200)
        assert replica.http.post("/price", json=context(Random(1), OLD)).status_code == 200
    finally:
        replica.stop()


def test_without_the_option_replicas_are_in_the_way_and_a_trial_is_not(
    postgres_url: str, tmp_path: Path
) -> None:
    path = write_configuration(tmp_path / "new.toml", postgres_url, NEW)
    replicas = [RunningCity(settings_for(postgres_url, **OLD, database={"replicas": True})) for _ in range(2)]
    try:
        refused = reshape(path)
        assert refused.returncode == 2
        assert "2 replicas serve lisbon from this database: stop all of them first" in refused.stderr
        assert "--reload-replicas" in refused.stderr
        trial = reshape(path, "--dry-run")
        assert trial.returncode == 0, trial.stderr
        assert "new price 9.5" in trial.stdout
        with pytest.raises(ReplicasServe), owning(postgres_url, "lisbon"):
            pass
        for replica in replicas:
            assert replica.http.post("/price", json=context(Random(1), OLD)).status_code == 200
    finally:
        for replica in replicas:
            replica.stop()
