"""`pricemesh prune` and `pricemesh forget` as an operator runs them."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pricemesh.city.configuration import as_variables
from pricemesh.cli import app
from pricemesh.cli.prune import age_seconds
from pricemesh.errors import DatabaseInUse, InvalidParameter
from tests.city.old_rows import DAY, PER_DAY, START, WINDOW_DAYS, Tables, write_days, years_settings
from tests.running import CONFIG, RunningCity

CUTOFF_DAY = 14.5  # between the decisions of two days


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    settings = years_settings(f"sqlite:///{tmp_path}/city.db", {"name": "netpool"})
    write_days(settings, range(30))
    return settings


def run(settings: Any, *words: str, stdin: str = "") -> Result:
    config = {
        **CONFIG,
        "database": {"url": settings.database.url, "lock_wait_seconds": 0.0},
        "feedback": {"window_seconds": WINDOW_DAYS * DAY},
        "reward": {"kind": "value", "largest": 1e6},
    }
    return CliRunner().invoke(app, list(words), input=stdin, env=as_variables(config))


def age() -> str:
    """Of the cutoff, now."""
    return f"{(time.time() - START - CUTOFF_DAY * DAY) / 3600:.3f}h"


def test_a_dry_run_counts_and_deletes_nothing(settings: Any) -> None:
    answer = run(settings, "prune", "--older-than", age(), "--dry-run")
    assert answer.exit_code == 0
    assert "leave, made from 2023-11-14 22:13 UTC to 2023-11-28 22:13 UTC" in answer.stdout
    assert "retracted" in answer.stdout
    assert "cannot be undone" in answer.stderr
    assert len(Tables(settings).rows()) == 30 * PER_DAY


def test_a_prune_asks_first(settings: Any) -> None:
    answer = run(settings, "prune", "--older-than", age(), stdin="n\n")
    assert answer.exit_code == 1
    assert len(Tables(settings).rows()) == 30 * PER_DAY
    answer = run(settings, "prune", "--older-than", age(), stdin="y\n")
    assert answer.exit_code == 0
    assert "deleted " in answer.stdout
    assert len(Tables(settings).rows()) < 30 * PER_DAY
    again = run(settings, "prune", "--older-than", age(), "--yes")
    assert "none leaves" in again.stdout


def test_vacuum_makes_the_file_smaller(settings: Any) -> None:
    path = settings.database.url.removeprefix("sqlite:///")
    size = os.path.getsize(path)
    assert run(settings, "prune", "--older-than", age(), "--yes").exit_code == 0
    assert os.path.getsize(path) >= size
    assert run(settings, "prune", "--older-than", age(), "--yes", "--vacuum").exit_code == 0
    assert os.path.getsize(path) < size


def test_a_city_that_serves_is_not_pruned(settings: Any) -> None:
    city = RunningCity(settings)
    answer = run(settings, "prune", "--older-than", age(), "--yes")
    assert isinstance(answer.exception, DatabaseInUse)
    answer = run(settings, "forget", "--subject", "customer1")
    assert isinstance(answer.exception, DatabaseInUse)
    assert "name the city's address" in str(answer.exception)
    answer = run(settings, "forget", "--subject", "customer1", city.url)
    assert answer.exit_code == 0
    assert "removed from" in answer.stdout
    city.stop()


@pytest.mark.parametrize("text", ["400", "d", "-4d", "0d", "4m", "4 d"])
def test_an_age_is_a_number_with_a_unit(text: str) -> None:
    with pytest.raises(InvalidParameter, match="such as 400d"):
        age_seconds(text)


def test_ages_are_in_hours_days_or_weeks() -> None:
    assert [age_seconds(text) for text in ("36h", "400d", "2w")] == [129_600.0, 34_560_000.0, 1_209_600.0]


def test_a_stopped_city_forgets_a_subject(settings: Any) -> None:
    counted = run(settings, "forget", "--subject", "customer1", "--dry-run")
    assert counted.stdout.endswith("decisions have this subject\n")
    count = int(counted.stdout.split()[0])
    assert count > 3
    answer = run(settings, "forget", "--subject", "customer1")
    assert answer.stdout == f"removed from {count} decisions\n"
    assert run(settings, "forget", "--subject", "customer1").stdout == "removed from 0 decisions\n"
    refused = run(settings, "forget", "--subject", "customer1", "http://127.0.0.1:1", "--dry-run")
    assert isinstance(refused.exception, InvalidParameter)
