"""A city that really listens: uvicorn in a thread, or `pricemesh serve` in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from pricemesh.city.configuration import as_variables
from pricemesh.city.pricing import Pricing
from pricemesh.city.settings import Settings
from pricemesh.lab.demo import free_ports
from pricemesh.runtime import Runtime
from pricemesh.serving.app import create_app
from pricemesh.serving.server import configuration

CONFIG: dict[str, Any] = {
    "city": "lisbon",
    "arms": {"prices": [8.0, 9.0, 10.0, 11.0, 12.0]},
    "features": {
        "shared": ["demand", {"name": "rain", "min": 0, "max": 1}, "event"],
        "local": ["tourists", "strike"],
    },
    "reward": {"kind": "value", "largest": 1e12},
}
CONTEXT = {
    "shared": {"demand": 0.5, "rain": 0.25, "event": 1.0},
    "local": {"tourists": 0.1, "strike": 0.0},
}


PATIENT_DATABASE = {"timeout_seconds": 30.0, "read_timeout_seconds": 60.0}
PATIENT_LIMITS = {"max_wait_seconds": 30.0}
IMPATIENT: dict[str, Any] = {  # the defaults of a city, but for reads
    "database": {"timeout_seconds": 1.0, "read_timeout_seconds": 1.0},
    "limits": {"max_wait_seconds": 1.0},
}


def patient(url: str, sections: dict[str, Any]) -> dict[str, Any]:
    """A configuration with long time limits, so that a busy machine refuses nobody. Tests of the time limits
    set their own."""
    database = {"url": url, **PATIENT_DATABASE, **sections.pop("database", {})}
    limits = PATIENT_LIMITS | sections.pop("limits", {})
    return {**CONFIG, "database": database, "limits": limits, **sections}


def settings_for(url: str, **sections: Any) -> Settings:
    return Settings.model_validate(patient(url, sections))


MAX_WAIT_SECONDS = 60.0  # a test that waits longer has failed


def until(condition: Callable[[], Any]) -> float:
    """How many seconds it took until it was true."""
    began_at = time.monotonic()
    while not condition():
        assert time.monotonic() < began_at + MAX_WAIT_SECONDS
        time.sleep(0.02)
    return time.monotonic() - began_at


class RunningCity:
    """In a thread of this process, so that a test may look inside."""

    def __init__(self, settings: Settings, port: int = 0, runtime: Runtime | None = None) -> None:
        self.app = create_app(settings, runtime)
        self._server = uvicorn.Server(configuration(self.app, host="127.0.0.1", port=port))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("the city did not start")
            time.sleep(0.005)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, timeout=20)

    @property
    def pricing(self) -> Pricing:
        return self.app.pricing

    def price(self, **more: Any) -> dict[str, Any]:
        response = self.http.post("/price", json=CONTEXT | more)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def feedback(self, decision_id: str, reward: float) -> httpx.Response:
        return self.http.post("/feedback", json={"decision_id": decision_id, "reward": reward})

    def sale(self, decision_id: str, sold: float) -> httpx.Response:
        """Feedback of a city of purchases."""
        return self.http.post("/feedback", json={"decision_id": decision_id, "sold": sold})

    def state(self) -> dict[str, Any]:
        """Without `gossip`, which counts ticks, and `clock`, which waits after a start."""
        body: dict[str, Any] = self.http.get("/state").json()
        del body["gossip"], body["clock"]
        return body

    def tick(self, phase: str = "both") -> dict[str, Any]:
        response = self.http.post("/admin/tick", json={"phase": phase})
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def peers(self) -> dict[str, dict[str, Any]]:
        return {peer["origin"]: peer for peer in self.state()["peers"]}

    def stop(self) -> None:
        """Once more does no harm."""
        self.http.close()
        self._server.should_exit = True
        self._thread.join(timeout=20)
        assert not self._thread.is_alive()


def start_mesh(folder: Path, names: Sequence[str], **sections: Any) -> list[RunningCity]:
    """Cities that all know each other's address, each with a database of its own. `own` has sections for
    single cities, by name."""
    ports = free_ports(len(names))
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    gossip = {"lockstep": True, **sections.pop("gossip", {})}
    own_sections = sections.pop("own", {})
    cities = []
    for name, port, own in zip(names, ports, addresses, strict=True):
        peers = [address for address in addresses if address != own]
        settings = settings_for(
            f"sqlite:///{folder}/{name}.db",
            city=name,
            gossip={"peers": peers, **gossip},
            **sections,
            **own_sections.get(name, {}),
        )
        cities.append(RunningCity(settings, port))
    return cities


class CityProcess:
    """`pricemesh serve` on a free port, to be killed at will. One that shares its port with a socket of the
    test keeps it from other processes while it is down. `source` is the tree of another version."""

    def __init__(
        self,
        folder: Path,
        url: str,
        port: int = 0,
        *,
        share_port: bool = False,
        source: Path | None = None,
        **sections: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        server = {"stop_with_stdin": True}
        config = {"server": server, **patient(url, sections)}
        options = ["--share-port"] if share_port else []
        paths = {} if source is None else {"PYTHONPATH": str(source / "service")}
        self._log = folder / "log.txt"
        with self._log.open("ab") as log:
            before = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pricemesh", "serve", "--port", str(port), *options],
                stdin=subprocess.PIPE,  # it ends with this process, whatever ends it
                stderr=log,
                stdout=log,
                cwd=folder,
                env={**os.environ, **paths, **as_variables(config)},
            )
        self.url = self._wait_for_address(before)

    def _wait_for_address(self, start: int) -> str:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            lines = self._log.read_bytes()[start:].decode().splitlines()
            said = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
            if any(line["message"] == "serving" for line in said):
                return str(next(line["address"] for line in said if line["message"] == "listening"))
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"the city did not start:\n{self._log.read_text()[-2000:]}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._close()

    def wait(self) -> int:
        """Until it ends by itself; the exit code."""
        code = self._process.wait(MAX_WAIT_SECONDS)
        self._close()
        return code

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ask_to_stop(self) -> None:
        self._process.terminate()

    def stop(self) -> int:
        self._process.terminate()
        code = self._process.wait(timeout=30)
        self._close()
        return code

    def _close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
