"""What a city does with more than it can: `make bench-overload`. The city on one core, callers on the other.

Batches of prices at three times the rate it can commit, for a minute. Then single prices: with a call on each
of thousands of connections, fewer rows wait than a city allows, so it refuses none; the loader counts callers
that find no connection free. With a short limits.max_wait_seconds a city does refuse single prices. At last,
thousands of connections that send nothing, or a byte a second, and honest callers beside them.

Words name the parts that are run: batches, single, short-wait, slow. Without a word, all are.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx
from rich.console import Console
from rich.table import Table

from pricemesh.lab.bench.load import (
    Server,
    city_command,
    city_environment,
    cores,
    on_core,
    random_context,
    serve,
)

ROWS = 200  # in a batch
FACTOR = 3.0
SECONDS = 60
WARM_UP_SECONDS, CAPACITY_SECONDS, CAPACITY_RUNS = 3, 5, 4
MAX_WAIT_SECONDS = 1.0  # the default of limits.max_wait_seconds
SHORT_WAIT_SECONDS = 0.1
IDLE_CALLERS, SLOW_CALLERS, HONEST_CALLERS = 2000, 400, 8
SLOW_SECONDS = 20
HEAD = b"POST /price HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"


def apply(server: Server, calls_per_second: float, seconds: float, rows: int) -> dict[str, Any]:
    """Run the loader on its core. Returns what it printed, and the CPU time of the city."""
    words = [str(server.port), str(calls_per_second), str(seconds), str(rows)]
    command = on_core([sys.executable, "-m", "benchmarks.open_loop", *words], cores().load)
    before = server.cpu_seconds()
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(run.stdout)
    return report | {"city_cpu_seconds": server.cpu_seconds() - before}


class Memory:
    """The highest resident size of a process, looked at ten times a second."""

    def __init__(self, server: Server) -> None:
        self.max_bytes = self.first_bytes = server.resident_bytes()
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self.max_bytes = max(self.max_bytes, self._server.resident_bytes())

    def growth(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.max_bytes - self.first_bytes


def first_normal_second(http: httpx.Client, rng: random.Random) -> float:
    """How long it takes until ten prices in a row are given."""
    start = time.perf_counter()
    streak_began, streak = start, 0
    while streak < 10:
        if http.post("/price", json=random_context(rng)).status_code == 200:
            streak += 1
        else:
            streak_began, streak = time.perf_counter(), 0
    return streak_began - start


def overload(server: Server, table: Table, rows: int, max_wait_seconds: float = MAX_WAIT_SECONDS) -> None:
    """`rows` of each batch; 0 for single prices."""
    rng = random.Random(1)
    call = "batch" if rows else "price"
    apply(server, 0, WARM_UP_SECONDS, rows)
    runs = [apply(server, 0, CAPACITY_SECONDS, rows) for _ in range(CAPACITY_RUNS)]
    capacity = median(run["answers"]["200"] for run in runs) / CAPACITY_SECONDS
    share = median(run["city_cpu_seconds"] for run in runs) / CAPACITY_SECONDS
    call_cpu_seconds = median(run["city_cpu_seconds"] / run["answers"]["200"] for run in runs)
    memory = Memory(server)
    normal_seconds: list[float] = []

    def look_afterwards() -> None:
        time.sleep(SECONDS + 0.5)  # the loader needs a moment to start; it sends nothing after this
        normal_seconds.append(first_normal_second(server.http, rng))

    watcher = threading.Thread(target=look_afterwards)
    watcher.start()
    report = apply(server, FACTOR * capacity, SECONDS, rows)
    watcher.join()
    answers = report["answers"]
    served = answers.get("200", 0) / SECONDS
    # On a machine that others use, the share of the core differs from run to run; its CPU time does not.
    useful = answers.get("200", 0) * call_cpu_seconds / report["city_cpu_seconds"]
    refused = answers.get("503", 0)
    cost = (1 / useful - 1) * answers.get("200", 0) / refused if refused else None
    offered = sum(answers.values()) / SECONDS
    growth = memory.growth() / 1e6
    for what, figure, target in (
        (f"capacity, closed loop, median of {CAPACITY_RUNS}", f"{max(1, rows) * capacity:,.0f} rows/s", ""),
        ("offered", f"{offered / capacity:.2f} × capacity", f"{FACTOR:g}"),
        ("served", f"{served / capacity:.2f} × capacity", "≥ 0.8"),
        ("served for the CPU time it took", f"{useful:.2f} × capacity", "≥ 0.8"),
        *refusals(cost, call),
        ("p50 of what is served", f"{report['p50_seconds']:.3f} s", ""),
        ("p99 of what is served", f"{report['p99_seconds']:.3f} s", f"≤ {2 * max_wait_seconds:g} s"),
        ("longest of what is served", f"{report['max_seconds']:.3f} s", ""),
        ("memory growth", f"{growth:.0f} MB", "≤ 50 MB"),
        ("normal again after", f"{normal_seconds[0]:.2f} s", "≤ 2 s"),
        (
            "CPU of the city: alone, overloaded",
            f"{share:.2f}, {report['city_cpu_seconds'] / SECONDS:.2f} cores",
            "",
        ),
        ("answers", ", ".join(f"{name}: {n:,}" for name, n in sorted(answers.items())), ""),
        ("longest lag of the loader", f"{report['max_lag_seconds']:.3f} s", ""),
        ("CPU of the loader", f"{report['cpu_seconds'] / SECONDS:.2f} cores", "< 1"),
    ):
        table.add_row(what, figure, target)


def refusals(cost: float | None, call: str) -> list[tuple[str, str, str]]:
    """What a refusal costs, and what would be served of exactly FACTOR times the capacity."""
    if cost is None:
        return [("a refusal's CPU time", "none was refused", "")]
    return [
        ("a refusal's CPU time", f"{cost:.1%} of a served {call}'s", ""),
        (f"served of exactly {FACTOR:g} times, by that", f"{(1 - FACTOR * cost) / (1 - cost):.2f}", "≥ 0.8"),
    ]


class SlowCaller:
    """Sends a byte a second: of its headers, or of a body."""

    def __init__(self, *, in_body: bool) -> None:
        self._request = HEAD % 10_000 + b"{" * 10_000
        self._first_bytes = len(HEAD % 10_000) if in_body else 1
        self.seconds: float | None = None  # until it was closed
        self.answer = b""

    async def run(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        start = time.perf_counter()
        writer.write(self._request[: self._first_bytes])
        reading = asyncio.ensure_future(reader.read())
        for position in range(self._first_bytes, self._first_bytes + SLOW_SECONDS):
            done, _ = await asyncio.wait((reading,), timeout=1.0)
            if done:
                self.seconds = time.perf_counter() - start
                if reading.exception() is None:
                    self.answer = reading.result()
                break
            writer.write(self._request[position : position + 1])
        reading.cancel()
        writer.close()


async def honest(port: int, end: float, counts: dict[int, int], latencies: list[float]) -> None:
    rng = random.Random(port)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as http:
        while time.perf_counter() < end:
            start = time.perf_counter()
            try:
                status = (await http.post("/price", json=random_context(rng))).status_code
            except httpx.TransportError:
                status = 0
            counts[status] = counts.get(status, 0) + 1
            latencies.append(time.perf_counter() - start)


async def slow_callers(port: int, table: Table) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(IDLE_CALLERS)]
    slow = [SlowCaller(in_body=bool(number % 2)) for number in range(SLOW_CALLERS)]
    counts: dict[int, int] = {}
    latencies: list[float] = []
    end = time.perf_counter() + SLOW_SECONDS
    await asyncio.gather(
        *(caller.run(port) for caller in slow),
        *(honest(port, end, counts, latencies) for _ in range(HONEST_CALLERS)),
    )
    failed = sum(count for status, count in counts.items() if status != 200)
    times = [caller.seconds for caller in slow if caller.seconds is not None]
    told = sum(b" 408 " in caller.answer[:20] for caller in slow)
    silent = [await asyncio.wait_for(reader.read(), 1.0) for reader, _ in idle]
    latencies.sort()
    for what, figure, target in (
        ("honest prices", f"{counts.get(200, 0):,} given, {failed} failed", "0 failed"),
        ("their p99", f"{latencies[int(0.99 * len(latencies))]:.3f} s", ""),
        ("slow connections closed", f"{len(times)} of {SLOW_CALLERS}", "all"),
        ("the last of them after", f"{max(times, default=float('nan')):.1f} s", "≤ 15 s"),
        ("of them told by a 408", str(told), ""),
        ("silent connections closed without a word", f"{silent.count(b'')} of {IDLE_CALLERS}", "all"),
    ):
        table.add_row(what, figure, target)
    for _, writer in idle:
        writer.close()


def slow(server: Server, table: Table) -> None:
    if (core := cores().load) is not None:
        os.sched_setaffinity(0, {core})
    asyncio.run(slow_callers(server.port, table))


class Part(NamedTuple):
    title: str
    measure: Callable[[Server, Table], None]
    max_wait_seconds: float = MAX_WAIT_SECONDS


OVERLOAD = f"{FACTOR:g} times its capacity for {SECONDS} s"
PARTS = {
    "batches": Part(f"{OVERLOAD}, batches of {ROWS} prices", partial(overload, rows=ROWS)),
    "single": Part(f"{OVERLOAD}, single prices", partial(overload, rows=0)),
    "short-wait": Part(
        f"{OVERLOAD}, single prices, limits.max_wait_seconds = {SHORT_WAIT_SECONDS:g}",
        partial(overload, rows=0, max_wait_seconds=SHORT_WAIT_SECONDS),
        SHORT_WAIT_SECONDS,
    ),
    "slow": Part(f"{IDLE_CALLERS:,} silent and {SLOW_CALLERS} slow connections", slow),
}


def main(names: Sequence[str]) -> None:
    if unknown := set(names) - set(PARTS):
        raise SystemExit(f"{', '.join(sorted(unknown))}: the parts are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="pricemesh-bench-") as folder_name:
        folder = Path(folder_name)
        for name in names or PARTS:
            part = PARTS[name]
            table = Table(title=part.title, title_justify="left")
            for head in ("what", "measured", "wanted"):
                table.add_column(head)
            variables = city_environment(f"sqlite:///{folder}/{name}.db")
            variables["PRICEMESH_LIMITS_MAX_WAIT_SECONDS"] = str(part.max_wait_seconds)
            with serve(city_command(), folder, variables) as server:
                part.measure(server, table)
            Console(width=110).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
