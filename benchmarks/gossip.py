"""What gossip costs: `make bench-gossip`. Bytes on the wire, time to absorb, what a tick does to prices."""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import json
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.http import (
    ARMS,
    LOAD_CORE,
    LOCAL,
    SHARED,
    city_command,
    city_environment,
    context,
    lua,
    process,
)
from benchmarks.stopwatch import spread
from service.core.policies import Shape, make_policy
from service.core.summary import Summary
from service.gossip.letters import Seal
from service.settings import Settings
from service.sim.demo import free_ports
from tests.gossip.test_node import ticks_until_all_know
from tests.service.proxy import Links
from tests.service.running import RunningCity

SECRET = "k1:" + "s" * 43
PEERS, REPETITIONS, SECONDS = 4, 5, 6
console = Console(width=110)


def table(title: str, *heads: str) -> Table:
    made = Table(title=title, title_justify="left")
    for head in heads:
        made.add_column(head)
    return made


def letters() -> Table:
    """A full letter against the numbers that must move, as float64."""
    made = table("A full letter", "policy", "K", "c", "must move", "letter", "ratio")
    for name in ("netpool", "netsgducb", "netlinucb"):
        for arms, c in ((5, 3), (10, 10), (20, 20)):
            half = c * (c + 1) // 2
            numbers_an_arm = {"netpool": half + c + 2, "netsgducb": 2 * c + 1, "netlinucb": half + c + 1}
            numbers = make_policy(name).learner(Shape(arms, c, 2)).numbers()
            wire = Seal(bytes(32)).close(Summary.of("lisbon", 1, 1, bytes(16), numbers)).wire
            must = 8 * arms * numbers_an_arm[name]
            made.add_row(
                name, str(arms), str(c), f"{must:,} B", f"{len(wire):,} B", f"{len(wire) / must:.2f}"
            )
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

    def learn(city: RunningCity) -> None:
        decision = city.http.post("/price", json=context(rng)).json()
        city.feedback(decision["decision_id"], rng.random())

    made.add_row("first meeting", f"{tick():,}")
    tick()
    made.add_row("nothing", f"{tick():,}")
    learn(porto)
    made.add_row("one city learned", f"{tick():,}")
    learn(porto)
    learn(lisbon)
    made.add_row("both learned", f"{tick():,}")
    for city in (lisbon, porto):
        city.stop()
    links.close()
    shutil.rmtree(folder)
    return made


def absorbing() -> Table:
    """100 peers, K=20, c=20: what is done in a thread, and what on the event loop."""
    made = table("Absorb 100 peers, K=20, c=20, s=5", "policy", "fold (in a thread)", "adopt (on the loop)")
    rng = np.random.default_rng(0)
    shape = Shape(20, 20, 5)
    for name in ("netpool", "netlinucb", "netsgducb"):
        city = make_policy(name).learner(shape)
        peer = make_policy(name).learner(shape)
        for _ in range(400):
            peer.learn(rng.uniform(-1, 1, size=25) / 5, int(rng.integers(20)), float(rng.normal()))
        held = {
            f"city{i}": Summary.of(f"city{i}", 1, 400, bytes(16), peer.numbers() * (1 + i / 1e6))
            for i in range(100)
        }
        gathered = city.gathered("lisbon", held)
        fold, adopt = [], []
        for _ in range(5):
            started = time.perf_counter()
            folded = city.fold(*gathered)
            between = time.perf_counter()
            city.adopt(folded)
            fold.append(between - started)
            adopt.append(time.perf_counter() - between)
        made.add_row(name, f"{1e3 * median(fold):.1f} ms", f"{1e3 * median(adopt):.2f} ms")
    return made


def p99(port: int, script: Path) -> float:
    """Milliseconds; four connections, so that the server is not saturated by its own queue."""
    run = subprocess.run(
        [
            *("taskset", "-c", LOAD_CORE, "wrk", "-t1", "-c4", f"-d{SECONDS}s", "--latency"),
            *("-s", str(script), f"http://127.0.0.1:{port}/price"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"99%\s+([\d.]+)(us|ms|s)", run.stdout)
    assert found, run.stdout
    return float(found.group(1)) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found.group(2)]


def prices() -> Table:
    """p99 of /price with peers that all learn between ticks, and without, in turn."""
    made = table(
        f"/price p99, {PEERS} peers that learn all the time, a tick a second, {SECONDS} s each",
        "without",
        "with",
        "ratio",
        "range",
    )
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-gossip-"))
    ports = free_ports(PEERS)
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    os.sched_setaffinity(0, {int(LOAD_CORE)})
    peers = [
        RunningCity(settings(folder, f"peer{i}", [], lockstep=False), port) for i, port in enumerate(ports)
    ]
    done = threading.Event()

    def teach(city: RunningCity, rng: random.Random) -> None:
        for _ in count():
            if done.wait(0.1):
                return
            body = {"requests": [context(rng) for _ in range(5)]}
            made_ = city.http.post("/price/batch", json=body).json()["decisions"]
            items = [{"decision_id": d["decision_id"], "reward": rng.random()} for d in made_]
            city.http.post("/feedback/batch", json={"items": items})

    teachers = [threading.Thread(target=teach, args=(city, random.Random(i))) for i, city in enumerate(peers)]
    for teacher in teachers:
        teacher.start()
    script = lua(folder, "price", [json.dumps(context(random.Random(i))) for i in range(300)])
    common: dict[str, Any] = {"PRICEMESH_GOSSIP_SECRETS": SECRET}
    alone = city_environment(f"sqlite:///{folder}/alone.db") | common | {"PRICEMESH_CITY": "alone"}
    meshed = city_environment(f"sqlite:///{folder}/meshed.db") | common
    meshed |= {"PRICEMESH_CITY": "meshed", "PRICEMESH_GOSSIP_PEERS": ",".join(addresses)}
    times: dict[str, list[float]] = {"without": [], "with": []}
    with (
        process(city_command(8911), alone, folder, 8911),
        process(city_command(8912), meshed, folder, 8912) as http,
    ):
        while len([p for p in http.get("/state").json()["peers"] if p["status"] == "fresh"]) < PEERS:
            time.sleep(0.1)
        for _ in range(REPETITIONS):
            times["without"].append(p99(8911, script))
            times["with"].append(p99(8912, script))
    done.set()
    for teacher in teachers:
        teacher.join()
    for city in peers:
        city.stop()
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
    for part in (letters, wire, absorbing, convergence):
        console.print(part())
    if shutil.which("wrk") and shutil.which("taskset"):
        console.print(prices())
    else:
        console.print("the effect on /price needs wrk and taskset: apt-get install wrk util-linux")


if __name__ == "__main__":
    main()
