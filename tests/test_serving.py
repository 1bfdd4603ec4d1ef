"""The process that serves a city: how many connections it takes, and how it ends."""

import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pricemesh.serving.server import RESERVED_FILES, allowed_connections
from tests.running import CityProcess

ALLOWED = """
import resource, sys
soft, hard, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from pricemesh.serving.server import allowed_connections
print(allowed_connections(wanted), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "soft_after"),
    [
        (1000, 1000, 500, 1000),
        (300, 1000, 500, 500 + RESERVED_FILES),  # the process may ask for more, and does
        (300, 400, 400 - RESERVED_FILES, 400),
    ],
)
def test_connections_stay_below_the_files_that_the_process_may_open(
    soft: int, hard: int, allowed: int, soft_after: int
) -> None:
    words = [sys.executable, "-c", ALLOWED, str(soft), str(hard), "500"]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [str(allowed), str(soft_after)]


def test_the_limits_of_this_machine_allow_a_few() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert allowed_connections(1) == 1
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_a_stop_cuts_an_unfinished_body_and_idle_callers_and_is_clean(
    tmp_path: Path,
) -> None:
    city = CityProcess(tmp_path, f"sqlite:///{tmp_path}/city.db", server={"drain_seconds": 0.0})
    host, _, port = city.url.removeprefix("http://").partition(":")
    callers = [socket.create_connection((host, int(port)), timeout=20) for _ in range(3)]
    idle, half, kept = callers
    half.sendall(b"POST /price HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
    kept.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert kept.recv(65_536).startswith(b"HTTP/1.1 200")
    assert city.stop() == 0
    assert b"problem:shutting-down" in half.recv(65_536)
    assert idle.recv(1) == b""
    assert "graceful shutdown exceeded" not in (tmp_path / "log.txt").read_text()
    for caller in callers:
        caller.close()
