"""How long a city takes to start with a million decisions that wait for feedback.

The rows are the same with `pending` on and off; with off, no decision waits. They are written and counted as
the service does it, with a snapshot whenever one is due; the last rows come after the last one, and every
start ends by `kill -9`. Prints the median time from the command to the first answer:

    python -m benchmarks.pending
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np

from pricemesh.city.configuration import as_variables
from pricemesh.city.pricing import Pricing
from pricemesh.city.settings import Settings
from pricemesh.core.decision import Decision, Occasion
from pricemesh.lab.demo import free_ports
from pricemesh.runtime import Runtime
from pricemesh.store.commands import Command, SaveDecisions, SaveFeedback

ROWS_PER_COMMIT = 1000
ANSWERED_AT_FIRST = 1500  # so that both have lessons to learn again
STARTS = 9


def sections_at(path: Path, pending: str) -> dict[str, Any]:
    return {
        "city": "lisbon",
        "arms": {"prices": [8.0, 9.0, 10.0, 11.0, 12.0]},
        "features": {"shared": ["demand", "rain", "event"], "local": ["tourists", "strike"]},
        "reward": {"kind": "value", "largest": 100.0},
        "policy": {"name": "netpool", "pending": pending},
        "database": {"url": f"sqlite:///{path}"},
    }


def fill(settings: Settings, decisions: int) -> None:
    """Ends as `kill -9` does: without a snapshot of the last rows."""
    pricing = Pricing(settings, Runtime())
    pricing.open()
    rng, arms = np.random.default_rng(0), settings.shape.arms
    for first in range(0, decisions, ROWS_PER_COMMIT):
        vectors = rng.random((ROWS_PER_COMMIT, settings.shape.dim + 2 * arms))
        occasion = Occasion(time.time(), "netpool", pricing.version)
        rows = [
            Decision(f"{first + i:x}", None, i % arms, 8.0, "[]", vector.tobytes(), 1.0, None, occasion)
            for i, vector in enumerate(vectors)
        ]
        follow(pricing, SaveDecisions(rows))
        if first < ANSWERED_AT_FIRST:
            items = [(row.id, float(rng.normal())) for row in rows]
            follow(pricing, SaveFeedback(items, time.time(), False, 0.0))
    pricing.database.close()


def follow(pricing: Pricing, command: Command) -> None:
    live = pricing.live
    live.follow(pricing.database.commit([command]))
    if live.snapshot_due:
        snapshot = live.snapshot()
        pricing.database.commit([snapshot])
        live.snapshot_submitted(snapshot)


def start_seconds(sections: dict[str, Any]) -> float:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "pricemesh", "serve", "--port", str(port)]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, env=os.environ | as_variables(sections), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with httpx.Client(trust_env=False) as http:
            while True:
                try:
                    http.get(f"http://127.0.0.1:{port}/version")
                    return time.perf_counter() - started
                except httpx.TransportError:
                    if process.poll() is not None:
                        raise
                    time.sleep(0.005)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    decisions = parser.parse_args().decisions
    with tempfile.TemporaryDirectory(prefix="pricemesh-pending-") as folder:
        cases = {pending: sections_at(Path(folder) / f"{pending}.db", pending) for pending in ("on", "off")}
        for sections in cases.values():
            fill(Settings.model_validate(sections), decisions)
        seconds: dict[str, list[float]] = {label: [] for label in cases}
        for _ in range(STARTS):
            for label, sections in cases.items():
                seconds[label].append(start_seconds(sections))
    medians = {label: median(values) for label, values in seconds.items()}
    for label, value in medians.items():
        print(f"{decisions:,} decisions, pending {label}: {1000 * value:.0f} ms")
    print(f"ratio {medians['on'] / medians['off']:.2f}")


if __name__ == "__main__":
    main()
