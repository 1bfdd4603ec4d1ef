"""The cost of gossip on the wire: `make bench-gossip`. Bytes of a tick, ticks until every city knows all,
and the effect of ticks on /price. `pricemesh bench gossip` has the size of a letter and the time to absorb
letters.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import random
import shutil
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from pricemesh.city.settings import Settings
from pricemesh.lab.bench.latency import MEMORY
from pricemesh.lab.bench.load import (
    ARMS,
    LOCAL,
    SHARED,
    Requests,
    Server,
    apply_load,
    city_command,
    city_environment,
    cores,
    random_context,
    serve,
    write_requests,
)
from pricemesh.lab.bench.ratios import spread
from pricemesh.lab.demo import free_ports
from tests.gossip.test_node import ticks_until_all_know
from tests.proxy import Links
from tests.running import RunningCity

SECRET = "k1:" + "s" * 43
PEERS, REPETITIONS, SECONDS = 4, 5, 6
console = Console(width=110)


def table(title: str, *heads: str) -> Table:
    view = Table(title=title, title_justify="left")
    for head in heads:
        view.add_column(head)
    return view


def settings(folder: Path, name: str, peers: list[str], *, lockstep: bool) -> Settings:
    gossip = {"peers": peers, "secrets": [SECRET], "lockstep": lockstep}
    return Settings.model_validate(
        {
            "city": name,
            "arms": {"prices": [float(8 + k) for k in range(ARMS)]},
            "reward": {"kind": "value", "largest": 100.0},
            "features": {
                "shared": [f"shared{i}" for i in range(SHARED)],
                "local": [f"local{i}" for i in range(LOCAL)],
            },
            "database": {"url": f"sqlite:///{folder}/{name}.db"},
            "gossip": gossip,
        }
    )


def wire() -> Table:
    """Two cities over a link that counts every byte of TCP payload, including HTTP headers."""
    view = table("A tick of a pair, signed, all of HTTP included", "what changed", "bytes")
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-gossip-"))
    links = Links()
    lisbon = RunningCity(settings(folder, "lisbon", [], lockstep=True))
    link = links.add("porto>lisbon", int(lisbon.url.rpartition(":")[2]))
    porto = RunningCity(settings(folder, "porto", [f"http://127.0.0.1:{link}"], lockstep=True))
    rng = random.Random(0)

    def tick() -> int:
        before = links.carried
        porto.tick()
        return links.carried - before

    def learn(one: RunningCity) -> None:
        decision = one.http.post("/price", json=random_context(rng)).json()
        one.feedback(decision["decision_id"], rng.random())

    view.add_row("first meeting", f"{tick():,}")
    tick()
    view.add_row("nothing", f"{tick():,}")
    learn(porto)
    view.add_row("one city learned", f"{tick():,}")
    learn(porto)
    learn(lisbon)
    view.add_row("both learned", f"{tick():,}")
    for one in (lisbon, porto):
        one.stop()
    links.close()
    shutil.rmtree(folder)
    return view


def p99(server: Server, requests: Requests) -> float:
    """Milliseconds, with four connections, which do not saturate the server."""
    return 1e3 * apply_load(server, requests, SECONDS, connections=4).p99_seconds


def start_teachers(peers: list[RunningCity]) -> tuple[threading.Event, list[threading.Thread]]:
    """Threads that make each peer learn ten times a second, until the event is set."""
    finished = threading.Event()

    def teach(peer: RunningCity, rng: random.Random) -> None:
        while not finished.wait(0.1):
            body = {"requests": [random_context(rng) for _ in range(5)]}
            decisions = peer.http.post("/price/batch", json=body).json()["decisions"]
            items = [{"decision_id": d["decision_id"], "reward": rng.random()} for d in decisions]
            peer.http.post("/feedback/batch", json={"items": items})

    teachers = [threading.Thread(target=teach, args=(peer, random.Random(i))) for i, peer in enumerate(peers)]
    for teacher in teachers:
        teacher.start()
    return finished, teachers


def prices() -> Table:
    """p99 of /price with peers that learn between ticks, and without peers, in turn. Databases are in memory
    where possible, because pauses of the disk would hide the effect of gossip."""
    view = table(
        f"/price p99, {PEERS} peers that learn all the time, a tick a second, {SECONDS} s each",
        "without",
        "with",
        "ratio",
        "range",
    )
    folder = Path(
        tempfile.mkdtemp(prefix="pricemesh-gossip-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
    )
    ports = free_ports(PEERS)
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    os.sched_setaffinity(0, {cores().load or 0})
    peers = [
        RunningCity(settings(folder, f"peer{i}", [], lockstep=False), port) for i, port in enumerate(ports)
    ]
    finished, teachers = start_teachers(peers)
    requests = write_requests(
        folder, "price", [("/price", random_context(random.Random(i))) for i in range(300)]
    )
    common: dict[str, Any] = {"PRICEMESH_GOSSIP_SECRETS": SECRET}
    alone = city_environment(f"sqlite:///{folder}/alone.db") | common | {"PRICEMESH_CITY": "alone"}
    meshed = city_environment(f"sqlite:///{folder}/meshed.db") | common
    meshed |= {"PRICEMESH_CITY": "meshed", "PRICEMESH_GOSSIP_PEERS": ",".join(addresses)}
    times: dict[str, list[float]] = {"without": [], "with": []}
    with (
        serve(city_command(), folder, alone) as without,
        serve(city_command(), folder, meshed) as together,
    ):
        while len([p for p in together.http.get("/state").json()["peers"] if p["status"] == "fresh"]) < PEERS:
            time.sleep(0.1)
        for _ in range(REPETITIONS):
            times["without"].append(p99(without, requests))
            times["with"].append(p99(together, requests))
    finished.set()
    for teacher in teachers:
        teacher.join()
    for peer in peers:
        peer.stop()
    shutil.rmtree(folder)
    view.add_row(
        f"{median(times['without']):.2f} ms",
        f"{median(times['with']):.2f} ms",
        *spread(times["with"], times["without"]),
    )
    return view


def convergence() -> Table:
    view = table("Ticks until all cities hold what all have learned", "cities", "fan-out 1", "fan-out 8")
    for cities in (8, 32, 128):
        by_fan_out = [
            [ticks_until_all_know(cities, seed, fan_out) for seed in range(3)] for fan_out in (1, 8)
        ]
        view.add_row(str(cities), *(f"{min(ticks)}–{max(ticks)}" for ticks in by_fan_out))
    return view


def main() -> None:
    for part in (wire, convergence):
        console.print(part())
    if shutil.which("wrk"):
        console.print(prices())
    else:
        console.print("the effect on /price needs wrk: apt-get install wrk")


if __name__ == "__main__":
    main()
