"""What gossip costs on the wire: `make bench-gossip`. Bytes of a tick, ticks until all know, and what a tick
does to prices. A letter's size and the time to take letters in are in `pricemesh bench gossip`.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import random
import shutil
import tempfile
import threading
import time
from itertools import count
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
    city,
    city_environment,
    context,
    cores,
    loaded,
    requests,
    served,
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
    made = Table(title=title, title_justify="left")
    for head in heads:
        made.add_column(head)
    return made


def settings(folder: Path, name: str, peers: list[str], *, lockstep: bool) -> Settings:
    gossip = {"peers": peers, "secrets": [SECRET], "lockstep": lockstep}
    return Settings.model_validate(
        {
            "city": name,
            "arms": {"prices": [float(8 + k) for k in range(ARMS)]},
            "features": {
                "shared": [f"shared{i}" for i in range(SHARED)],
                "local": [f"local{i}" for i in range(LOCAL)],
            },
            "database": {"url": f"sqlite:///{folder}/{name}.db"},
            "gossip": gossip,
        }
    )


def wire() -> Table:
    """Two cities over a link that counts every byte of TCP payload, HTTP's own included."""
    made = table("A tick of a pair, signed, all of HTTP included", "what changed", "bytes")
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
        decision = one.http.post("/price", json=context(rng)).json()
        one.feedback(decision["decision_id"], rng.random())

    made.add_row("first meeting", f"{tick():,}")
    tick()
    made.add_row("nothing", f"{tick():,}")
    learn(porto)
    made.add_row("one city learned", f"{tick():,}")
    learn(porto)
    learn(lisbon)
    made.add_row("both learned", f"{tick():,}")
    for one in (lisbon, porto):
        one.stop()
    links.close()
    shutil.rmtree(folder)
    return made


def p99(server: Server, sent: Requests) -> float:
    """Milliseconds; four connections, so that the server is not saturated by its own queue."""
    return 1e3 * loaded(server, sent, SECONDS, connections=4).p99_seconds


def prices() -> Table:
    """p99 of /price with peers that all learn between ticks, and without, in turn; databases in memory where
    that can be, since a disk's pauses would hide what gossip does."""
    made = table(
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
    done = threading.Event()

    def teach(peer: RunningCity, rng: random.Random) -> None:
        for _ in count():
            if done.wait(0.1):
                return
            body = {"requests": [context(rng) for _ in range(5)]}
            made_ = peer.http.post("/price/batch", json=body).json()["decisions"]
            items = [{"decision_id": d["decision_id"], "reward": rng.random()} for d in made_]
            peer.http.post("/feedback/batch", json={"items": items})

    teachers = [threading.Thread(target=teach, args=(peer, random.Random(i))) for i, peer in enumerate(peers)]
    for teacher in teachers:
        teacher.start()
    sent = requests(folder, "price", [("/price", context(random.Random(i))) for i in range(300)])
    common: dict[str, Any] = {"PRICEMESH_GOSSIP_SECRETS": SECRET}
    alone = city_environment(f"sqlite:///{folder}/alone.db") | common | {"PRICEMESH_CITY": "alone"}
    meshed = city_environment(f"sqlite:///{folder}/meshed.db") | common
    meshed |= {"PRICEMESH_CITY": "meshed", "PRICEMESH_GOSSIP_PEERS": ",".join(addresses)}
    times: dict[str, list[float]] = {"without": [], "with": []}
    with (
        served(city(), folder, alone) as without,
        served(city(), folder, meshed) as together,
    ):
        while len([p for p in together.http.get("/state").json()["peers"] if p["status"] == "fresh"]) < PEERS:
            time.sleep(0.1)
        for _ in range(REPETITIONS):
            times["without"].append(p99(without, sent))
            times["with"].append(p99(together, sent))
    done.set()
    for teacher in teachers:
        teacher.join()
    for peer in peers:
        peer.stop()
    shutil.rmtree(folder)
    made.add_row(
        f"{median(times['without']):.2f} ms",
        f"{median(times['with']):.2f} ms",
        *spread(times["with"], times["without"]),
    )
    return made


def convergence() -> Table:
    made = table("Ticks until all cities hold what all have learned", "cities", "fan-out 1", "fan-out 8")
    for cities in (8, 32, 128):
        by_fan_out = [
            [ticks_until_all_know(cities, seed, fan_out) for seed in range(3)] for fan_out in (1, 8)
        ]
        made.add_row(str(cities), *(f"{min(ticks)}–{max(ticks)}" for ticks in by_fan_out))
    return made


def main() -> None:
    for part in (wire, convergence):
        console.print(part())
    if shutil.which("wrk"):
        console.print(prices())
    else:
        console.print("the effect on /price needs wrk: apt-get install wrk")


if __name__ == "__main__":
    main()
