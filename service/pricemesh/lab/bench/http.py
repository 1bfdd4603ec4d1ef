"""What a price costs over HTTP: a city on SQLite, on Postgres and without its fast path, beside an empty
FastAPI endpoint with the same models and a bare ASGI application. All run in turn, the server on one core,
wrk on another.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from pricemesh.errors import MissingExtra
from pricemesh.lab.bench.calls import BATCH, batch_requests, feedback_requests, price_requests
from pricemesh.lab.bench.latency import half_load
from pricemesh.lab.bench.load import (
    CONNECTIONS,
    Load,
    Requests,
    Server,
    apply_load,
    baseline_command,
    city_command,
    city_environment,
    cores,
    require_wrk,
    serve,
)
from pricemesh.lab.bench.postgres import Postgres
from pricemesh.lab.bench.ratios import Ratio, Say, Suite, microseconds, per_second, ratio
from pricemesh.store.migration import migrate

BARE, EMPTY, SQLITE, ASGI, POSTGRES = "bare", "empty", "SQLite", "ASGI", "Postgres"
FAST_PATH = "PRICEMESH_SERVER_FAST_PATH"
LABELS = {
    "price": "/price",
    "feedback": "/feedback",
    "mixed": "/price and /feedback in turn",
    "batch": f"/price/batch of {BATCH}, decisions",
}

Loads = dict[tuple[str, str], list[Load]]  # by server and call, one a repetition


def http(*, quick: bool, say: Say) -> Suite:
    require_wrk()
    suite = Suite("http", f"Over HTTP: K=10 c=s=10, {CONNECTIONS} connections, rates unless said otherwise")
    if cores().server is None:
        suite.notes.append("server and load share a core here: the figures say little")
    latency = half_load(quick=quick, say=say)  # first, while the disk has nothing else to do
    repetitions, seconds = (2, 1.0) if quick else (5, 2.0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pricemesh-bench-")))
        servers = {name: stack.enter_context(serve(baseline_command(name), folder)) for name in (BARE, EMPTY)}
        for name, fast_path in ((SQLITE, "true"), (ASGI, "false")):
            environment = city_environment(f"sqlite:///{folder}/{name}.db") | {FAST_PATH: fast_path}
            servers[name] = stack.enter_context(serve(city_command(), folder, environment))
        try:
            url = stack.enter_context(postgres_database())
            servers[POSTGRES] = stack.enter_context(serve(city_command(), folder, city_environment(url)))
        except MissingExtra as fault:
            suite.notes.append(f"Postgres left out: {fault}")
        loads = _measure(servers, folder, repetitions, seconds, say)
    suite.ratios += [*_rate_ratios(loads), fast_path_against_asgi(loads), *latency]
    return suite


@contextmanager
def postgres_database() -> Iterator[str]:
    """An empty database with its schema, on the load's core: in production a database runs elsewhere, too."""
    server = Postgres(cores().load)
    try:
        url = server.new_database("bench")
        migrate(url, "head", "bench")
        yield url
    finally:
        server.stop()


def _measure(servers: dict[str, Server], folder: Path, repetitions: int, seconds: float, say: Say) -> Loads:
    prices, batches = price_requests(folder), batch_requests(folder)
    durable = [name for name in (SQLITE, POSTGRES) if name in servers]
    loads: Loads = {}

    def measure(name: str, call: str, requests: Requests) -> None:
        loads.setdefault((name, call), []).append(apply_load(servers[name], requests, seconds))

    for repetition in range(repetitions + 1):
        say(f"rates, {repetition} of {repetitions}" if repetition else "warming up")
        answers = {name: feedback_requests(servers[name], folder, name, seconds) for name in durable}
        if repetition == 0:
            for server in servers.values():
                apply_load(server, prices, 1)
            continue
        for name in servers:
            measure(name, "price", prices)
        measure(EMPTY, "feedback", answers[SQLITE].feedback)
        for name in durable:
            measure(name, "feedback", answers[name].feedback)
            measure(name, "mixed", answers[name].mixed)
            measure(name, "batch", batches)
    return loads


def _rate_ratios(loads: Loads) -> list[Ratio]:
    rates = {
        (name, call): [load.per_second * (BATCH if call == "batch" else 1) for load in repetitions]
        for (name, call), repetitions in loads.items()
    }
    ratios: list[Ratio] = []

    def add(name: str, call: str, against: str, other: tuple[str, str], target: str = "") -> None:
        ours = rates[name, call]
        cpu = median(load.cpu_seconds for load in loads[name, call]) * 1e6
        figure = f"{per_second(ours)}, {cpu:,.0f} µs of CPU a call"
        label = f"{LABELS[call]}, {name}"
        ratios.append(ratio(label, ours, against, rates[other], figure=figure, target=target))

    endpoint, price = "an empty FastAPI endpoint", (EMPTY, "price")
    add(SQLITE, "price", endpoint, price, "≥ 1.3")
    add(SQLITE, "price", "a bare ASGI application", (BARE, "price"), "≥ 0.35")
    add(SQLITE, "feedback", endpoint, (EMPTY, "feedback"), "≥ 1.0")
    add(SQLITE, "mixed", endpoint, price)
    add(SQLITE, "batch", endpoint, price, "≥ 20")
    add(SQLITE, "batch", "/price", (SQLITE, "price"))
    if (POSTGRES, "price") in rates:
        for call in LABELS:
            target = "≥ 0.7" if call in ("price", "feedback") else ""
            add(POSTGRES, call, "the same on SQLite", (SQLITE, call), target)
        add(POSTGRES, "price", endpoint, price)
        add(POSTGRES, "feedback", endpoint, (EMPTY, "feedback"))
    return ratios


def fast_path_against_asgi(loads: Loads) -> Ratio:
    """CPU of a /price by ASGI over CPU of one by the fast path: above 1 the fast path is the cheaper."""
    asgi, fast = ([load.cpu_seconds for load in loads[name, "price"]] for name in (ASGI, SQLITE))
    figure = f"{microseconds(asgi)} by ASGI, {microseconds(fast)} by the fast path"
    return ratio(
        "fast path against ASGI: CPU of a /price by ASGI",
        asgi,
        "by the fast path",
        fast,
        figure=figure,
        target="≥ 1.25",
    )
