"""Sales of a city with ten million decisions: `python -m benchmarks.rollups [ROWS]`, minutes; some gigabytes
of disk.

Rows of 1,000 days are written by SQL, folded into the rollups as a start after the migration does it, and
then the calls of the page are timed over HTTP. Feedback has no version, so that a start has nothing to learn.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import httpx
import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from pricemesh.lab.bench.load import ARMS, LOCAL, SHARED, city_command, city_environment, serve

DAYS = 1000
DAY_SECONDS = 86_400
REPETITIONS = 15
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
_DECISIONS = """
INSERT INTO decisions (id, made_at, arm, price, vectors, limited_by, policy, learner_version)
{numbers} SELECT 'd' || i, {start} + i * {step}, i * 7 % {arms}, 8.0 + i * 7 % {arms}, zeroblob({bytes}),
  '[]', 'netpool', 0 FROM n"""
_FEEDBACK = """
INSERT INTO feedback (decision, reward, received_at, by_default)
{numbers} SELECT i, i * 13 % 100 / 100.0, {start} + i * {step} + 60.0, 0 FROM n"""


def write_rows(path: Path, rows: int) -> None:
    """Evenly over the days before now."""
    start, step = time.time() - DAYS * DAY_SECONDS, DAYS * DAY_SECONDS / rows
    engine = sa.create_engine(f"sqlite:///{path}")
    values = {
        "numbers": _NUMBERS.format(rows=rows),
        "start": start,
        "step": step,
        "arms": ARMS,
        "bytes": 8 * (SHARED + LOCAL + 2 * ARMS),
    }
    with engine.begin() as connection:
        for statement in (_DECISIONS, _FEEDBACK):
            connection.exec_driver_sql(statement.format(**values))
    engine.dispose()


def fold(http: httpx.Client) -> tuple[float, list[float]]:
    """Seconds until the sums hold all rows, and of prices that were asked for meanwhile."""
    began_at, prices = time.monotonic(), []
    features = http.get("/state").json()["features"]
    context = {name: {each["name"]: 0.5 for each in features[name]} for name in ("shared", "local")}
    while not http.get("/sales").raise_for_status().json()["complete"]:
        at = time.monotonic()
        http.post("/price", json=context).raise_for_status()
        prices.append(time.monotonic() - at)
        time.sleep(0.2)
    return time.monotonic() - began_at, prices


def timed(http: httpx.Client, path: str) -> tuple[float, float, int]:
    """Median and maximum in milliseconds, and the bytes of the answer."""
    seconds, size = [], 0
    for _ in range(REPETITIONS):
        at = time.perf_counter()
        size = len(http.get(path).raise_for_status().content)
        seconds.append(time.perf_counter() - at)
    return 1e3 * median(seconds), 1e3 * max(seconds), size


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-rollups-", dir=os.environ.get("BENCH_FOLDER")))
    try:
        env = city_environment(f"sqlite:///{folder}/bench.db")
        with serve(city_command(), folder, env):
            pass  # makes the tables
        write_rows(folder / "bench.db", rows)
        with serve(city_command(), folder, env) as server:
            seconds, prices = fold(server.http)
            since = time.time() - DAYS * DAY_SECONDS
            paths = {
                "1,000 days": f"/sales?per=day&since={since:.0f}",
                "1,000 days by arm": f"/sales?per=day&arms=true&since={since:.0f}",
                "7 days of hours": "/sales?per=hour",
                "50 days of hours": f"/sales?per=hour&since={time.time() - 49 * DAY_SECONDS:.0f}",
                "142 weeks": f"/sales?per=week&since={since:.0f}",
                "state": "/state",
                "alerts": "/alerts",
                "value of the mesh": "/mesh-value",
                "acts": "/acts",
            }
            table = Table(title=f"{rows:,} decisions with feedback, {DAYS} days, {ARMS} arms, SQLite")
            for head in ("call", "median ms", "maximum ms", "bytes"):
                table.add_column(head, justify="left" if head == "call" else "right")
            for name, path in paths.items():
                middle, longest, size = timed(server.http, path)
                table.add_row(name, f"{middle:.1f}", f"{longest:.1f}", f"{size:,}")
        Console(width=110).print(table)
        slowest = f"; /price meanwhile: median {1e3 * median(prices):.1f} ms" if prices else ""
        print(f"folded in {seconds:.0f} s{slowest}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
