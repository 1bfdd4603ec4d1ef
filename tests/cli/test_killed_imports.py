"""`pricemesh import`, killed at any moment: all counts or nothing, and the same command completes it."""

import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
import tomli_w

from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.pricing import Pricing
from pricemesh.runtime import Runtime
from pricemesh.store.migration import migrate
from pricemesh.store.tables import decisions, feedback, import_rows, imports
from tests.postgres import Postgres
from tests.running import patient, settings_for

ROWS = 10_000  # five commits of staged rows
SECTIONS: dict[str, Any] = {
    "arms": {"prices": [8.0, 9.0, 10.0]},
    "features": {"shared": [{"name": "rain", "min": 0, "max": 1}]},
    "reward": {"kind": "purchase"},
}
NewDatabase = Callable[[], str]
_numbers = count()


@pytest.fixture
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> NewDatabase:
    def sqlite() -> str:
        return f"sqlite:///{tmp_path}/city{next(_numbers)}.db"

    def postgres() -> str:
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_database(f"imports{next(_numbers)}")
        migrate(url, "head", "lisbon")
        return url

    return sqlite if request.param == "sqlite" else postgres


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng, path = Random(3), tmp_path / "sales.csv"
    rows = (
        f"h{i},{1.7e9 + rng.randrange(ROWS)},{rng.random()},{rng.choice([8, 9, 9.5, 10])},{rng.randrange(2)}"
        for i in range(ROWS)
    )
    path.write_text("\n".join(["decision_id,time,rain,price,sold", *rows]) + "\n")
    return path


def command(file: Path, url: str) -> list[str]:
    config = file.with_suffix(".toml")
    config.write_text(tomli_w.dumps(patient(url, dict(SECTIONS))))
    return [sys.executable, "-m", "pricemesh", "import", str(file), "--config", str(config)]


def complete(file: Path, url: str) -> str:
    done = subprocess.run(command(file, url), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def killed_after(seconds: float, file: Path, url: str) -> None:
    process = subprocess.Popen(command(file, url), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def progress(url: str) -> str:
    """How far an import is, by the tables, which must agree with each other."""
    engine = sa.create_engine(url)
    if not sa.inspect(engine).has_table("imports"):
        return "no tables"
    with engine.connect() as connection:
        found = connection.execute(sa.select(imports)).first()
        rows, answers, staged = (
            connection.scalar(sa.select(sa.func.count()).select_from(table))
            for table in (decisions, feedback, import_rows)
        )
    engine.dispose()
    if found is None:
        assert (rows, answers, staged) == (0, 0, 0)
        return "not begun"
    if found.finished_at is None:
        assert (rows, answers) == (0, 0)
        assert f'"staged": {staged}' in found.progress
        return "staging"
    assert (rows, answers, staged) == (ROWS, ROWS, 0)
    return "finished"


def learner_of(url: str) -> LiveLearner:
    pricing = Pricing(settings_for(url, **SECTIONS), Runtime())
    pricing.open()
    pricing.database.close()
    return pricing.live


def assert_equal(one: LiveLearner, other: LiveLearner) -> None:
    assert one.version == other.version == ROWS
    for name, value in one.learner.state().items():
        np.testing.assert_array_equal(value, other.learner.state()[name], err_msg=name)


@pytest.mark.parametrize(
    ("new_database", "kills"),
    [
        ("sqlite", 2),
        pytest.param("sqlite", 50, marks=pytest.mark.slow),
        pytest.param("postgres", 20, marks=pytest.mark.slow),
    ],
    indirect=["new_database"],
)
def test_a_kill_leaves_nothing_or_everything_and_the_same_command_completes_it(
    new_database: NewDatabase, kills: int, file: Path
) -> None:
    url, rng = new_database(), Random(kills)
    began_at = time.monotonic()
    complete(file, url)
    seconds = time.monotonic() - began_at
    expected, url = learner_of(url), new_database()
    seen: list[str] = []
    for _ in range(kills):
        killed_after(rng.uniform(0.2 * seconds, 1.1 * seconds), file, url)
        seen.append(progress(url))
        if seen[-1] == "finished" or rng.random() < 0.3:
            text = complete(file, url)
            assert ("nothing to do" in text) == (seen[-1] == "finished")
            assert_equal(learner_of(url), expected)
            url = new_database()
    complete(file, url)
    assert_equal(learner_of(url), expected)
    assert kills < 20 or len(set(seen)) > 1, f"all kills met the same state: {seen[0]}"
