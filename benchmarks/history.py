"""What exports and imports take, and what `GET /export` costs `/price`: `make bench-history`.

The database is filled by the store's own commands, without a city. Time and memory are those of the command
`pricemesh export` in a process of its own. Then the city serves: callers that pause ask for prices beside an
export and without one, in turn.
"""

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from pricemesh.city.configuration import as_variables, settings_from
from pricemesh.city.settings import Settings
from pricemesh.core.decision import Decision, DecisionCodec, Margin, Occasion
from pricemesh.core.ucb import Score
from pricemesh.lab.bench.load import Load, Server, apply_load, city_command, serve, write_requests
from pricemesh.runtime import Runtime
from pricemesh.store.commands import SaveDecisions, SaveFeedback
from pricemesh.store.database import Database

ROWS = int(os.environ.get("HISTORY_ROWS", "1000000"))
COMMIT_ROWS = 4_000
BEGAN_AT = 1.7e9  # Unix seconds
WITHOUT_CHANCES = ("--map", "chance=unused")  # as of a file from elsewhere
ALL_COLUMNS = ("export", "--columns", "all")
SERVED_ROWS = 20_000  # a start has to learn them
FEATURES = 8
ARMS = 10
PEERS = 3
REPETITIONS, SECONDS, THINK_MILLISECONDS = 5, 4, 40
MEMORY = Path("/dev/shm")  # for the city that serves: on a busy disk, the disk would be measured
MAX_EXPORT_SECONDS, MAX_IMPORT_SECONDS, MAX_BYTES = 60.0, 120.0, 300e6


class Measured(NamedTuple):
    label: str
    seconds: float
    cpu_seconds: float
    memory_bytes: int
    file_bytes: int


def configuration(url: str) -> dict[str, object]:
    return {
        "city": "lisbon",
        "arms": {"prices": [float(price) for price in range(5, 5 + ARMS)]},
        "features": {"shared": [f"feature_{i}" for i in range(FEATURES)], "local": ["tourists", "strike"]},
        "reward": {"kind": "purchase"},
        "database": {"url": url},
    }


def fill(settings: Settings, rows: int) -> None:
    """Decisions with parts of peers, nine in ten of them with feedback."""
    rng = np.random.default_rng(0)
    database = Database(settings.database.url, settings.city, Runtime())
    database.open(settings.schema_description)
    list(database.lessons(0))
    codec, shape, began_at = DecisionCodec(settings.shape), settings.shape, BEGAN_AT
    prices = settings.arms.prices
    for start in range(0, rows, COMMIT_ROWS):
        size = min(COMMIT_ROWS, rows - start)
        contexts = rng.random((size, shape.dim))
        score = Score(rng.random((size, ARMS)), rng.random((size, ARMS)))
        vectors = codec.pack(contexts, score, [rng.random((size, PEERS))] * 2)
        arms = rng.integers(ARMS, size=size).tolist()
        occasion = Occasion(began_at + start, "demand", start, "faro,porto,braga")
        decisions = [
            Decision(f"d{start + i}", f"customer-{i}", arm, prices[arm], "[]", each, 0.5, 0.25, occasion)
            for i, (arm, each) in enumerate(zip(arms, vectors, strict=True))
        ]
        items = [(each.id, float(i % 3 == 0)) for i, each in enumerate(decisions) if i % 10]
        database.commit([SaveDecisions(decisions)])
        database.commit([SaveFeedback(items, began_at + start + 60, False, 0.0, {None: Margin()})])
        print(f"\rfilled {start + size:,}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    database.close()


def measure(label: str, words: list[str], environment: dict[str, str], file: Path) -> Measured:
    """A command that writes or reads `file`."""
    began_at = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pricemesh", *words, str(file)],
        env=os.environ | environment,
        cwd=file.parent,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, label
    seconds, cpu_seconds = time.monotonic() - began_at, usage.ru_utime + usage.ru_stime
    return Measured(label, seconds, cpu_seconds, _peak_bytes(usage), file.stat().st_size)


def _peak_bytes(usage: resource.struct_rusage) -> int:
    return int(usage.ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def table_of(title: str, runs: Sequence[Measured]) -> Table:
    table = Table(title=title, title_justify="left")
    for head in ("file", "seconds", "of one core", "memory", "size of the file"):
        table.add_column(head, justify="right")
    for run in runs:
        table.add_row(
            run.label,
            f"{run.seconds:.1f}",
            f"{run.cpu_seconds:.1f}",
            f"{run.memory_bytes / 1e6:,.0f} MB",
            f"{run.file_bytes / 1e6:,.0f} MB",
        )
    return table


def imports(folder: Path) -> list[Measured]:
    """Of the exports of all decisions, into new cities, with and without the learning at its end."""
    runs = []
    for name in ("all.parquet", "all.csv"):
        for policy in ("demand", "netpool"):
            url = f"sqlite:///{folder}/{name}.{policy}.db"
            fresh = as_variables(configuration(url) | {"policy": {"name": policy}})
            if policy == "demand":
                runs.append(measure(f"{name[4:]}, checked", ["import", "--dry-run"], fresh, folder / name))
            runs.append(measure(f"{name[4:]}, learned by {policy}", ["import"], fresh, folder / name))
    fresh = as_variables(configuration(f"sqlite:///{folder}/other.db"))
    words = ["import", *WITHOUT_CHANCES]
    runs.append(measure("csv without chances, learned by demand", words, fresh, folder / "all.csv"))
    return runs


class Reader:
    """Reads `GET /export` again and again."""

    def __init__(self, server: Server, wanted: bool) -> None:
        self.bytes = 0
        self._url = f"http://127.0.0.1:{server.port}/export"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        if wanted:
            self._thread.start()

    def _read(self) -> None:
        while not self._stop.is_set():
            with httpx.stream("GET", self._url, timeout=60, trust_env=False) as answer:
                for piece in answer.iter_raw():
                    self.bytes += len(piece)
                    if self._stop.is_set():
                        break

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()


def beside_prices(folder: Path, environment: dict[str, str]) -> Table:
    rng = random.Random(1)
    names = [f"feature_{i}" for i in range(FEATURES)]

    def context() -> dict[str, dict[str, float]]:
        shared = {name: round(rng.random(), 6) for name in names}
        return {"shared": shared, "local": {"tourists": 0.5, "strike": 0.0}}

    prices = write_requests(folder, "price", [("/price", context()) for _ in range(500)])
    loads: dict[bool, list[Load]] = {False: [], True: []}
    exported_bytes = 0
    with serve(city_command(), folder, environment) as server:
        for repetition in range(REPETITIONS):
            for wanted in (False, True) if repetition % 2 else (True, False):
                reader = Reader(server, wanted)
                load = apply_load(server, prices, SECONDS, think_milliseconds=THINK_MILLISECONDS)
                loads[wanted].append(load)
                reader.close()
                exported_bytes += reader.bytes
    rate = exported_bytes / (REPETITIONS * SECONDS)
    table = Table(title=f"/price beside a GET /export of {rate / 1e6:.1f} MB/s", title_justify="left")
    for head in ("", "prices a second", "p50", "p99", "p99, range of the runs"):
        table.add_column(head, justify="right")
    for wanted, label in ((False, "alone"), (True, "beside an export")):
        runs = loads[wanted]
        late = [1e3 * run.p99_seconds for run in runs]
        table.add_row(
            label,
            f"{median(run.per_second for run in runs):,.0f}",
            f"{1e3 * median(run.p50_seconds for run in runs):.1f} ms",
            f"{median(late):.1f} ms",
            f"{min(late):.1f} to {max(late):.1f} ms",
        )
    return table


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-bench-"))
    values = configuration(os.environ.get("BENCH_DATABASE_URL", f"sqlite:///{folder}/bench.db"))
    fill(settings_from(values), ROWS)
    environment = as_variables(values)
    runs = [
        measure("parquet", ["export", "--out"], environment, folder / "all.parquet"),
        measure("csv", ["export", "--out"], environment, folder / "all.csv"),
        measure("parquet, all columns", [*ALL_COLUMNS, "--out"], environment, folder / "more.parquet"),
    ]
    Console(width=110).print(table_of(f"`pricemesh export` of {ROWS:,} decisions", runs))
    imported = imports(folder)
    Console(width=110).print(table_of(f"`pricemesh import` of {ROWS:,} decisions", imported))
    memory = Path(tempfile.mkdtemp(prefix="pricemesh-bench-", dir=MEMORY if MEMORY.is_dir() else None))
    small = configuration(f"sqlite:///{memory}/small.db")
    fill(settings_from(small), SERVED_ROWS)
    Console(width=110).print(beside_prices(folder, as_variables(small)))
    shutil.rmtree(folder)
    shutil.rmtree(memory)
    seconds = {MAX_EXPORT_SECONDS: runs, MAX_IMPORT_SECONDS: imported}
    for limit, several in seconds.items():
        if any(run.seconds > limit or run.memory_bytes > MAX_BYTES for run in several):
            raise SystemExit(f"more than {limit:g} s or {MAX_BYTES / 1e6:g} MB")


if __name__ == "__main__":
    main()
