"""`pricemesh reshape` as a command: what it prints, and what is left when it is killed."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa
import tomli_w

from pricemesh.city.configuration import load_settings
from pricemesh.store.tables import city, feedback, learner, mesh, terms
from tests.city.test_reshaping import FIRST, KINDS, LOCAL, PRICES, SHARED, WEEKEND, teach, with_features
from tests.running import RunningCity, patient, settings_for


def configuration(folder: Path, url: str, **sections: Any) -> Path:
    path = folder / "city.toml"
    path.write_text(tomli_w.dumps(patient(url, {**FIRST, **KINDS["netpool"], **sections})))
    return path


def command(path: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "pricemesh", "reshape", "--config", str(path), *options]


def run(path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        command(path, *options), capture_output=True, text=True, env=environment, check=False
    )


def filled(url: str, count: int) -> None:
    running = RunningCity(settings_for(url, **FIRST, **KINDS["netpool"]))
    teach(running, FIRST, count, seed=1)
    running.stop()


def stored(url: str) -> dict[str, Any]:
    """All that a reshape changes."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        tables = {
            table.name: connection.execute(sa.select(table)).all() for table in (city, learner, mesh, terms)
        }
        tables["feedback"] = connection.execute(sa.select(sa.func.count(feedback.c.number))).all()
    engine.dispose()
    return tables


def test_it_says_what_would_change_and_then_does_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/city.db"
    filled(url, 40)
    before = stored(url)
    path = configuration(tmp_path, url, arms={"prices": PRICES[1:]})
    trial = run(path, "--dry-run")
    assert trial.returncode == 0, trial.stderr
    assert "price 8 leaves" in trial.stdout
    assert "nothing was changed" in trial.stdout
    assert stored(url) == before
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert "start the city" in done.stdout
    again = run(path)
    assert "nothing to do" in again.stdout
    running = RunningCity(settings_for(url, **{**FIRST, "arms": {"prices": PRICES[1:]}}, **KINDS["netpool"]))
    assert [arm["price"] for arm in running.state()["arms"]] == PRICES[1:]
    running.stop()


TOURISTS, COST = FIRST["features"]["local"]
PURCHASE = {"kind": "purchase", "max_units": 2}


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"arms": {"prices": [*PRICES, 13.0]}}, "new price 13. To keep what was learned, stop the city and"),
        ({"arms": {"prices": PRICES[1:]}}, "price 8 leaves."),
        ({"arms": {"prices": [7.5, *PRICES[1:]]}}, "new price 7.5; price 8 leaves."),
        (with_features([*SHARED, WEEKEND], LOCAL), "new feature weekend."),
        (with_features(SHARED[:2], LOCAL), "feature event leaves."),
        (with_features(SHARED, [TOURISTS, {**COST, "name": "fee"}]), "new feature fee; feature cost leaves."),
        (
            with_features(SHARED, [TOURISTS, {**COST, "max": 6}]),
            "bounds of cost were 0 to 5, are now 0 to 6",
        ),
        (with_features(SHARED[:2], [SHARED[2], *LOCAL]), "feature event becomes local."),
        (with_features(SHARED[::-1], LOCAL), "features in another order."),
        ({"city": "porto"}, "this database belongs to the city lisbon, not to porto: name another one"),
        ({"reward": PURCHASE}, "reward.kind was value and cannot become purchase"),
    ],
)
def test_a_start_with_a_changed_file_says_what_has_changed_and_which_command_to_run(
    sections: dict[str, Any], words: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/city.db"
    RunningCity(settings_for(url, **FIRST, **KINDS["netpool"])).stop()
    path = configuration(tmp_path, url, **sections)
    arguments = [sys.executable, "-m", "pricemesh", "serve", "--port", "0", "--config", str(path)]
    refused = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert words in refused.stderr
    run_command = re.search("run `pricemesh reshape --config ([^`]*)`", refused.stderr)
    if "city" in sections or "reward" in sections:
        assert run_command is None
        return
    assert run_command is not None
    options = run_command[1].replace("VALUE", "0.5").split()
    assert options.pop(0) == str(path)
    done = run(path, *options)
    assert done.returncode == 0, done.stderr
    RunningCity(load_settings(path)).stop()


def test_faults_are_told_in_one_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/city.db"
    path = configuration(tmp_path, url)
    empty = run(path)
    assert (empty.returncode, empty.stderr.count("\n")) == (2, 1)
    assert "there is no database" in empty.stderr
    running = RunningCity(settings_for(url, **FIRST, **KINDS["netpool"]))
    environment = os.environ | {"PRICEMESH_DATABASE_LOCK_WAIT_SECONDS": "0"}
    served = subprocess.run(command(path), capture_output=True, text=True, env=environment, check=False)
    running.stop()
    assert served.returncode == 2
    assert "another process" in served.stderr
    wrong = run(path, "--fill", "weekend")
    assert "--fill NAME=VALUE" in wrong.stderr


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_a_kill_leaves_what_was_before_or_what_is_after(
    kills: int, database_url: str, tmp_path: Path
) -> None:
    """Between two ladders and back, killed at any moment of the command's life."""
    filled(database_url, 200)
    rng, target = Random(7), 0
    ladders = [{"prices": PRICES[1:]}, {"prices": PRICES}]
    began_at = time.monotonic()
    configuration(tmp_path, database_url, arms=ladders[0])
    assert run(tmp_path / "city.toml").returncode == 0
    seconds = time.monotonic() - began_at
    for _ in range(kills):
        target = 1 - target
        path = configuration(tmp_path, database_url, arms=ladders[target])
        before = stored(database_url)
        process = subprocess.Popen(command(path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(0.0, 1.2 * seconds))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        after = stored(database_url)
        if after == before:
            target = 1 - target
            continue
        assert len(after["terms"]) == len(before["terms"]) + 1
        assert after["mesh"][0].epoch == before["mesh"][0].epoch + 1
        assert after["city"][0].rewrites == before["city"][0].rewrites + 1
        assert after["city"][0].terms == after["terms"][-1].id
        assert f'"rewrites": {after["city"][0].rewrites}' in after["learner"][0].tallies
        assert after["feedback"] == before["feedback"]
    running = RunningCity(
        settings_for(database_url, **{**FIRST, "arms": ladders[target]}, **KINDS["netpool"])
    )
    assert running.pricing.version == len([i for i in range(200) if i % 7])
    running.stop()
