"""What a price costs over HTTP: `make bench-http`. Server on one core, wrk on the other, in turn.

The baseline is a FastAPI endpoint with the same request and response models that does nothing.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.stopwatch import spread

ARMS, SHARED, LOCAL = 10, 10, 10
CONNECTIONS, SECONDS, REPETITIONS = 32, 4, 5
SERVER_CORE, LOAD_CORE = "0", "1"

EMPTY = """
from fastapi import FastAPI
from service import wire
app = FastAPI()

@app.post("/price")
async def price(request: wire.PriceRequest) -> wire.Decision:
    return wire.Decision(decision_id="a", city="b", arm=1, price=1.0, estimate=0.0, radius=1.0,
                         policy="none", limited_by=[])

@app.post("/feedback")
async def feedback(request: wire.FeedbackRequest) -> wire.Learned:
    return wire.Learned(decision_id=request.decision_id, reward=request.reward, learned=True, version=1)
"""


def context(rng: random.Random) -> dict[str, dict[str, float]]:
    return {
        "shared": {f"shared{i}": round(rng.random(), 6) for i in range(SHARED)},
        "local": {f"local{i}": round(rng.random(), 6) for i in range(LOCAL)},
    }


@contextmanager
def process(words: list[str], env: dict[str, str], folder: Path, port: int) -> Iterator[httpx.Client]:
    with (folder / f"log{port}.txt").open("wb") as log:
        server = subprocess.Popen(
            ["taskset", "-c", SERVER_CORE, *words],
            env={**os.environ, **env},
            cwd=folder,
            stderr=log,
            stdout=log,
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                deadline = time.monotonic() + 30
                while True:
                    try:
                        http.get("/openapi.json")
                        break
                    except httpx.TransportError:
                        if time.monotonic() > deadline or server.poll() is not None:
                            raise
                        time.sleep(0.05)
                yield http
        finally:
            server.terminate()
            server.wait(timeout=30)


def wrk(port: int, path: str, script: Path) -> float:
    """Requests per second; anything but 2xx is an error."""
    run = subprocess.run(
        [
            *("taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s"),
            *("-s", str(script), f"http://127.0.0.1:{port}{path}"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    if "Non-2xx" in run.stdout or "Socket errors" in run.stdout:
        raise SystemExit(run.stdout)
    found = re.search(r"Requests/sec:\s+([\d.]+)", run.stdout)
    assert found
    return float(found.group(1))


def lua(folder: Path, name: str, bodies: list[str]) -> Path:
    """A script that posts the bodies one after another, beginning again at the end."""
    (folder / f"{name}.txt").write_text("\n".join(bodies))
    script = folder / f"{name}.lua"
    script.write_text(
        f"""
local bodies, at = {{}}, 0
for line in io.lines("{folder}/{name}.txt") do bodies[#bodies + 1] = line end
request = function()
  at = at % #bodies + 1
  return wrk.format("POST", nil, {{["Content-Type"] = "application/json"}}, bodies[at])
end
"""
    )
    return script


def fresh_ids(http: httpx.Client, rng: random.Random, count: int) -> list[str]:
    ids: list[str] = []
    while len(ids) < count:
        body = {"requests": [context(rng) for _ in range(1000)]}
        ids += [d["decision_id"] for d in http.post("/price/batch", json=body).json()["decisions"]]
    return ids


def city_environment(database_url: str) -> dict[str, str]:
    return {
        "PRICEMESH_CITY": "bench",
        "PRICEMESH_ARMS_PRICES": json.dumps([float(8 + k) for k in range(ARMS)]),
        "PRICEMESH_FEATURES_SHARED": json.dumps([f"shared{i}" for i in range(SHARED)]),
        "PRICEMESH_FEATURES_LOCAL": json.dumps([f"local{i}" for i in range(LOCAL)]),
        "PRICEMESH_DATABASE_URL": database_url,
    }


def city_command(port: int) -> list[str]:
    return [sys.executable, "-m", "service", "serve", "--port", str(port), "--log-level", "warning"]


def main() -> None:
    if not shutil.which("wrk") or not shutil.which("taskset"):
        raise SystemExit("this benchmark needs wrk and taskset: apt-get install wrk util-linux")
    rng = random.Random(0)
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-bench-"))
    (folder / "empty.py").write_text(EMPTY)
    env = city_environment(os.environ.get("BENCH_DATABASE_URL", f"sqlite:///{folder}/bench.db"))
    uvicorn = [sys.executable, "-m", "uvicorn", "empty:app", "--port", "8901", "--no-access-log"]
    city = city_command(8902)
    prices = lua(folder, "price", [json.dumps(context(rng)) for _ in range(500)])
    batches = lua(
        folder, "batch", [json.dumps({"requests": [context(rng) for _ in range(100)]}) for _ in range(20)]
    )
    rates: dict[str, list[float]] = {}

    def measure(name: str, port: int, path: str, script: Path) -> None:
        rates.setdefault(name, []).append(wrk(port, path, script))

    with process(uvicorn, {}, folder, 8901), process(city, env, folder, 8902) as http:
        for repetition in range(REPETITIONS + 1):
            ids = fresh_ids(http, rng, 30_000)
            answers = lua(
                folder, "feedback", [json.dumps({"decision_id": id_, "reward": rng.random()}) for id_ in ids]
            )
            if repetition == 0:
                continue
            measure("empty /price", 8901, "/price", prices)
            measure("/price", 8902, "/price", prices)
            measure("empty /feedback", 8901, "/feedback", answers)
            measure("/feedback", 8902, "/feedback", answers)
            measure("/price/batch of 100", 8902, "/price/batch", batches)
            print(f"\r{repetition}/{REPETITIONS}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table = Table(title=f"K={ARMS}, c={SHARED}, s={LOCAL}, {CONNECTIONS} connections", title_justify="left")
    for head in ("call", "per second", "against", "ratio", "range"):
        table.add_column(head)
    for name, base, factor in (
        ("/price", "empty /price", 1),
        ("/feedback", "empty /feedback", 1),
        ("/price/batch of 100", "/price", 100),
    ):
        table.add_row(
            name,
            f"{factor * median(rates[name]):,.0f}",
            f"{base} ({median(rates[base]):,.0f})",
            *spread(rates[name], rates[base], factor),
        )
    Console(width=110).print(table)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
