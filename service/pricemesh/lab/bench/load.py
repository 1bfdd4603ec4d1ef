"""Servers on one core and the load on another: processes to measure, and wrk to measure them with."""

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx

from pricemesh.errors import MissingExtra, PricemeshError

ARMS, SHARED, LOCAL = 10, 10, 10
CONNECTIONS = 32
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


class LoadFailed(PricemeshError):
    """A server that did not start, or answers that were not 2xx."""


class Cores(NamedTuple):
    """Which core each side is held to; None where the machine has only one, or cannot."""

    server: int | None
    load: int | None


def cores() -> Cores:
    if not hasattr(os, "sched_getaffinity"):
        return Cores(None, None)
    there = sorted(os.sched_getaffinity(0))
    return Cores(there[0], there[1]) if len(there) > 1 else Cores(None, None)


def pinned(words: Sequence[str], core: int | None) -> list[str]:
    """A command that holds itself to a core, and with it everything it starts."""
    if core is None:
        return list(words)
    hold = f"import os, sys; os.sched_setaffinity(0, {{{core}}}); os.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", hold, *words]


@dataclass(frozen=True)
class Server:
    """A process that listens, and what it has used."""

    http: httpx.Client
    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


@contextmanager
def served(words: Sequence[str], folder: Path, env: dict[str, str] | None = None) -> Iterator[Server]:
    """Run a command that takes a port as its last word, on the servers' core, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = folder / f"log{port}.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            pinned([*words, str(port)], cores().server),
            env={**os.environ, **(env or {})},
            cwd=folder,
            stderr=out,
            stdout=out,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as http:
            deadline = time.monotonic() + 30
            while True:
                try:
                    http.get("/version")
                    break
                except httpx.TransportError:
                    if time.monotonic() > deadline or process.poll() is not None:
                        raise LoadFailed(f"{words} did not start:\n{log.read_text()[-2000:]}") from None
                    time.sleep(0.02)
            yield Server(http, port, process.pid)
    finally:
        process.terminate()
        process.wait(timeout=30)


def baseline(name: str) -> list[str]:
    return [sys.executable, "-m", "pricemesh.lab.bench.baselines", name]


def city() -> list[str]:
    return [sys.executable, "-m", "pricemesh", "serve", "--log-level", "warning", "--port"]


def city_environment(database_url: str, name: str = "bench") -> dict[str, str]:
    return {
        "PRICEMESH_CITY": name,
        "PRICEMESH_ARMS_PRICES": json.dumps([float(8 + k) for k in range(ARMS)]),
        "PRICEMESH_FEATURES_SHARED": json.dumps([f"shared{i}" for i in range(SHARED)]),
        "PRICEMESH_FEATURES_LOCAL": json.dumps([f"local{i}" for i in range(LOCAL)]),
        "PRICEMESH_DATABASE_URL": database_url,
    }


def context(rng: random.Random) -> dict[str, dict[str, float]]:
    return {
        "shared": {f"shared{i}": round(rng.random(), 6) for i in range(SHARED)},
        "local": {f"local{i}": round(rng.random(), 6) for i in range(LOCAL)},
    }


def fresh_ids(http: httpx.Client, rng: random.Random, count: int) -> list[str]:
    """Decisions that nobody has answered."""
    ids: list[str] = []
    body = {"requests": [context(rng) for _ in range(1000)]}
    while len(ids) < count:
        ids += [
            decision["decision_id"] for decision in http.post("/price/batch", json=body).json()["decisions"]
        ]
    return ids


class Requests(NamedTuple):
    """POSTs that wrk sends one after another, beginning again at the end."""

    script: Path


def requests(folder: Path, name: str, calls: Sequence[tuple[str, object]]) -> Requests:
    """`calls` are (path, body)."""
    lines = folder / f"{name}.txt"
    lines.write_text("\n".join(f"{path} {json.dumps(body)}" for path, body in calls))
    script = folder / f"{name}.lua"
    script.write_text(
        f"""
local made, at = {{}}, 0
function init(args)
  local head = {{["Content-Type"] = "application/json"}}
  for line in io.lines("{lines}") do
    local path, body = line:match("^(%S+) (.*)$")
    made[#made + 1] = wrk.format("POST", path, head, body)
  end
end
function request()
  at = at % #made + 1
  return made[at]
end
local mean = tonumber(os.getenv("THINK_MILLISECONDS") or "0")
if mean > 0 then
  function delay() return math.random(0, 2 * mean) end
end
"""
    )
    return Requests(script)


class Load(NamedTuple):
    per_second: float
    calls: int
    p50_seconds: float
    p99_seconds: float
    cpu_seconds: float  # of the server, each call


def need_wrk() -> str:
    found = shutil.which("wrk")
    if not found:
        raise MissingExtra(
            "wrk makes the load and is not installed: apt-get install wrk, or brew install wrk"
        )
    return found


def loaded(
    server: Server, sent: Requests, seconds: float, *, connections: int = CONNECTIONS, think: int = 0
) -> Load:
    """Send for so long; with `think`, each connection pauses so many milliseconds in the mean after an
    answer. Anything but 2xx is an error."""
    before = server.cpu_seconds()
    run = subprocess.run(
        pinned(
            [
                *(need_wrk(), "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--latency"),
                *("-s", str(sent.script), f"http://127.0.0.1:{server.port}"),
            ],
            cores().load,
        ),
        capture_output=True,
        text=True,
        env={**os.environ, "THINK_MILLISECONDS": str(think)},
    )
    if run.returncode or "Non-2xx" in run.stdout or "Socket errors" in run.stdout:
        raise LoadFailed(f"wrk: {run.stdout}{run.stderr}")
    count = int(_said(r"(\d+) requests in", run.stdout)[0])
    return Load(
        float(_said(r"Requests/sec:\s+([\d.]+)", run.stdout)[0]),
        count,
        _seconds(run.stdout, "50"),
        _seconds(run.stdout, "99"),
        (server.cpu_seconds() - before) / max(1, count),
    )


def _seconds(said: str, percentile: str) -> float:
    number, unit = _said(rf"\s{percentile}%\s+([\d.]+)(us|ms|s|m)", said)
    return float(number) * _UNITS[unit]


def _said(pattern: str, text: str) -> tuple[str, ...]:
    found = re.search(pattern, text)
    if found is None:
        raise LoadFailed(f"wrk said something else: {text}")
    return found.groups()
