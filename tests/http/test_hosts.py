"""The names that a city may be called by: a page whose own name resolves to loopback is refused."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pricemesh.city.configuration import settings_from
from pricemesh.errors import WrongConfiguration, WrongHost
from pricemesh.http.hosts import MAX_REMEMBERED, Hosts
from pricemesh.http.keys import new_key, write_keys
from tests.http.streams import BAD_HOSTS, GOOD_HOSTS
from tests.running import CONFIG, CONTEXT, RunningCity, settings_for

Start = Callable[..., RunningCity]


@pytest.mark.parametrize("host", [*GOOD_HOSTS, "[0:0::1]", "127.255.255.254:65535"])
def test_loopback_names_are_good_with_any_port(host: str) -> None:
    hosts = Hosts(())
    for _ in range(2):  # the second time from memory
        hosts.admit(host.encode())


@pytest.mark.parametrize("host", [*BAD_HOSTS, "10.0.0.1", "localhost, a", "[::2]", "\xff", "x" * 9999])
def test_other_names_are_refused_in_a_sentence_that_says_what_allows_them(host: str) -> None:
    with pytest.raises(WrongHost, match=r'write server\.hosts = \["[a-z0-9._-]+"\]') as refused:
        Hosts(("pricing.local",)).admit(host.encode("latin-1"))
    assert len(str(refused.value)) < 400


def test_configured_names_are_good_in_any_case_and_with_any_port() -> None:
    hosts = Hosts(("pricing.local", "10.0.0.5", "[fd00::1]"))
    for header in (b"Pricing.Local", b"pricing.local:8000", b"10.0.0.5:1", b"[FD00::1]:80", b"localhost"):
        hosts.admit(header)
    for header in (b"other.pricing.local", b"10.0.0.6"):
        with pytest.raises(WrongHost):
            hosts.admit(header)


def test_callers_cannot_make_it_remember_without_bound() -> None:
    hosts = Hosts(())
    for port in range(2 * MAX_REMEMBERED):
        hosts.admit(b"localhost:%d" % port)
    assert len(hosts.remembered) == MAX_REMEMBERED


@pytest.mark.parametrize("host", ["http://a", "a:80", "", "a b", "[::1", "::1", "é"])
def test_a_host_in_the_configuration_is_a_name_alone(host: str) -> None:
    with pytest.raises(WrongConfiguration, match=r"server\.hosts: .* is not a name or an address without"):
        settings_from(CONFIG | {"server": {"hosts": [host]}})
    assert settings_from(CONFIG | {"server": {"hosts": "A.b, c"}}).server.hosts == ("a.b", "c")


@pytest.fixture
def start_city(tmp_path: Path) -> Iterator[Start]:
    running: list[RunningCity] = []

    def start(**sections: Any) -> RunningCity:
        running.append(RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db", **sections)))
        return running[-1]

    yield start
    for city in running:
        city.stop()


def test_a_page_whose_own_name_resolves_to_loopback_reaches_nothing(start_city: Start) -> None:
    """As a browser calls it: the name of the page's site, on the port of the city."""
    city = start_city()
    name = f"evil.example:{city.url.rpartition(':')[2]}"
    headers = {"Host": name, "Origin": f"http://{name}"}
    assert city.http.post("/price", json=CONTEXT, headers=headers).status_code == 403
    assert city.http.post("/admin/freeze", json={}, headers=headers).status_code == 403
    assert city.http.get("/state", headers={"Host": name}).status_code == 403
    assert city.state()["decisions"] == 0


@pytest.mark.parametrize("fast_path", [True, False])
def test_without_keys_every_call_is_refused_under_a_foreign_name(start_city: Start, fast_path: bool) -> None:
    city = start_city(server={"fast_path": fast_path, "hosts": ["pricing.local"]})
    for host, status in (("evil.example", 403), ("pricing.local:8000", 200), ("[::1]:1", 200)):
        answers = [
            city.http.post("/price", json=CONTEXT, headers={"Host": host}),
            *(city.http.get(path, headers={"Host": host}) for path in ("/state", "/", "/healthz")),
        ]
        assert [answer.status_code for answer in answers] == [status] * 4
    refusal = city.http.get("/state", headers={"Host": "evil.example"}).json()
    assert refusal["type"] == "urn:pricemesh:problem:wrong-host"
    assert 'server.hosts = ["evil.example"]' in refusal["detail"]
    assert city.state()["decisions"] == 2


def test_with_keys_the_name_is_checked_only_where_names_are_configured(
    start_city: Start, tmp_path: Path
) -> None:
    presented, key = new_key("price,read")
    write_keys(tmp_path / "keys.toml", {key.id: key})
    headers = {"Host": "evil.example", "Authorization": f"Bearer {presented}"}
    city = start_city(security={"api_keys_file": tmp_path / "keys.toml"})
    assert city.http.get("/state", headers=headers).status_code == 200
    city.stop()
    gossip = {"address": "http://lisbon.example:8000", "secrets": ["k1:" + "s" * 40]}
    city = start_city(
        security={"api_keys_file": tmp_path / "keys.toml"}, server={"hosts": ["a.example"]}, gossip=gossip
    )
    assert city.http.get("/state", headers=headers).status_code == 403
    for host in ("a.example", "lisbon.example", "localhost"):  # where peers call it is its name as well
        assert city.http.get("/state", headers=headers | {"Host": host}).status_code == 200


def test_a_page_under_a_configured_name_may_call(start_city: Start) -> None:
    """The dashboard, opened by that name, asks for beliefs with this Origin."""
    city = start_city(server={"hosts": ["pricing.local"]})
    for name, status in (("pricing.local:8000", 200), ("evil.example", 403)):
        headers = {"Host": "pricing.local:8000", "Origin": f"http://{name}"}
        assert city.http.post("/beliefs", json=CONTEXT, headers=headers).status_code == status


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_caller_that_names_no_host_is_no_page_and_is_answered(start_city: Start, version: str) -> None:
    city = start_city()
    host, _, port = city.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as caller:
        caller.sendall(f"GET /healthz HTTP/{version}\r\nConnection: close\r\n\r\n".encode())
        with caller.makefile("rb") as stream:
            head, _, body = stream.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert json.loads(body)["status"] == "alive"
