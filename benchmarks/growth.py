"""How the cost of a city grows with the rows in its database: `make bench-growth`, about ten minutes.

Two cities, one with 10,000 decisions and one with 1,000,000, a tenth of them with feedback: memory, time to
start, and the rates of /price and /feedback in turn.
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
    apply_load,
    city_command,
    city_environment,
    fresh_ids,
    random_context,
    serve,
    write_requests,
)
from pricemesh.lab.bench.ratios import spread

SIZES = {"small": 10_000, "large": 1_000_000}
STARTS, REPETITIONS, SECONDS = 5, 7, 4

Environments = dict[str, dict[str, str]]  # by city


def fill(http: httpx.Client, rng: random.Random, count: int) -> None:
    for start in range(0, count, 1000):
        body = {"requests": [random_context(rng) for _ in range(1000)]}
        decisions = http.post("/price/batch", json=body).json()["decisions"]
        items = [{"decision_id": d["decision_id"], "reward": rng.random()} for d in decisions[:100]]
        http.post("/feedback/batch", json={"items": items})
        print(f"\rfilling {start + 1000:,} of {count:,}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def measure_starts(folder: Path, environments: Environments) -> dict[str, list[float]]:
    """Seconds from the command to the first answer."""
    starts: dict[str, list[float]] = {name: [] for name in SIZES}
    for _ in range(STARTS):
        for name in SIZES:
            started = time.perf_counter()
            with serve(city_command(), folder, environments[name]):
                starts[name].append(time.perf_counter() - started)
    return starts


def measure_rates(
    folder: Path, environments: Environments, rng: random.Random
) -> dict[tuple[str, str], list[float]]:
    """Calls a second by city and path."""
    rates: dict[tuple[str, str], list[float]] = {}
    prices = write_requests(folder, "price", [("/price", random_context(rng)) for _ in range(500)])
    with ExitStack() as stack:
        cities: dict[str, Server] = {
            name: stack.enter_context(serve(city_command(), folder, environments[name])) for name in SIZES
        }
        for repetition in range(REPETITIONS):
            for name, server in cities.items():
                ids = fresh_ids(server.http, rng, 80_000)
                feedback = [("/feedback", {"decision_id": id_, "reward": rng.random()}) for id_ in ids]
                answers = write_requests(folder, name, feedback)
                for path, requests in (("/price", prices), ("/feedback", answers)):
                    rates.setdefault((name, path), []).append(
                        apply_load(server, requests, SECONDS).per_second
                    )
            print(f"\r{repetition + 1}/{REPETITIONS}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rates


def main() -> None:
    rng = random.Random(0)
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-growth-"))
    environments = {name: city_environment(f"sqlite:///{folder}/{name}.db") for name in SIZES}
    memory: dict[str, int] = {}
    for name, count in SIZES.items():
        with serve(city_command(), folder, environments[name]) as server:
            fill(server.http, rng, count)
            memory[name] = server.resident_bytes()
    starts = measure_starts(folder, environments)
    rates = measure_rates(folder, environments, rng)
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
