"""kill -9 at any moment of a prune: it has happened, or it has not."""

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from pricemesh.city.pruning import Pruning
from pricemesh.city.settings import Settings
from pricemesh.store.pruning import PrunePlan
from tests.city.old_rows import (
    DAY,
    Row,
    Tables,
    assert_equal,
    brute_force,
    clock_at,
    started,
    write_days,
    years_settings,
)

ROOT = Path(__file__).parents[2]
FIRST_DAYS, MORE_DAYS, OLDER_THAN_DAYS = 30, 10, 15


class Content(NamedTuple):
    """What a prune changes."""

    rows: frozenset[int]
    base_version: int | None


class City:
    """A database in which a prune is killed again and again, and every row that it ever had."""

    def __init__(self, folder: Path, url: str, per_day: int) -> None:
        self.settings: Settings = years_settings(url, {"name": "netpool"})
        self._file = folder / "settings.json"
        sections = {"city", "arms", "features", "reward", "database", "feedback", "policy"}
        self._file.write_text(self.settings.model_dump_json(include=sections, exclude_unset=True))
        self._per_day = per_day
        self.tables = Tables(self.settings)
        self.day = 0
        self.rows: dict[int, Row] = {}
        self.write(FIRST_DAYS)

    def write(self, days: int) -> None:
        write_days(self.settings, range(self.day, self.day + days), self._per_day)
        self.day += days
        self.rows |= {row.number: row for row in self.tables.rows()}

    def content(self) -> Content:
        return Content(frozenset(row.number for row in self.tables.rows()), self.tables.base_version())

    def plan(self) -> PrunePlan:
        pruning = Pruning(self.settings, clock_at(self.day), OLDER_THAN_DAYS * DAY)
        plan = pruning.plan()
        pruning.close()
        return plan

    def start(self) -> "subprocess.Popen[str]":
        """A process that is ready to prune."""
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.city.prune_process",
                self._file,
                str(self.day),
                str(OLDER_THAN_DAYS),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "service"), str(ROOT)])},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def check(self, before: Content, version: int) -> bool:
        """Whether the prune has happened. The learner is the same in any case, also without its snapshot."""
        content = self.content()
        if content != before:
            assert content.base_version == version
            assert content.rows < before.rows
            assert min(row.version for row in self.tables.rows() if row.version is not None) == version + 1
        expected = brute_force(self.settings, list(self.rows.values()), self.tables.settled())
        assert_equal(self.settings, started(self.settings).learner, expected)
        self.tables.forget_snapshot()
        assert_equal(self.settings, started(self.settings).learner, expected)
        return content != before


def killed_at(city: City, moment: str) -> tuple[bool, int]:
    """Whether the prune has happened that kills itself then, and how many groups it reported."""
    before, version = city.content(), city.plan().version
    output, _ = (process := city.start()).communicate(f"{moment}\n", timeout=120)
    assert process.returncode == (0 if moment == "never" else -9)
    return city.check(before, version), int(output or 0)


def test_a_prune_that_is_killed_before_its_commit_has_not_happened(tmp_path: Path, database_url: str) -> None:
    city = City(tmp_path, database_url, per_day=8)
    assert killed_at(city, "1")[0] is False  # rows are being learned
    assert killed_at(city, "2")[0] is False  # rows are deleted, the base is written, nothing is committed
    assert killed_at(city, "end")[0] is True
    city.write(MORE_DAYS)
    assert killed_at(city, "never") == (True, 2)
    city.tables.close()


@pytest.mark.slow
def test_kill_9_at_random_moments(tmp_path: Path, database_url: str) -> None:
    city, rng = City(tmp_path, database_url, per_day=60), Random(7)
    began_at = time.monotonic()
    assert killed_at(city, "never")[0]
    longest = time.monotonic() - began_at
    happened = []
    for _ in range(50):
        if not city.plan().learned:
            city.write(MORE_DAYS)
        before, version = city.content(), city.plan().version
        process = city.start()
        assert process.stdin is not None
        process.stdin.write("never\n")
        process.stdin.flush()
        try:
            process.wait(timeout=rng.uniform(0.0, 0.4 * longest))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        happened.append(city.check(before, version))
    print(f"{happened.count(False)} had not happened, {happened.count(True)} had")
    assert set(happened) == {False, True}
    city.tables.close()
