"""What a price costs over HTTP: a city on SQLite and on Postgres, beside an empty FastAPI endpoint with the
same models and a bare ASGI application. The server has one core and wrk another, in turn.
"""

import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from pricemesh.errors import MissingExtra
from pricemesh.lab.bench.latency import half_load
from pricemesh.lab.bench.load import (
    CONNECTIONS,
    Load,
    Requests,
    Server,
    baseline,
    city,
    city_environment,
    context,
    cores,
    fresh_ids,
    loaded,
    need_wrk,
    requests,
    served,
)
from pricemesh.lab.bench.postgres import Postgres
from pricemesh.lab.bench.ratios import Say, Suite, per_second, ratio
from pricemesh.store.database import migrate

BATCH = 100

Loads = dict[str, list[Load]]


def http(*, quick: bool, say: Say) -> Suite:
    need_wrk()
    suite = Suite("http", f"Over HTTP: K=10 c=s=10, {CONNECTIONS} connections, rates unless said otherwise")
    if cores().server is None:
        suite.notes.append("server and load share a core here: the figures say little")
    latency = half_load(quick=quick, say=say)  # first, while the disk has nothing else to do
    repetitions, seconds = (2, 1.0) if quick else (5, 2.0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pricemesh-bench-")))
        servers = {name: stack.enter_context(served(baseline(name), folder)) for name in ("bare", "empty")}
        sqlite = city_environment(f"sqlite:///{folder}/sqlite.db")
        servers["SQLite"] = stack.enter_context(served(city(), folder, sqlite))
        try:
            url = stack.enter_context(postgres_database())
            servers["Postgres"] = stack.enter_context(served(city(), folder, city_environment(url)))
        except MissingExtra as fault:
            suite.notes.append(f"Postgres left out: {fault}")
        _say(suite, _measure(servers, folder, repetitions, seconds, say))
    suite.ratios += latency
    return suite


@contextmanager
def postgres_database() -> Iterator[str]:
    """An empty database, schema in place, of a server that has the load's core: databases live elsewhere."""
    server = Postgres(cores().load)
    try:
        url = server.new_database("bench")
        migrate(url, "head", "bench")
        yield url
    finally:
        server.stop()


def _measure(servers: dict[str, Server], folder: Path, repetitions: int, seconds: float, say: Say) -> Loads:
    rng = random.Random(0)
    prices = requests(folder, "price", [("/price", context(rng)) for _ in range(500)])
    bodies = [{"requests": [context(rng) for _ in range(BATCH)]} for _ in range(20)]
    batches = requests(folder, "batch", [("/price/batch", body) for body in bodies])
    loads: Loads = {}

    def measure(name: str, call: str, sent: Requests) -> None:
        loads.setdefault(f"{name} {call}", []).append(loaded(servers[name], sent, seconds))

    for repetition in range(repetitions + 1):
        say(f"rates, {repetition} of {repetitions}" if repetition else "warming up")
        answers = {
            name: _answers(servers[name], folder, name, seconds) for name in servers if name[0].isupper()
        }
        if repetition == 0:  # what is measured next is warm
            for name in servers:
                loaded(servers[name], prices, 1)
            continue
        for name in servers:
            measure(name, "price", prices)
        measure("empty", "feedback", answers["SQLite"][0])
        for name, (feedback, mixed) in answers.items():
            measure(name, "feedback", feedback)
            measure(name, "mixed", mixed)
            measure(name, "batch", batches)
    return loads


def _answers(server: Server, folder: Path, name: str, seconds: float) -> tuple[Requests, Requests]:
    """Feedback for decisions nobody has answered, enough for so long; and prices with feedback between."""
    rng = random.Random(1)
    told = [
        ("/feedback", {"decision_id": id_, "reward": rng.random()})
        for id_ in fresh_ids(server.http, rng, round(30_000 * seconds))
    ]
    half = len(told) // 3
    mixed = [call for one in told[:half] for call in (("/price", context(rng)), one)]
    return requests(folder, f"{name}-feedback", told[half:]), requests(folder, f"{name}-mixed", mixed)


def _say(suite: Suite, loads: Loads) -> None:
    rates = {
        name: [load.per_second * (BATCH if name.endswith("batch") else 1) for load in several]
        for name, several in loads.items()
    }
    called = {
        "price": "/price",
        "feedback": "/feedback",
        "mixed": "/price and /feedback in turn",
        "batch": f"/price/batch of {BATCH}, decisions",
    }

    def say(name: str, against: str, other: str, wanted: str = "") -> None:
        where, call = name.split()
        cpu = median(load.cpu_seconds for load in loads[name]) * 1e6
        said = f"{per_second(rates[name])}, {cpu:,.0f} µs of CPU a call"
        what = f"{called[call]}, {where}"
        suite.ratios.append(ratio(what, rates[name], against, rates[other], measured=said, wanted=wanted))

    say("SQLite price", "an empty FastAPI endpoint", "empty price", "≥ 1.3")
    say("SQLite price", "a bare ASGI application", "bare price", "≥ 0.35")
    say("SQLite feedback", "an empty FastAPI endpoint", "empty feedback", "≥ 1.0")
    say("SQLite mixed", "an empty FastAPI endpoint", "empty price")
    say("SQLite batch", "an empty FastAPI endpoint", "empty price", "≥ 20")
    say("SQLite batch", "/price", "SQLite price")
    if "Postgres price" in rates:
        for call in ("price", "feedback", "mixed", "batch"):
            wanted = "≥ 0.7" if call in ("price", "feedback") else ""
            say(f"Postgres {call}", "the same on SQLite", f"SQLite {call}", wanted)
        say("Postgres price", "an empty FastAPI endpoint", "empty price")
        say("Postgres feedback", "an empty FastAPI endpoint", "empty feedback")
