"""The cost and the accuracy of the simulator client: `make bench-driver`.

Its rate against an endpoint that does nothing, beside that of wrk on the same core; and the p99 that it
measures at half of a city's capacity, beside that of h2load at the same rate.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from pricemesh.lab.bench.load import (
    Requests,
    Server,
    apply_load,
    city_command,
    city_environment,
    cores,
    on_core,
    random_context,
    serve,
    write_requests,
)
from pricemesh.lab.bench.ratios import spread
from pricemesh.lab.idle import idle_endpoint

SECONDS, REPETITIONS = 6, 5


def rates(requests: Requests) -> tuple[float, float]:
    """Of this client and of wrk, in turn on one core; the endpoint runs on the other."""
    affinity = os.sched_getaffinity(0)
    core = cores()
    os.sched_setaffinity(0, {core.server or 0})
    try:
        with idle_endpoint() as url, httpx.Client() as http:
            os.sched_setaffinity(0, affinity)
            code = (
                "from pricemesh.cli.terminal import run_quickly; from pricemesh.lab.idle import client_rate; "
                f"print(run_quickly(client_rate({url!r})))"
            )
            run = subprocess.run(
                on_core([sys.executable, "-c", code], core.load), capture_output=True, text=True, check=True
            )
            server = Server(http, int(url.rpartition(":")[2]), os.getpid())
            return float(run.stdout), apply_load(server, requests, 4).per_second
    finally:
        os.sched_setaffinity(0, affinity)


def drive_p99(url: str, rate: float) -> float:
    run = subprocess.run(
        on_core(
            [
                *(sys.executable, "-m", "pricemesh", "drive", url, "--rate", f"{rate:.0f}"),
                *("--seconds", str(SECONDS), "--no-feedback", "--json", "-"),
            ],
            cores().load,
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(run.stdout)["cities"][0]["price_milliseconds"]["p99"])


def h2load_p99(url: str, rate: float, folder: Path, body: Path) -> float:
    """64 connections, each at 1/64 of the rate; the times are from the log."""
    log = folder / "h2load.log"
    log.unlink(missing_ok=True)
    subprocess.run(
        on_core(
            [
                *("h2load", "--h1", "-c64", "-t1", f"--rps={rate / 64:.2f}"),
                *(f"--duration={SECONDS}", f"--data={body}", f"--log-file={log}"),
                *("-H", "content-type: application/json", f"{url}/price"),
            ],
            cores().load,
        ),
        capture_output=True,
        check=True,
    )
    rows = [line.split("\t") for line in log.read_text().splitlines()]
    times = [int(took) / 1000 for _, status, took in rows if status == "200"]
    assert len(times) > rate, "h2load saw too few answers"
    return float(np.percentile(times, 99))


def main() -> None:
    missing_programs = [name for name in ("wrk", "h2load") if not shutil.which(name)]
    if missing_programs:
        raise SystemExit(f"needs {', '.join(missing_programs)}: apt-get install wrk nghttp2-client")
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-driver-"))
    requests = write_requests(
        folder, "price", [("/price", random_context(random.Random(i))) for i in range(200)]
    )
    body = folder / "body.json"
    body.write_text(json.dumps(random_context(random.Random(1))))
    own, others, mine, theirs = [], [], [], []
    for _ in range(REPETITIONS):
        client, wrk = rates(requests)
        own.append(client)
        others.append(wrk)
    env = city_environment(f"sqlite:///{folder}/city.db")
    with serve(city_command(), folder, env) as server:
        url = f"http://127.0.0.1:{server.port}"
        capacity = median(apply_load(server, requests, 4).per_second for _ in range(2))
        with ThreadPoolExecutor(2) as pool:
            for _ in range(REPETITIONS):
                # At once, each at a quarter of the capacity, so that both meet the same pauses of the disk.
                ours = pool.submit(drive_p99, url, capacity / 4)
                other = pool.submit(h2load_p99, url, capacity / 4, folder, body)
                mine.append(ours.result())
                theirs.append(other.result())
    shutil.rmtree(folder)
    table = Table(title="pricemesh drive", title_justify="left")
    for head in ("what", "drive", "other", "ratio", "range"):
        table.add_column(head)
    for what, drive, baseline, unit in (
        ("calls a second where nothing is done, one core, against wrk", own, others, ""),
        (f"p99 of /price at {capacity / 2:.0f} a second together, against h2load", mine, theirs, " ms"),
    ):
        table.add_row(
            what,
            f"{median(drive):,.4g}{unit}",
            f"{median(baseline):,.4g}{unit}",
            *spread(drive, baseline),
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
