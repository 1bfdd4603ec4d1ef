"""What replicas cost: `python -m benchmarks.replicas`, minutes; needs wrk.

A city of one process, and a replica of a city whose second replica gets no calls, on one Postgres. wrk loads
/price and /feedback of both at once, so that other work on the machine slows both alike. Prints the processor
time of the process and of its connections to Postgres for each call, and what the second replica spends on
learning the first one's rows, as ratios to the city of one process.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psycopg
from rich.console import Console
from rich.table import Table

from pricemesh.lab.bench.calls import feedback_requests, price_requests
from pricemesh.lab.bench.load import (
    Load,
    LoadFailed,
    Requests,
    Server,
    apply_load,
    city_command,
    city_environment,
    require_wrk,
    serve,
)
from pricemesh.lab.bench.postgres import Postgres
from pricemesh.store.migration import migrate

CALLS = ("price", "feedback")
REPLICAS = {"one process": 0, "replica": 2}
CATCH_UP_SECONDS = 1.0
MAX_FAILED_ROUNDS = 5  # in which a busy machine refused callers

Key = tuple[str, str]  # what, and call
Costs = dict[Key, list[float]]  # microseconds a call, one a round


class Side(NamedTuple):
    name: str
    url: str
    servers: list[Server]
    requests: dict[str, Requests]


class Usage(NamedTuple):
    """Seconds of processor time so far."""

    processes: list[float]
    connections: dict[int, float]  # by process of Postgres


def usage_of(side: Side) -> Usage:
    """A connection's time to the nanosecond: /proc/PID/stat counts in hundredths of a second, and the second
    replica's reading takes a few of them."""
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(side.url.replace("+psycopg", "")) as connection:
        pids = [pid for (pid,) in connection.execute(query)]
    seconds = {pid: int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 for pid in pids}
    return Usage([server.cpu_seconds() for server in side.servers], seconds)


def costs_of(before: Usage, after: Usage, load: Load, call: str) -> dict[Key, float]:
    """Microseconds a call."""
    scale = 1e6 / load.calls
    spent = [scale * (end - start) for start, end in zip(before.processes, after.processes, strict=True)]
    database = sum(end - before.connections.get(pid, 0.0) for pid, end in after.connections.items())
    costs = {("process", call): spent[0], ("postgres", call): scale * database}
    if len(spent) > 1:
        costs["second replica", call] = spent[1]
    return costs


def start(postgres: Postgres, folder: Path, name: str, seconds: float, stack: ExitStack) -> Side:
    folder.mkdir(parents=True)
    url = postgres.new_database(f"replicas_{time.time_ns()}")
    migrate(url, "head", "bench")
    environment = city_environment(url)
    if REPLICAS[name]:
        environment["PRICEMESH_DATABASE_REPLICAS"] = "true"
    command = city_command("--log-level", "warning")
    servers = [
        stack.enter_context(serve(command, folder, environment)) for _ in range(max(1, REPLICAS[name]))
    ]
    feedback = feedback_requests(servers[0], folder, "city", seconds).feedback
    return Side(name, url, servers, {"price": price_requests(folder), "feedback": feedback})


def measure(postgres: Postgres, folder: Path, seconds: float) -> dict[str, dict[Key, float]]:
    """One round: the costs by side."""
    found: dict[str, dict[Key, float]] = {name: {} for name in REPLICAS}
    with ExitStack() as stack, ThreadPoolExecutor(len(REPLICAS)) as pool:
        sides = [start(postgres, folder / name, name, seconds, stack) for name in REPLICAS]
        for call in CALLS:
            time.sleep(CATCH_UP_SECONDS)
            before = [usage_of(side) for side in sides]
            runs = [pool.submit(apply_load, side.servers[0], side.requests[call], seconds) for side in sides]
            loads = [run.result() for run in runs]
            time.sleep(CATCH_UP_SECONDS)  # for the second replica to read the last rows
            for side, start_, load in zip(sides, before, loads, strict=True):
                found[side.name] |= costs_of(start_, usage_of(side), load, call)
    return found


def compare(rounds: int, seconds: float) -> dict[str, Costs]:
    sides: dict[str, Costs] = {name: {} for name in REPLICAS}
    postgres = Postgres()
    done = failed = 0
    try:
        with tempfile.TemporaryDirectory(prefix="pricemesh-replicas-") as name:
            while done < rounds:
                print(f"round {done + 1} of {rounds}", flush=True)
                try:
                    costs = measure(postgres, Path(name) / f"{done}-{failed}", seconds)
                except LoadFailed as fault:
                    failed += 1
                    if failed > MAX_FAILED_ROUNDS:
                        raise
                    print(f"once more, because callers were refused: {fault}", flush=True)
                    continue
                done += 1
                for side, values in costs.items():
                    for key, value in values.items():
                        sides[side].setdefault(key, []).append(value)
    finally:
        postgres.stop()
    return sides


def table(sides: dict[str, Costs]) -> Table:
    view = Table(title="microseconds of processor time a call, medians", title_justify="left")
    for head in ("what", "call", "one process", "replica", "ratio", "range"):
        view.add_column(head)
    for (what, call), values in sides["replica"].items():
        base = sides["one process"]["process" if what == "second replica" else what, call]
        ratios = sorted(one / other for one, other in zip(values, base, strict=True))
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        figures = (f"{median(base):.0f}", f"{median(values):.0f}", f"{median(ratios):.2f}", spread)
        view.add_row(what, call, *figures)
    return view


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replicas", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load")
    options = parser.parse_args(arguments)
    require_wrk()
    Console(width=120).print(table(compare(options.rounds, options.seconds)))


if __name__ == "__main__":
    main()
