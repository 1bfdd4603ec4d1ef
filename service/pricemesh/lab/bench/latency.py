"""Latency at half of the capacity, from callers that pause at random after every answer.

Most of it is the disk. Beside a city on the disk the suite measures a city with its database in memory, an
empty FastAPI endpoint, which shows the jitter of the machine and of the load itself, and the disk alone.
"""

import os
import random
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median

from pricemesh.lab.bench.load import (
    Load,
    Requests,
    Server,
    apply_load,
    baseline_command,
    city_command,
    city_environment,
    random_context,
    serve,
    write_requests,
)
from pricemesh.lab.bench.ratios import Ratio, Say, ratio

CONNECTIONS = 64
MEMORY = Path("/dev/shm")
LOG_PAGES = bytes(4 * 4096)  # about what a commit of a few prices adds to SQLite's write-ahead log
DISK = "the disk alone, 16 KB written and synced"
LOG_BYTES = 4000 * 4096


def half_load(*, quick: bool, say: Say) -> list[Ratio]:
    repetitions, seconds = (2, 2.0) if quick else (5, 3.0)
    percentiles: dict[str, list[tuple[float, float]]] = {}
    shares: dict[str, list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pricemesh-bench-")))
        servers = {
            "/price, SQLite": stack.enter_context(_city(folder, folder)),
            "an empty FastAPI endpoint": stack.enter_context(serve(baseline_command("empty"), folder)),
        }
        if os.access(MEMORY, os.W_OK):
            memory = stack.enter_context(tempfile.TemporaryDirectory(prefix="pricemesh-bench-", dir=MEMORY))
            servers["/price, SQLite in memory"] = stack.enter_context(_city(folder, Path(memory)))
        rng = random.Random(2)
        prices = write_requests(folder, "half", [("/price", random_context(rng)) for _ in range(500)])
        say("capacity")
        capacity = {name: _capacity(server, prices) for name, server in servers.items()}
        for repetition in range(repetitions):
            say(f"latency at half load, {repetition + 1} of {repetitions}")
            for name, server in servers.items():
                load = _half_loaded(server, prices, capacity[name], seconds)
                percentiles.setdefault(name, []).append((load.p99_seconds, load.p50_seconds))
                shares.setdefault(name, []).append(load.per_second / capacity[name])
            percentiles.setdefault(DISK, []).append(_disk(folder, seconds / 2))
    ratios = []
    for name, pairs in percentiles.items():
        p99, p50 = zip(*pairs, strict=True)
        figure = f"{median(p99) * 1e3:.2f} ms"
        if name in shares:
            figure += f" at {median(shares[name]):.0%} of capacity"
        target = "≤ 3" if name == "/price, SQLite" else ""
        ratios.append(ratio(f"p99 of {name}", p99, "its p50", p50, figure=figure, target=target))
    return ratios


def _city(folder: Path, place: Path) -> AbstractContextManager[Server]:
    return serve(city_command(), folder, city_environment(f"sqlite:///{place}/latency.db"))


def _capacity(server: Server, prices: Requests) -> float:
    apply_load(server, prices, 1)
    return median(apply_load(server, prices, 1).per_second for _ in range(3))


def _half_loaded(server: Server, prices: Requests, capacity: float, seconds: float) -> Load:
    think_milliseconds = max(1, round(1000 * CONNECTIONS / (capacity / 2) - 1))
    return apply_load(server, prices, seconds, connections=CONNECTIONS, think_milliseconds=think_milliseconds)


def _disk(folder: Path, seconds: float) -> tuple[float, float]:
    """p99 and p50 of writes like those of a write-ahead log: in place, from the start again at the end."""
    path = folder / "log"
    path.write_bytes(bytes(LOG_BYTES))
    seconds_each: list[float] = []
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.fsync(descriptor)
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            started = time.perf_counter()
            os.pwrite(descriptor, LOG_PAGES, len(seconds_each) * len(LOG_PAGES) % LOG_BYTES)
            os.fdatasync(descriptor)
            seconds_each.append(time.perf_counter() - started)
            time.sleep(0.0005)
    finally:
        os.close(descriptor)
    seconds_each.sort()
    return seconds_each[int(0.99 * len(seconds_each))], median(seconds_each)
