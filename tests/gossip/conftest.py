"""Cities over HTTP, and servers that are none."""

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.gossip.over_http import NAMES, Start
from tests.running import RunningCity, start_mesh


@pytest.fixture
def start_cities(tmp_path: Path) -> Iterator[Start]:
    running: list[RunningCity] = []

    def start(*names: str, **sections: Any) -> list[RunningCity]:
        started = start_mesh(tmp_path, names or NAMES, **sections)
        running.extend(started)
        return started

    yield start
    for city in running:
        city.stop()


@pytest.fixture
def serve_bytes() -> Iterator[Callable[[bytes], str]]:
    """A server that answers everything with the same bytes."""
    servers = []

    def serve(answer: bytes) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()
