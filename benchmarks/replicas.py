"""What replicas cost: `python -m benchmarks.replicas`, minutes; needs wrk.

In turn: a city of one process, and a replica of a city whose second replica gets no calls. wrk loads /price
and /feedback. Prints the processor time of the process and of Postgres for each call, and what the second
replica spends on learning the first one's rows, as ratios to the city of one process.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from pricemesh.lab.bench.calls import feedback_requests, price_requests
from pricemesh.lab.bench.load import Server, apply_load, city_command, city_environment, require_wrk, serve
from pricemesh.lab.bench.postgres import Postgres
from pricemesh.store.migration import migrate

CALLS = ("price", "feedback")
CATCH_UP_SECONDS = 1.0

Costs = dict[tuple[str, str], list[float]]  # by what and call: microseconds a call, one a round


def cpu_seconds(pids: Sequence[int]) -> dict[int, float]:
    """Processor time so far, by process of one thread, to the nanosecond: /proc/PID/stat counts in
    hundredths of a second, in which the second replica's reading would be a few."""
    seconds = {}
    for pid in pids:
        try:
            nanoseconds = Path(f"/proc/{pid}/schedstat").read_text().split()[0]
        except OSError:  # it has ended
            continue
        seconds[pid] = int(nanoseconds) / 1e9
    return seconds


def measure(postgres: Postgres, folder: Path, seconds: float, replicas: int) -> dict[tuple[str, str], float]:
    """Microseconds a call, by what and call."""
    folder.mkdir()
    url = postgres.new_database(f"{folder.name}_{time.time_ns()}")
    migrate(url, "head", "bench")
    environment = city_environment(url)
    if replicas:
        environment["PRICEMESH_DATABASE_REPLICAS"] = "true"
    found: dict[tuple[str, str], float] = {}
    with ExitStack() as stack:
        command = city_command("--log-level", "warning")
        servers = [stack.enter_context(serve(command, folder, environment)) for _ in range(max(1, replicas))]
        first = servers[0]
        feedback = feedback_requests(first, folder, "city", seconds).feedback
        requests = {"price": price_requests(folder), "feedback": feedback}
        for call in CALLS:
            time.sleep(CATCH_UP_SECONDS)
            before, database = [server.cpu_seconds() for server in servers], _database_seconds(postgres)
            load = apply_load(first, requests[call], seconds)
            time.sleep(CATCH_UP_SECONDS)  # for the second replica to read the last rows
            calls = load.per_second * seconds
            found["process", call] = 1e6 * _spent(first, before[0]) / calls
            found["postgres", call] = 1e6 * (_database_seconds(postgres) - database) / calls
            if replicas > 1:
                found["second replica", call] = 1e6 * _spent(servers[1], before[1]) / calls
    return found


def _spent(server: Server, before: float) -> float:
    return server.cpu_seconds() - before


def _database_seconds(postgres: Postgres) -> float:
    return sum(cpu_seconds(postgres.processes()).values())


def compare(rounds: int, seconds: float) -> dict[str, Costs]:
    sides: dict[str, Costs] = {"one process": {}, "replica": {}}
    postgres = Postgres()
    try:
        with tempfile.TemporaryDirectory(prefix="pricemesh-replicas-") as name:
            for number in range(rounds):
                for side, replicas in (("one process", 0), ("replica", 2)):
                    print(f"round {number + 1} of {rounds}: {side}", flush=True)
                    folder = Path(name) / f"{side.replace(' ', '_')}{number}"
                    for key, value in measure(postgres, folder, seconds, replicas).items():
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
