"""`pricemesh serve` and the signals of its operator."""

import json
import logging
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pricemesh.city.configuration import as_variables
from pricemesh.http.keys import new_key, write_keys
from pricemesh.lab.demo import free_ports
from pricemesh.serving.app import create_app
from pricemesh.serving.server import Server, configuration
from tests.running import CONFIG, CONTEXT, settings_for

Serve = Callable[..., "Service"]
MAX_WAIT_SECONDS = 60.0


class Service:
    """A process with standard error in a file, unless the test has another place for it."""

    def __init__(self, folder: Path, *, stderr: Any = None, shell_suffix: str = "", **sections: Any) -> None:
        self._log = folder / "log.txt"
        config = {**CONFIG, "database": {"url": f"sqlite:///{folder}/city.db"}, **sections}
        command = f"exec '{sys.executable}' -m pricemesh serve --port 0 {shell_suffix}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", command],
                stderr=log if stderr is None else stderr,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **as_variables(config)},
                start_new_session=True,
            )

    def lines(self) -> list[dict[str, Any]]:
        text = self._log.read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("}\n")]

    def messages(self) -> list[str]:
        return [line["message"] for line in self.lines()]

    def wait_for(self, message: str, count: int = 1) -> dict[str, Any]:
        """The line, once the log has it so many times."""
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while time.monotonic() < deadline:
            found = [line for line in self.lines() if line["message"].startswith(message)]
            if len(found) >= count:
                return found[-1]
            assert self.process.poll() is None, self._log.read_text()
            time.sleep(0.02)
        raise AssertionError(f"no {message!r} in:\n{self._log.read_text()}")

    @property
    def url(self) -> str:
        self.wait_for("serving")
        return str(self.wait_for("listening")["address"])

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(timeout=MAX_WAIT_SECONDS)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    services: list[Service] = []

    def start(**options: Any) -> Service:
        services.append(Service(tmp_path, **options))
        return services[-1]

    yield start
    for service in services:
        service.process.kill()
        service.process.wait()


def read_until(descriptor: int, text: bytes) -> bytes:
    output = b""
    while text not in output:
        chunk = os.read(descriptor, 4096)
        assert chunk, output
        output += chunk
    return output


def test_hangup_reads_the_keys_again_and_ends_nothing(serve: Serve, tmp_path: Path) -> None:
    presented, key = new_key("price")
    write_keys(tmp_path / "keys.toml", {key.id: key})
    service = serve(security={"api_keys_file": str(tmp_path / "keys.toml")})
    headers = {"Authorization": f"Bearer {presented}"}
    assert httpx.post(f"{service.url}/price", json=CONTEXT, headers=headers).status_code == 200
    service.signal(signal.SIGHUP)
    assert service.wait_for("API keys were read again")["keys"] == 1
    write_keys(tmp_path / "keys.toml", {})
    service.signal(signal.SIGHUP)
    assert service.wait_for("API keys were read again", count=2)["keys"] == 0
    assert httpx.post(f"{service.url}/price", json=CONTEXT, headers=headers).status_code == 401
    (tmp_path / "keys.toml").write_text("keys = 5")
    service.signal(signal.SIGHUP)
    assert "[[keys]]" in service.wait_for("the API keys could not be read again")["fault"]
    service.signal(signal.SIGTERM)
    assert service.end() == 0


def test_hangup_without_keys_is_said_to_do_nothing(serve: Serve) -> None:
    service = serve()
    assert service.url
    service.signal(signal.SIGHUP)
    service.wait_for("SIGHUP: this city has no API keys to read again")
    service.signal(signal.SIGINT)
    assert service.end() == 0
    assert service.messages().count("stopped") == 1


def test_a_city_on_a_terminal_ends_with_it(serve: Serve) -> None:
    terminal, stderr = pty.openpty()
    service = serve(stderr=stderr, server={"drain_seconds": 0.0})
    os.close(stderr)
    read_until(terminal, b"startup complete")
    service.signal(signal.SIGHUP)
    read_until(terminal, b"SIGHUP: this city has no API keys")
    os.close(terminal)
    service.signal(signal.SIGHUP)  # as the system sends it to the terminal's session
    assert service.end() == 0


def test_a_drain_cuts_no_request_under_way(serve: Serve) -> None:
    """Neither one whose body is still arriving, nor one that comes during the drain on an open connection."""
    service = serve(server={"drain_seconds": 600.0})
    body = json.dumps(CONTEXT).encode()
    url = service.url
    host, _, port = url.removeprefix("http://").partition(":")
    head = f"POST /price HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((host, int(port)), timeout=MAX_WAIT_SECONDS) as caller:
        caller.sendall(head + body[:10])
        service.signal(signal.SIGTERM)
        while httpx.get(f"{url}/readyz").status_code == 200:
            pass
        caller.sendall(body[10:])
        assert caller.recv(65_536).startswith(b"HTTP/1.1 200")
        caller.sendall(head + body)
        assert caller.recv(65_536).startswith(b"HTTP/1.1 200")
    service.signal(signal.SIGTERM)
    assert service.end() == 0


def test_the_second_signal_ends_a_long_drain(serve: Serve) -> None:
    service = serve(server={"drain_seconds": 600.0})
    assert service.url
    service.signal(signal.SIGTERM)
    line = service.wait_for("stopping")
    assert (line["signal"], line["drain_seconds"]) == ("SIGTERM", 600.0)
    service.signal(signal.SIGTERM)
    assert service.end() == 0
    assert service.messages().count("stopped") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_the_start_is_no_failure(serve: Serve, tmp_path: Path, number: int) -> None:
    """The lock of another city keeps it from serving."""
    first = serve()
    assert first.url
    (tmp_path / "second").mkdir()
    second = Service(
        tmp_path / "second", database={"url": f"sqlite:///{tmp_path}/city.db", "lock_wait_seconds": 600}
    )
    try:
        second.wait_for("another process owns the database")
        second.signal(number)
        if number == signal.SIGHUP:
            first.signal(signal.SIGTERM)
            second.wait_for("serving")
            second.signal(signal.SIGTERM)
        assert second.end() == 0
        assert not [line for line in second.messages() if "Traceback" in line]
    finally:
        second.process.kill()
        second.process.wait()


def test_a_forced_end_stops_the_city_in_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It only does not wait for callers."""
    app = create_app(settings_for(f"sqlite:///{tmp_path}/city.db"))
    server = Server(configuration(app, host="127.0.0.1", port=0))
    for number in (signal.SIGINT,) * 2:
        server.handle_exit(number, None)
    assert (server.should_exit, server.force_exit) == (True, False)
    for number in (signal.SIGINT, signal.SIGTERM):
        server.handle_exit(number, None)
    assert server.force_exit
    thread = threading.Thread(target=server.run)
    thread.start()
    thread.join(timeout=MAX_WAIT_SECONDS)
    assert not thread.is_alive()
    assert not app.pricing.running
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_logs_that_nobody_reads_end_nothing(serve: Serve) -> None:
    reader, writer = os.pipe()
    service = serve(stderr=writer)
    os.close(writer)
    output = read_until(reader, b"startup complete")
    os.close(reader)
    (line,) = [line for line in output.splitlines() if b'"listening"' in line]
    url = json.loads(line)["address"]
    for _ in range(50):
        assert httpx.get(f"{url}/nothing").status_code == 404
    service.signal(signal.SIGHUP)
    assert httpx.post(f"{url}/price", json=CONTEXT).status_code == 200
    service.signal(signal.SIGTERM)
    assert service.end() == 0


def test_a_city_without_standard_error_serves(serve: Serve) -> None:
    (port,) = free_ports(1)
    service = serve(shell_suffix=f"--port {port} 2>&-")
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while time.monotonic() < deadline and service.process.poll() is None:
        try:
            assert httpx.post(f"{url}/price", json=CONTEXT).status_code == 200
            break
        except httpx.TransportError:
            time.sleep(0.02)
    service.signal(signal.SIGTERM)
    assert service.end() == 0
