"""What an export of a million decisions takes: `make bench-history`, or `python -m benchmarks.history`.

The database is filled by the store's own commands, without a city. Time and memory are those of the command
`pricemesh export` in a process of its own.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from pricemesh.city.configuration import as_variables, settings_from
from pricemesh.city.settings import Settings
from pricemesh.core.decision import Decision, DecisionCodec, Occasion
from pricemesh.core.ucb import Score
from pricemesh.runtime import Runtime
from pricemesh.store.commands import SaveDecisions, SaveFeedback
from pricemesh.store.database import Database

ROWS = int(os.environ.get("HISTORY_ROWS", "1000000"))
COMMIT_ROWS = 4_000
FEATURES = 8
ARMS = 10
PEERS = 3
MAX_SECONDS, MAX_BYTES = 60.0, 300e6


class Measured(NamedTuple):
    label: str
    seconds: float
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
    codec, shape, began_at = DecisionCodec(settings.shape), settings.shape, 1.7e9
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
        database.commit([SaveFeedback(items, began_at + start + 60, False, 0.0, settings.margin)])
        print(f"\rfilled {start + size:,}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    database.close()


def measure(label: str, words: list[str], environment: dict[str, str], out: Path) -> Measured:
    began_at = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pricemesh", *words, "--out", str(out)],
        env=os.environ | environment,
        cwd=out.parent,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, label
    return Measured(label, time.monotonic() - began_at, _peak_bytes(usage), out.stat().st_size)


def _peak_bytes(usage: resource.struct_rusage) -> int:
    return int(usage.ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-bench-"))
    values = configuration(os.environ.get("BENCH_DATABASE_URL", f"sqlite:///{folder}/bench.db"))
    fill(settings_from(values), ROWS)
    environment = as_variables(values)
    runs = [
        measure("parquet", ["export"], environment, folder / "all.parquet"),
        measure("csv", ["export"], environment, folder / "all.csv"),
        measure("parquet, all columns", ["export", "--columns", "all"], environment, folder / "more.parquet"),
    ]
    table = Table(title=f"`pricemesh export` of {ROWS:,} decisions", title_justify="left")
    for head in ("file", "seconds", "memory", "size of the file"):
        table.add_column(head, justify="right")
    for run in runs:
        table.add_row(
            run.label,
            f"{run.seconds:.1f}",
            f"{run.memory_bytes / 1e6:,.0f} MB",
            f"{run.file_bytes / 1e6:,.0f} MB",
        )
    Console(width=110).print(table)
    shutil.rmtree(folder)
    if any(run.seconds > MAX_SECONDS or run.memory_bytes > MAX_BYTES for run in runs):
        raise SystemExit(f"more than {MAX_SECONDS:g} s or {MAX_BYTES / 1e6:g} MB")


if __name__ == "__main__":
    main()
