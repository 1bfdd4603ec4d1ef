"""What the simulator client itself costs, and whether it tells the truth: `make bench-driver`.

Its calls a second against an endpoint that does nothing, beside wrk's on the same core; and the p99 it
sees at half of a city's capacity, beside that of h2load at the same rate.
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
    city,
    city_environment,
    context,
    cores,
    loaded,
    pinned,
    requests,
    served,
)
from pricemesh.lab.bench.ratios import spread
from pricemesh.lab.idle import idle_endpoint

SECONDS, REPETITIONS = 6, 5


def rates(sent: Requests) -> tuple[float, float]:
    """Of this client and of wrk, one after the other on the same core; the endpoint has the other."""
    held = os.sched_getaffinity(0)
    where = cores()
    os.sched_setaffinity(0, {where.server or 0})
    try:
        with idle_endpoint() as url, httpx.Client() as http:
            os.sched_setaffinity(0, held)
            code = (
                "from pricemesh.cli.drive import own_rate; from pricemesh.cli.terminal import run_quickly; "
                f"print(run_quickly(own_rate({url!r})))"
            )
            run = subprocess.run(
                pinned([sys.executable, "-c", code], where.load), capture_output=True, text=True, check=True
            )
            server = Server(http, int(url.rpartition(":")[2]), os.getpid())
            return float(run.stdout), loaded(server, sent, 4).per_second
    finally:
        os.sched_setaffinity(0, held)


def driven_p99(url: str, rate: float) -> float:
    run = subprocess.run(
        pinned(
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
    """Many connections, each at its part of the rate; every answer's time from its log."""
    log = folder / "h2load.log"
    log.unlink(missing_ok=True)
    subprocess.run(
        pinned(
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
    missing = [name for name in ("wrk", "h2load") if not shutil.which(name)]
    if missing:
        raise SystemExit(f"needs {', '.join(missing)}: apt-get install wrk nghttp2-client")
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-driver-"))
    sent = requests(folder, "price", [("/price", context(random.Random(i))) for i in range(200)])
    body = folder / "body.json"
    body.write_text(json.dumps(context(random.Random(1))))
    own, others, mine, theirs = [], [], [], []
    for _ in range(REPETITIONS):
        reached = rates(sent)
        own.append(reached[0])
        others.append(reached[1])
    env = city_environment(f"sqlite:///{folder}/city.db")
    with served(city(), folder, env) as server:
        url = f"http://127.0.0.1:{server.port}"
        capacity = median(loaded(server, sent, 4).per_second for _ in range(2))
        with ThreadPoolExecutor(2) as pool:
            for _ in range(REPETITIONS):
                # At once, each at a quarter of what the city can do: both meet the same pauses of the disk.
                seen = (
                    pool.submit(driven_p99, url, capacity / 4),
                    pool.submit(h2load_p99, url, capacity / 4, folder, body),
                )
                mine.append(seen[0].result())
                theirs.append(seen[1].result())
    shutil.rmtree(folder)
    table = Table(title="pricemesh drive", title_justify="left")
    for head in ("what", "drive", "other", "ratio", "range"):
        table.add_column(head)
    for what, ours, other, unit in (
        ("calls a second where nothing is done, one core, against wrk", own, others, ""),
        (f"p99 of /price at {capacity / 2:.0f} a second together, against h2load", mine, theirs, " ms"),
    ):
        table.add_row(
            what,
            f"{median(ours):,.4g}{unit}",
            f"{median(other):,.4g}{unit}",
            *spread(ours, other),
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
