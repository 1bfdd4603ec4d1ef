"""Server processes on one core, and wrk on another core to load them. Knows nothing of ratios and tables."""

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
    """The core of each side; None where the machine has one core only or cannot pin a process."""

    server: int | None
    load: int | None


def cores() -> Cores:
    if not hasattr(os, "sched_getaffinity"):
        return Cores(None, None)
    available = sorted(os.sched_getaffinity(0))
    return Cores(available[0], available[1]) if len(available) > 1 else Cores(None, None)


def on_core(command: Sequence[str], core: int | None) -> list[str]:
    """The command, pinned to a core together with every process it starts."""
    if core is None:
        return list(command)
    pin = f"import os, sys; os.sched_setaffinity(0, {{{core}}}); os.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", pin, *command]


@dataclass(frozen=True)
class Server:
    """A process that listens, with the CPU time and the memory it has used."""

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
def serve(command: Sequence[str], folder: Path, env: dict[str, str] | None = None) -> Iterator[Server]:
    """Run a command that takes a port as its last argument, on the servers' core, until the block ends. Its
    output goes to a file in `folder`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = folder / f"log{port}.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            on_core([*command, str(port)], cores().server),
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
                        raise LoadFailed(f"{command} did not start:\n{log.read_text()[-2000:]}") from None
                    time.sleep(0.02)
            yield Server(http, port, process.pid)
    finally:
        process.terminate()
        process.wait(timeout=30)


def baseline_command(name: str) -> list[str]:
    return [sys.executable, "-m", "pricemesh.lab.bench.baselines", name]


def city_command(*options: str, python: str | Path = sys.executable, module: str = "pricemesh") -> list[str]:
    """`pricemesh serve` with the defaults of a user, unless there are options."""
    return [str(python), "-m", module, "serve", *options, "--port"]


def city_environment(database_url: str, name: str = "bench") -> dict[str, str]:
    return {
        "PRICEMESH_CITY": name,
        "PRICEMESH_ARMS_PRICES": json.dumps([float(8 + k) for k in range(ARMS)]),
        "PRICEMESH_FEATURES_SHARED": json.dumps([f"shared{i}" for i in range(SHARED)]),
        "PRICEMESH_FEATURES_LOCAL": json.dumps([f"local{i}" for i in range(LOCAL)]),
        "PRICEMESH_REWARD_KIND": "value",
        "PRICEMESH_REWARD_LARGEST": "100",
        "PRICEMESH_DATABASE_URL": database_url,
    }


def random_context(rng: random.Random) -> dict[str, dict[str, float]]:
    return {
        "shared": {f"shared{i}": round(rng.random(), 6) for i in range(SHARED)},
        "local": {f"local{i}": round(rng.random(), 6) for i in range(LOCAL)},
    }


def fresh_ids(http: httpx.Client, rng: random.Random, count: int) -> list[str]:
    """Decisions without feedback."""
    ids: list[str] = []
    body = {"requests": [random_context(rng) for _ in range(1000)]}
    while len(ids) < count:
        ids += [
            decision["decision_id"] for decision in http.post("/price/batch", json=body).json()["decisions"]
        ]
    return ids


class Requests(NamedTuple):
    """POSTs that wrk sends in order, again from the first after the last."""

    script: Path


def write_requests(folder: Path, name: str, calls: Sequence[tuple[str, object]]) -> Requests:
    """`calls` are pairs of path and body."""
    lines = folder / f"{name}.txt"
    lines.write_text("\n".join(f"{path} {json.dumps(body)}" for path, body in calls))
    script = folder / f"{name}.lua"
    script.write_text(
        f"""
local calls, at = {{}}, 0
function init(args)
  local head = {{["Content-Type"] = "application/json"}}
  for line in io.lines("{lines}") do
    local path, body = line:match("^(%S+) (.*)$")
    calls[#calls + 1] = wrk.format("POST", path, head, body)
  end
end
function request()
  at = at % #calls + 1
  return calls[at]
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
    cpu_seconds: float  # of the server, for one call


def require_wrk() -> str:
    """The path of wrk."""
    path = shutil.which("wrk")
    if not path:
        raise MissingExtra(
            "wrk makes the load and is not installed: apt-get install wrk, or brew install wrk"
        )
    return path


def apply_load(
    server: Server,
    requests: Requests,
    seconds: float,
    *,
    connections: int = CONNECTIONS,
    think_milliseconds: int = 0,
) -> Load:
    """Send requests for `seconds`. A connection pauses `think_milliseconds` on average after each answer.
    Raises LoadFailed if any answer is not 2xx."""
    before = server.cpu_seconds()
    run = subprocess.run(
        on_core(
            [
                *(require_wrk(), "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--latency"),
                *("-s", str(requests.script), f"http://127.0.0.1:{server.port}"),
            ],
            cores().load,
        ),
        capture_output=True,
        text=True,
        env={**os.environ, "THINK_MILLISECONDS": str(think_milliseconds)},
    )
    if run.returncode or "Non-2xx" in run.stdout or "Socket errors" in run.stdout:
        raise LoadFailed(f"wrk: {run.stdout}{run.stderr}")
    count = int(_parse(r"(\d+) requests in", run.stdout)[0])
    return Load(
        float(_parse(r"Requests/sec:\s+([\d.]+)", run.stdout)[0]),
        count,
        _seconds(run.stdout, "50"),
        _seconds(run.stdout, "99"),
        (server.cpu_seconds() - before) / max(1, count),
    )


def _seconds(report: str, percentile: str) -> float:
    number, unit = _parse(rf"\s{percentile}%\s+([\d.]+)(us|ms|s|m)", report)
    return float(number) * _UNITS[unit]


def _parse(pattern: str, report: str) -> tuple[str, ...]:
    match = re.search(pattern, report)
    if match is None:
        raise LoadFailed(f"the report of wrk does not match {pattern!r}: {report}")
    return match.groups()
