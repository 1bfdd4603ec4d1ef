"""How long a city takes to start, by the number of decisions in its database."""

import random
import tempfile
import time
from pathlib import Path
from statistics import median

from pricemesh.lab.bench.load import city_command, city_environment, random_context, serve
from pricemesh.lab.bench.ratios import Say, Suite, ratio


def recovery(*, quick: bool, say: Say) -> Suite:
    suite = Suite("recovery", "From the command to the first answer, SQLite, by decisions kept")
    sizes = (1_000, 10_000) if quick else (1_000, 30_000, 300_000)
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory(prefix="pricemesh-bench-") as name:
        folder, rng = Path(name), random.Random(0)
        for size in sizes:
            say(f"{size:,} decisions to start from")
            with serve(city_command(), folder, city_environment(f"sqlite:///{folder}/{size}.db")) as server:
                body = {"requests": [random_context(rng) for _ in range(1000)]}
                for _ in range(0, size, 1000):
                    decisions = server.http.post("/price/batch", json=body).json()["decisions"]
                    items = [{"decision_id": one["decision_id"], "reward": 0.5} for one in decisions[:100]]
                    server.http.post("/feedback/batch", json={"items": items})
        for _ in range(3 if quick else 5):
            for size in sizes:
                say(f"start, {size:,} decisions")
                started = time.perf_counter()
                with serve(city_command(), folder, city_environment(f"sqlite:///{folder}/{size}.db")):
                    seconds[size].append(time.perf_counter() - started)
    base = seconds[sizes[0]]
    for size in sizes[1:]:
        times = seconds[size]
        figure = f"{median(times):.2f} s"
        suite.ratios.append(ratio(f"start, {size:,} decisions", times, f"{sizes[0]:,}", base, figure=figure))
    return suite
