"""City processes for a demonstration: they start, are checked, and end with the process that started them."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from socket import create_server
from typing import Any

from pricemesh.city.configuration import PREFIX, as_variables
from pricemesh.errors import NotStarted
from pricemesh.lab.caller import Caller, CallFailed
from pricemesh.lab.worlds import World

CITY_NAMES = ("lisbon", "porto", "faro", "madrid", "seville", "bilbao", "braga", "vigo")
MAX_START_SECONDS = 30.0
MAX_LINEAR_REWARD = 1000.0  # far beyond what its effects and noise add up to


def free_ports(count: int) -> list[int]:
    """Free ports below the ephemeral range, so that a restarted city finds its port still free."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), create_server(("127.0.0.1", port)):
            if port not in ports:
                ports.append(port)
    return ports


class CityProcesses:
    """`pricemesh serve` for every city. A city ends when this process ends, even by a kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[tuple[str, subprocess.Popen[bytes], Path]] = []

    def start(self, name: str, port: int, settings: dict[str, Any]) -> None:
        """Start the process of a city; `wait_until_ready` waits until it serves."""
        log = self._folder / f"{name}.log"
        env = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
        env |= as_variables(
            settings | {"server": {"port": port, "stop_with_stdin": True, "drain_seconds": 0.0}}
        )
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "pricemesh", "serve"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=env,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C ends the demonstration, which ends the cities
            )
        self._processes.append((name, process, log))

    async def wait_until_ready(self, urls: Sequence[str]) -> None:
        """Raises NotStarted if a city is not ready within MAX_START_SECONDS."""
        deadline = time.monotonic() + MAX_START_SECONDS
        for url in urls:
            caller = Caller(url, timeout_seconds=2.0)
            while True:
                with suppress(CallFailed):
                    status, _ = await caller.call("GET", "/readyz")
                    if status == 200:
                        break
                self.check()
                if time.monotonic() > deadline:
                    raise NotStarted(f"{url} was not ready within {MAX_START_SECONDS:g} s")
                await asyncio.sleep(0.05)
            caller.close()

    def check(self) -> None:
        """Raise NotStarted, with the end of its log, if a city has ended."""
        for name, process, log in self._processes:
            if process.poll() is not None:
                tail = log.read_text(errors="replace")[-2000:]
                raise NotStarted(f"{name} has ended with exit code {process.returncode}:\n{tail}")

    def stop(self) -> None:
        for _, process, _ in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for _, process, _ in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def city_settings(
    world: World, name: str, database: Path, policy: str, peers: Sequence[str], secret: str
) -> dict[str, Any]:
    """The settings of a city with the arms and features of this world. Cities of the market sell."""
    from pricemesh.lab.market import Market

    prices: Sequence[float] = [float(8 + arm) for arm in range(world.arms)]
    shared: Sequence[str] = [f"shared{i}" for i in range(world.shared)]
    local: Sequence[str] = [f"local{i}" for i in range(world.widest_local)]
    low = -1.0
    reward: dict[str, Any] = {"kind": "value", "largest": MAX_LINEAR_REWARD}
    if isinstance(world, Market):
        prices, (shared, local), low = world.prices, world.feature_names, 0.0
        reward = {"kind": "purchase", "cost": 0.0, "scale": max(prices)}
    return {
        "city": name,
        "arms": {"prices": list(prices)},
        "features": {
            "shared": [{"name": each, "min": low, "max": 1.0} for each in shared],
            "local": [{"name": each, "min": low, "max": 1.0} for each in local],
        },
        "reward": reward,
        "policy": {"name": policy},
        "database": {"url": f"sqlite:///{database}"},
        "lab": {"demo": True},
        "gossip": {"peers": list(peers), "secrets": [secret], "interval_seconds": 0.5} if peers else {},
    }
