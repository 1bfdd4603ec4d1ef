"""What `pricemesh reshape` takes and leaves of a city with many decisions: `python -m benchmarks.reshaping`.

Six changes one after another, each by the command in a process of its own; between them the city makes more
decisions in its new terms. After each change the city's learner is compared with one that learns all rows
from nothing, read by plain SQL and translated here by the names of their features, and audit records of older
decisions with what they were, to the byte.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from pricemesh.city.configuration import as_variables, settings_from
from pricemesh.city.pricing import Pricing
from pricemesh.city.settings import Settings
from pricemesh.core.decision import Decision, DecisionCodec, Occasion
from pricemesh.core.policies import Learner
from pricemesh.core.ucb import Score
from pricemesh.lab.bench.load import city_command, serve
from pricemesh.lab.bench.postgres import Postgres
from pricemesh.runtime import Runtime
from pricemesh.store.commands import SaveDecisions, SaveFeedback
from pricemesh.store.database import Database
from pricemesh.store.migration import migrate
from pricemesh.store.replay import MAX_FIRST_DECISIONS

MAX_DIFFERENCE = 1e-9
# A small process between this one and the command: a child's peak memory begins with that of its parent.
MEASURED = """
import json, resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""
COMMIT_ROWS = 4_000
BEGAN_AT = 1.7e9  # Unix seconds
SAMPLE = 50  # audit records of each terms
REWARDS: dict[str, dict[str, Any]] = {
    "netpool": {"kind": "value", "largest": 100.0},
    "demand": {"kind": "purchase", "cost": "cost"},
}
UNIT = {"min": 0, "max": 1}
LOCAL = [{"name": "tourists", "min": -1, "max": 1}, {"name": "cost", "min": 0, "max": 5}]


def features(*shared: str) -> list[dict[str, Any]]:
    return [{"name": name, **UNIT} for name in shared]


@dataclass(frozen=True)
class Step:
    """Terms, and how they follow from those before."""

    label: str
    prices: Sequence[float]
    shared: Sequence[dict[str, Any]]
    filled: dict[str, float] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)  # new name -> old name

    def configuration(self, url: str, policy: str) -> dict[str, Any]:
        return {
            "city": "lisbon",
            "arms": {"prices": list(self.prices)},
            "features": {"shared": list(self.shared), "local": LOCAL},
            "reward": REWARDS[policy],
            "database": {"url": url},
        }

    @property
    def options(self) -> list[str]:
        fills = [f"--fill={name}={value}" for name, value in self.filled.items()]
        return fills + [f"--rename={new}={old}" for new, old in self.renamed.items()]


LADDER = (8.0, 9.5, 10.0, 11.5, 12.0)
STEPS = (
    Step("as it was", (8.0, 9.0, 10.0, 11.0, 12.0), features("rush", "rain", "event")),
    Step("add an arm", (8.0, 9.0, 9.5, 10.0, 11.0, 12.0), features("rush", "rain", "event")),
    Step("remove an arm", (8.0, 9.5, 10.0, 11.0, 12.0), features("rush", "rain", "event")),
    Step("reprice an arm", LADDER, features("rush", "rain", "event")),
    Step("add a feature", LADDER, features("weekend", "rush", "rain", "event"), {"weekend": 0.5}),
    Step("remove a feature", LADDER, features("weekend", "rush", "event")),
    Step("rename a feature", LADDER, features("weekend", "rush", "match"), {}, {"match": "event"}),
)


class Result(NamedTuple):
    label: str
    seconds: float
    cpu_seconds: float
    memory_bytes: int
    learned: int
    unreadable: int
    difference: float  # the largest, of any number of the learner
    records: int  # audit records that were compared


# The city and its rows


def make_decisions(settings: Settings, terms: int, count: int, rng: np.random.Generator) -> None:
    """By the store's own commands, without a city; six in seven get feedback."""
    database = Database(settings.database.url, settings.city, Runtime())
    newest = database.open(settings.schema_description).position.decision
    list(database.lessons(newest_version(settings.database.url)))
    margin = settings.margin
    margins = None if margin is None else {None if terms == 1 else terms: margin}
    for start in range(newest, newest + count, COMMIT_ROWS):
        rows = make_rows(settings, terms, start, min(COMMIT_ROWS, newest + count - start), rng)
        database.commit([SaveDecisions(rows)])
        amounts = rng.integers(2, size=len(rows)) if margins else rng.uniform(-5, 5, size=len(rows))
        items = [(row.id, float(amount)) for row, amount in zip(rows, amounts, strict=True)]
        answered = [item for i, item in enumerate(items) if i % 7]
        database.commit([SaveFeedback(answered, BEGAN_AT + start + 60, False, 0.0, margins)])
    database.close()


def make_rows(
    settings: Settings, terms: int, start: int, size: int, rng: np.random.Generator
) -> list[Decision]:
    space, prices = settings.features.space, settings.arms.prices
    low, high = np.array([(each.min, each.max) for each in (*space.shared, *space.local)]).T
    contexts = rng.uniform(low, high, size=(size, len(low)))
    score = Score(rng.random((size, len(prices))), rng.random((size, len(prices))))
    vectors = DecisionCodec(settings.shape).pack(contexts, score)
    occasion = Occasion(BEGAN_AT + start, settings.policy.name, start, terms=None if terms == 1 else terms)
    chances = rng.uniform(0.1, 0.9, size=size).tolist() if settings.reward.is_purchase else [None] * size
    return [
        Decision(f"d{start + i}", None, arm, prices[arm], "[]", vectors[i], 0.2, chance, occasion)
        for i, (arm, chance) in enumerate(
            zip(rng.integers(len(prices), size=size).tolist(), chances, strict=True)
        )
    ]


def newest_version(url: str) -> int:
    return int(select(url, "SELECT coalesce(max(version), 0) FROM feedback")[0][0])


def select(url: str, query: str) -> Sequence[Any]:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(sa.text(query)).all()
    engine.dispose()
    return rows


# A learner that learns the readable rows from nothing


class ByHand:
    """It counts what waits among the last MAX_FIRST_DECISIONS, as every learner does that is made anew."""

    def __init__(self, url: str, policy: str, steps: Sequence[Step]) -> None:
        self.settings = settings_from(steps[-1].configuration(url, policy))
        self.learner: Learner = self.settings.learner()
        self.learned = self.unreadable = 0
        self._steps = steps
        rows = select(
            url,
            "SELECT terms, price, vectors, chance, reward, sold, version FROM decisions "
            "LEFT JOIN feedback ON decision = decisions.number ORDER BY decisions.number",
        )
        for row in rows[-MAX_FIRST_DECISIONS:]:
            if row.version is None:
                self._pend(row)
        for row in sorted((row for row in rows if row.version is not None), key=lambda row: row.version):
            self._learn(row)

    def _context(self, row: Any) -> np.ndarray[Any, Any]:
        first = 0 if row.terms is None else row.terms - 1
        names = [each["name"] for each in (*self._steps[first].shared, *LOCAL)]
        values = dict(zip(names, np.frombuffer(row.vectors, count=len(names)), strict=True))
        for step in self._steps[first + 1 :]:
            values |= {new: values.pop(old) for new, old in step.renamed.items()}
            values |= step.filled
        return np.array([values[each["name"]] for each in (*self._steps[-1].shared, *LOCAL)])

    def _arm(self, row: Any) -> int | None:
        prices = list(self._steps[-1].prices)
        return prices.index(row.price) if row.price in prices else None

    def _pend(self, row: Any) -> None:
        arm = self._arm(row)
        if arm is not None:
            chance = None if row.chance is None else np.array([row.chance])
            self.learner.pend(self._context(row)[None], np.array([arm]), chance)

    def _learn(self, row: Any) -> None:
        arm, amount = self._arm(row), row.sold if self.learner.learns_sales else row.reward
        if arm is not None:
            self.learner.learn(self._context(row), arm, amount, row.chance)
        elif self.learner.learns_sales:
            self.learner.learn_at_price(self._context(row), row.price, amount, row.chance)
        else:
            self.unreadable += 1
            return
        self.learned += 1

    def difference(self) -> float:
        """Between this learner and the one that the city starts with, relative where a number is above 1."""
        pricing = Pricing(self.settings, Runtime())
        pricing.open()
        state, live = pricing.learner.state(), pricing.live
        pricing.database.close()
        assert (live.lessons_learned, live.counts.unreadable) == (self.learned, self.unreadable)
        expected = self.learner.state()
        assert state.keys() == expected.keys()
        return max(
            float(np.max(np.abs(state[name] - value) / np.maximum(1.0, np.abs(value)), initial=0.0))
            for name, value in expected.items()
        )


# The measurement


def audit_records(folder: Path, configuration: dict[str, Any], ids: Sequence[str]) -> dict[str, bytes]:
    with serve(city_command(), folder, as_variables(configuration)) as server:
        return {id_: server.http.get(f"/decisions/{id_}").content for id_ in ids}


def run_command(
    folder: Path, configuration: dict[str, Any], options: Sequence[str]
) -> tuple[float, float, int]:
    """Seconds, seconds of one core, and peak memory."""
    began_at = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", MEASURED, sys.executable, "-m", "pricemesh", "reshape", *options],
        env=os.environ | as_variables(configuration),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began_at
    assert result.returncode == 0, result.stderr
    cpu_seconds, peak = json.loads(result.stdout)
    return seconds, cpu_seconds, peak * (1 if sys.platform == "darwin" else 1024)


def study(folder: Path, url: str, policy: str, decisions: int, more: int) -> Iterator[Result]:
    rng = np.random.default_rng(0)
    settings = settings_from(STEPS[0].configuration(url, policy))
    make_decisions(settings, 1, decisions, rng)
    ids = [f"d{i}" for i in rng.choice(decisions, size=min(SAMPLE, decisions), replace=False)]
    records = audit_records(folder, STEPS[0].configuration(url, policy), ids)
    total = decisions
    for place, step in enumerate(STEPS[1:], start=1):
        configuration = step.configuration(url, policy)
        cost = run_command(folder, configuration, step.options)
        by_hand = ByHand(url, policy, STEPS[: place + 1])
        difference = by_hand.difference()
        fresh = [f"d{total + i}" for i in range(min(SAMPLE, more))]
        make_decisions(settings_from(configuration), place + 1, more, rng)
        total += more
        seen = audit_records(folder, configuration, [*records, *fresh])
        for id_, record in records.items():
            assert json.loads(record)["decision_id"] == id_
            assert seen[id_] == record, f"the audit record of {id_} has changed: {record!r}, {seen[id_]!r}"
        yield Result(step.label, *cost, by_hand.learned, by_hand.unreadable, difference, len(records))
        records = seen


def table_of(title: str, results: Sequence[Result]) -> Table:
    table = Table(title=title, title_justify="left")
    heads = (
        "change",
        "seconds",
        "of one core",
        "memory",
        "lessons",
        "unreadable",
        "difference",
        "same records",
    )
    for head in heads:
        table.add_column(head, justify="left" if head == "change" else "right")
    for each in results:
        table.add_row(
            each.label,
            f"{each.seconds:.1f}",
            f"{each.cpu_seconds:.1f}",
            f"{each.memory_bytes / 1e6:,.0f} MB",
            f"{each.learned:,}",
            f"{each.unreadable:,}",
            f"{each.difference:.1e}",
            f"{each.records:,}",
        )
    return table


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/city.db"
        return
    server = Postgres()
    try:
        url = server.new_database("city")
        migrate(url, "head", "lisbon")
        yield url
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--decisions", type=int, default=100_000, help="before the first change")
    parser.add_argument("--more", type=int, default=1_000, help="decisions after each change")
    parser.add_argument("--policy", choices=tuple(REWARDS), help="only this one; default: both")
    parser.add_argument("--database", choices=("sqlite", "postgres"), help="only this one; default: both")
    options = parser.parse_args()
    worst = 0.0
    for kind in [options.database] if options.database else ["sqlite", "postgres"]:
        for policy in [options.policy] if options.policy else REWARDS:
            folder = Path(tempfile.mkdtemp(prefix="pricemesh-bench-"))
            with database(kind, folder) as url:
                results = list(study(folder, url, policy, options.decisions, options.more))
            shutil.rmtree(folder)
            title = f"{policy} on {kind}, {options.decisions:,} decisions, {options.more:,} more after each"
            Console(width=110).print(table_of(title, results))
            worst = max(worst, *(each.difference for each in results))
    if worst > MAX_DIFFERENCE:
        raise SystemExit(f"a learner differs by {worst:g}, more than {MAX_DIFFERENCE:g}")


if __name__ == "__main__":
    main()
