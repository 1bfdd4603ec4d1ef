"""How a city's cost grows with the rows it keeps: `make bench-growth`, about ten minutes.

Two cities side by side, one with 10,000 decisions and one with 1,000,000, a tenth of them answered:
memory, time to start, and the rate of /price and /feedback in turn.
"""

import random
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import httpx
from rich.console import Console
from rich.table import Table

from pricemesh.lab.bench.load import (
    Server,
    city,
    city_environment,
    context,
    fresh_ids,
    loaded,
    requests,
    served,
)
from pricemesh.lab.bench.ratios import spread

SIZES = {"small": 10_000, "large": 1_000_000}
STARTS, REPETITIONS, SECONDS = 5, 7, 4


def fill(http: httpx.Client, rng: random.Random, count: int) -> None:
    for done in range(0, count, 1000):
        body = {"requests": [context(rng) for _ in range(1000)]}
        decisions = http.post("/price/batch", json=body).json()["decisions"]
        items = [{"decision_id": d["decision_id"], "reward": rng.random()} for d in decisions[:100]]
        http.post("/feedback/batch", json={"items": items})
        print(f"\rfilling {done + 1000:,} of {count:,}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def main() -> None:
    rng = random.Random(0)
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-growth-"))
    environments = {name: city_environment(f"sqlite:///{folder}/{name}.db") for name in SIZES}
    memory: dict[str, int] = {}
    for name, count in SIZES.items():
        with served(city(), folder, environments[name]) as server:
            fill(server.http, rng, count)
            memory[name] = server.resident_bytes()
    starts: dict[str, list[float]] = {name: [] for name in SIZES}
    for _ in range(STARTS):
        for name in SIZES:
            started = time.perf_counter()
            with served(city(), folder, environments[name]):
                starts[name].append(time.perf_counter() - started)
    rates: dict[tuple[str, str], list[float]] = {}
    prices = requests(folder, "price", [("/price", context(rng)) for _ in range(500)])
    with ExitStack() as stack:
        cities: dict[str, Server] = {
            name: stack.enter_context(served(city(), folder, environments[name])) for name in SIZES
        }
        for repetition in range(REPETITIONS):
            for name, server in cities.items():
                ids = fresh_ids(server.http, rng, 80_000)
                told = [("/feedback", {"decision_id": id_, "reward": rng.random()}) for id_ in ids]
                answers = requests(folder, name, told)
                for path, sent in (("/price", prices), ("/feedback", answers)):
                    rates.setdefault((name, path), []).append(loaded(server, sent, SECONDS).per_second)
            print(f"\r{repetition + 1}/{REPETITIONS}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table = Table(title="1,000,000 decisions against 10,000, SQLite", title_justify="left")
    for head in ("what", "10,000", "1,000,000", "ratio", "range"):
        table.add_column(head)
    table.add_row(
        "memory after filling",
        f"{memory['small'] / 2**20:.0f} MiB",
        f"{memory['large'] / 2**20:.0f} MiB",
        f"{memory['large'] / memory['small']:.2f}",
        "",
    )
    small, large = starts["small"], starts["large"]
    table.add_row(
        "start until it answers",
        f"{median(small):.2f} s",
        f"{median(large):.2f} s",
        *spread(large, small),
    )
    for path in ("/price", "/feedback"):
        low, high = rates["small", path], rates["large", path]
        table.add_row(
            f"{path} per second",
            f"{median(low):,.0f}",
            f"{median(high):,.0f}",
            *spread(high, low),
        )
    Console(width=110).print(table)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
