"""Latency where half of the capacity is used, by callers who pause at random after every answer.

The disk decides most of it. So beside a city on the disk there are one whose database lies in memory, an
empty FastAPI endpoint, which has the machine's and the load's own unrest, and the disk itself.
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
    baseline,
    city,
    city_environment,
    context,
    loaded,
    requests,
    served,
)
from pricemesh.lab.bench.ratios import Ratio, Say, ratio

CONNECTIONS = 64
MEMORY = Path("/dev/shm")
LOG_PAGES = bytes(4 * 4096)  # about what one commit of a few prices adds to SQLite's log
DISK = "the disk alone, 16 KB written and synced"
LOG_BYTES = 4000 * 4096


def half_load(*, quick: bool, say: Say) -> list[Ratio]:
    repetitions, seconds = (2, 2.0) if quick else (5, 3.0)
    found: dict[str, list[tuple[float, float]]] = {}
    shares: dict[str, list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pricemesh-bench-")))
        servers = {
            "/price, SQLite": stack.enter_context(_city(folder, folder)),
            "an empty FastAPI endpoint": stack.enter_context(served(baseline("empty"), folder)),
        }
        if os.access(MEMORY, os.W_OK):
            memory = stack.enter_context(tempfile.TemporaryDirectory(prefix="pricemesh-bench-", dir=MEMORY))
            servers["/price, SQLite in memory"] = stack.enter_context(_city(folder, Path(memory)))
        rng = random.Random(2)
        prices = requests(folder, "half", [("/price", context(rng)) for _ in range(500)])
        say("capacity")
        capacity = {name: _capacity(server, prices) for name, server in servers.items()}
        for repetition in range(repetitions):
            say(f"latency at half load, {repetition + 1} of {repetitions}")
            for name, server in servers.items():
                load = _half_loaded(server, prices, capacity[name], seconds)
                found.setdefault(name, []).append((load.p99_seconds, load.p50_seconds))
                shares.setdefault(name, []).append(load.per_second / capacity[name])
            found.setdefault("the disk alone, 16 KB written and synced", []).append(
                _disk(folder, seconds / 2)
            )
    ratios = []
    for name, pairs in found.items():
        p99, p50 = zip(*pairs, strict=True)
        said = f"{median(p99) * 1e3:.2f} ms"
        if name in shares:
            said += f" at {median(shares[name]):.0%} of capacity"
        wanted = "≤ 3" if name == "/price, SQLite" else ""
        ratios.append(ratio(f"p99 of {name}", p99, "its p50", p50, measured=said, wanted=wanted))
    return ratios


def _city(folder: Path, place: Path) -> AbstractContextManager[Server]:
    return served(city(), folder, city_environment(f"sqlite:///{place}/latency.db"))


def _capacity(server: Server, prices: Requests) -> float:
    loaded(server, prices, 1)
    return median(loaded(server, prices, 1).per_second for _ in range(3))


def _half_loaded(server: Server, prices: Requests, capacity: float, seconds: float) -> Load:
    think = max(1, round(1000 * CONNECTIONS / (capacity / 2) - 1))
    return loaded(server, prices, seconds, connections=CONNECTIONS, think=think)


def _disk(folder: Path, seconds: float) -> tuple[float, float]:
    """p99 and p50 of writes as a log has them: in place, again from the start when it is full."""
    path = folder / "log"
    path.write_bytes(bytes(LOG_BYTES))
    took: list[float] = []
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.fsync(descriptor)
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            started = time.perf_counter()
            os.pwrite(descriptor, LOG_PAGES, len(took) * len(LOG_PAGES) % LOG_BYTES)
            os.fdatasync(descriptor)
            took.append(time.perf_counter() - started)
            time.sleep(0.0005)
    finally:
        os.close(descriptor)
    took.sort()
    return took[int(0.99 * len(took))], median(took)
