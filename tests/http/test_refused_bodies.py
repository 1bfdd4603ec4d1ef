"""What callers without a key send after their refusal: it is not collected, and they are cut off."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pricemesh.http.keys import new_key, write_keys
from tests.running import CityProcess

BODY_BYTES = 4_000_000
MAX_GROWTH_KB = 10_000  # far below the bodies sent
HEAD = b"POST /price HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % BODY_BYTES


@pytest.fixture(params=["true", "false"])
def city(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CityProcess]:
    _, key = new_key("price")
    write_keys(tmp_path / "keys.toml", {key.id: key})
    process = CityProcess(
        tmp_path,
        f"sqlite:///{tmp_path}/city.db",
        security={"api_keys_file": str(tmp_path / "keys.toml")},
        server={"stop_with_stdin": True, "fast_path": request.param == "true"},
    )
    yield process
    process.stop()


def send_after_refusal(city: CityProcess) -> bytes:
    """The answer, and whatever else until the city closes the connection."""
    host, _, port = city.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(HEAD)
        answer = connection.recv(4096)
        with suppress(ConnectionError):  # it may be cut off before all is sent
            connection.sendall(bytes(BODY_BYTES))
        while True:
            try:
                more = connection.recv(4096)
            except ConnectionError:
                return answer
            if not more:
                return answer
            answer += more


def memory_kb(city: CityProcess) -> int:
    status = Path(f"/proc/{city.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def check(city: CityProcess, refusals: int) -> None:
    for _ in range(20):
        send_after_refusal(city)
    before = memory_kb(city)
    for _ in range(refusals):
        answer = send_after_refusal(city)
        assert answer.startswith(b"HTTP/1.1 401 "), answer
        assert b"\r\nconnection: close\r\n" in answer
        assert answer.count(b"HTTP/1.1 ") == 1
    assert memory_kb(city) - before <= MAX_GROWTH_KB


def test_a_body_sent_after_a_refusal_is_not_kept_and_its_connection_is_closed(city: CityProcess) -> None:
    check(city, 40)


@pytest.mark.slow
def test_a_thousand_bodies_sent_after_a_refusal_leave_no_memory_behind(city: CityProcess) -> None:
    check(city, 1000)
