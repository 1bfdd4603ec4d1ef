"""The cost of open dashboards to `/price`: `make bench-pages`. Server on one core, wrk and pages on the
other.

The same city with 20 readers of `/events` and with none, in turn; and the bytes that a page loads.
"""

import os
import random
import re
import selectors
import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path
from statistics import median

import httpx
from rich.console import Console
from rich.table import Table

from pricemesh.lab.bench.load import (
    CONNECTIONS,
    apply_load,
    city_command,
    city_environment,
    cores,
    random_context,
    serve,
    write_requests,
)
from pricemesh.lab.bench.ratios import spread

PAGES, REPETITIONS, SECONDS = 20, 9, 4


class Readers:
    """Connections that read every frame, as open pages do."""

    def __init__(self, port: int, count: int) -> None:
        self.frames = 0
        self._stop = threading.Event()
        self._selector = selectors.DefaultSelector()
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self._selector.register(connection, selectors.EVENT_READ, connection)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(timeout=0.2):
                self.frames += key.data.recv(1 << 20).count(b"event: frame")

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()


def page_files(http: httpx.Client, path: str, *, later: bool = False) -> dict[str, bytes]:
    """Every file that a page loads before it asks for data, by address; with `later` also those of its other
    views."""
    module = r'(?:from |import\()"\./([^"]+)"' if later else r'from "\./([^"]+)"'
    files = {path: http.get(path).content}
    links = [f"/{link}" for link in re.findall(r'(?:src|href)="(page/[^"]+)"', files[path].decode())]
    while links:
        address = links.pop()
        if address not in files:
            answer = http.get(address).raise_for_status()
            files[address] = answer.content
            links += [f"/page/{name}" for name in re.findall(module, answer.text)]
    return files


def main() -> None:
    rng = random.Random(0)
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-bench-"))
    env = city_environment(os.environ.get("BENCH_DATABASE_URL", f"sqlite:///{folder}/bench.db"))
    prices = write_requests(folder, "price", [("/price", random_context(rng)) for _ in range(500)])
    rates: dict[int, list[float]] = {0: [], PAGES: []}  # by open pages
    frames = 0
    with serve(city_command(), folder, env) as server:
        http, port = server.http, server.port
        if (core := cores().load) is not None:
            os.sched_setaffinity(0, {core})  # of the pages, and of wrk
        apply_load(server, prices, SECONDS)
        for repetition in range(REPETITIONS):
            for readers in (0, PAGES) if repetition % 2 else (PAGES, 0):
                pages = Readers(port, readers)
                rates[readers].append(apply_load(server, prices, SECONDS).per_second)
                frames += pages.frames
                pages.close()
            print(f"\r{repetition + 1}/{REPETITIONS}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        table = Table(title=f"/price with {CONNECTIONS} connections", title_justify="left")
        for head in ("open pages", "per second", "against none", "range", "frames read"):
            table.add_column(head)
        table.add_row("none", f"{median(rates[0]):,.0f}", "", "", "")
        table.add_row(
            str(PAGES), f"{median(rates[PAGES]):,.0f}", *spread(rates[PAGES], rates[0]), f"{frames:,}"
        )
        loads = Table(title="What a page takes to load, in bytes", title_justify="left")
        for head in ("page", "files", "their bytes", "first data", "all"):
            loads.add_column(head)
        data = len(http.get("/events?frames=1").content)
        for path in ("/", "/mesh"):
            files = page_files(http, path)
            size = sum(map(len, files.values()))
            loads.add_row(path, str(len(files)), f"{size:,}", f"{data:,}", f"{size + data:,}")
    Console(width=110).print(table)
    Console(width=110).print(loads)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
