"""The API answers every request as its OpenAPI document says, also invalid ones."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from pricemesh.http.keys import new_key, write_keys
from tests.running import CONTEXT, RunningCity, settings_for


@pytest.fixture
def sqlite_city(tmp_path: Path) -> Any:
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db"))
    yield city
    city.stop()


@pytest.mark.parametrize(
    ("examples", "min_cases", "with_keys"),
    [
        (45, 700, False),
        pytest.param(750, 10_000, False, marks=pytest.mark.slow),
        pytest.param(750, 10_000, True, marks=pytest.mark.slow),
    ],
)
def test_schemathesis_finds_no_undocumented_answer(
    tmp_path: Path, examples: int, min_cases: int, with_keys: bool
) -> None:
    program = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    assert program, "schemathesis is in the dev extra"
    # No schema can say which bytes are a gossip message, so a 422 counts as an answer to valid data there; a
    # city with keys and without gossip.secrets takes no gossip at all.
    # Nor which columns and times there are: GET /export; nor which times have few enough buckets: GET /sales.
    # The live feed never ends; tests/dashboard/test_events.py tests it.
    gossip_statuses = '["2xx", 403, 422]' if with_keys else '["2xx", 422]'
    (tmp_path / "schemathesis.toml").write_text(
        '[[operations]]\ninclude-path = "/gossip"\n'
        f"checks.positive_data_acceptance.expected-statuses = {gossip_statuses}\n"
        '[[operations]]\ninclude-path = "/export"\n'
        'checks.positive_data_acceptance.expected-statuses = ["2xx", 422, 503]\n'
        '[[operations]]\ninclude-path = "/sales"\n'
        'checks.positive_data_acceptance.expected-statuses = ["2xx", 422]\n'
        '[[operations]]\ninclude-path = "/events"\nenabled = false\n'
    )
    security: dict[str, str] = {}
    # Without keys, calls that lack one are answered; with them, that check is on.
    options = ["--exclude-checks", "ignored_auth"]
    if with_keys:
        presented, key = new_key("admin")
        write_keys(tmp_path / "keys.toml", {key.id: key})
        security = {"api_keys_file": str(tmp_path / "keys.toml")}
        options = ["--header", f"Authorization: Bearer {presented}"]
    city = RunningCity(settings_for(f"sqlite:///{tmp_path}/city.db", security=security))
    try:
        run = subprocess.run(
            [
                program,
                "run",
                f"{city.url}/openapi.json",
                # One worker: Hypothesis parses source in every thread, and with two CPython 3.11 sometimes
                # fails ("AST constructor recursion depth mismatch").
                *("--checks", "all", "--max-examples", str(examples), "--seed", "1", "--workers", "1"),
                *("--suppress-health-check", "all"),
                *options,
            ],
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
            cwd=tmp_path,
        )
    finally:
        city.stop()
    assert run.returncode == 0, run.stdout[-6000:]
    cases = re.search(r"(\d+) generated", run.stdout)
    assert cases, run.stdout[-3000:]
    print(f"{cases.group(1)} cases, with keys: {with_keys}")
    assert int(cases.group(1)) >= min_cases, run.stdout[-3000:]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"", 422, "JSON"),
        (b"{", 422, "JSON"),
        (b"[]", 422, "object"),
        (b"\xff\xfe", 422, "JSON"),
        (b'{"shared": {"demand": NaN, "rain": 0, "event": 0}, "local": {}}', 422, "shared.demand"),
        (b'{"shared": {"demand": Infinity, "rain": 0, "event": 0}, "local": {}}', 422, "shared.demand"),
        (b'{"shared": {"demand": 1e400, "rain": 0, "event": 0}, "local": {}}', 422, "shared.demand"),
        (b'{"shared": {"demand": "1", "rain": 0, "event": 0}, "local": {}}', 422, "shared.demand"),
        (b'{"shared": {"demand": true, "rain": 0, "event": 0}, "local": {}}', 422, "shared.demand"),
        (b'{"shared": {"demand": 1, "rain": 2, "event": 0}, "local": {}}', 422, "shared.rain"),
        (
            b'{"shared": {"demand": 1e9, "rain": 0, "event": 0}, "local": {"tourists":0,"strike":0}}',
            422,
            "shared.demand",
        ),
        (b'{"shared": {"demand": 1, "rain": 0}, "local": {}}', 422, "shared.event"),
        (b'{"shared": {"demand": 1, "rain": 0, "event": 0}, "local": {"x": 1}}', 422, "local.x"),
        (b'{"shared": {}, "local": {}, "price": 3}', 422, "price"),
        (b'{"shared": {}, "decision_id": "a b"}', 422, "decision_id"),
        (b'{"shared": {}, "subject": "a\\u0000"}', 422, "subject"),
        (b'{"shared": ' + b"[" * 5000 + b"]" * 5000 + b"}", 422, ""),
        (b'{"shared": {"demand": ' + b"1" * 10_000_000 + b"}}", 413, "bytes"),
    ],
)
def test_an_invalid_body_is_a_4xx_that_names_the_fault(
    sqlite_city: RunningCity, body: bytes, status: int, word: str
) -> None:
    response = sqlite_city.http.post("/price", content=body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert word in response.text
    assert sqlite_city.state()["decisions"] == 0


def test_a_body_too_large_is_refused_without_a_content_length_too(sqlite_city: RunningCity) -> None:
    def endless() -> Any:
        for _ in range(100):
            yield b" " * 100_000

    try:
        status = sqlite_city.http.post("/price", content=endless()).status_code
    except httpx.TransportError:  # the city answered and closed before all was sent
        status = 413
    assert status == 413
    assert sqlite_city.http.get("/healthz").status_code == 200


def test_the_examples_in_the_openapi_document_work_unchanged(sqlite_city: RunningCity) -> None:
    document = sqlite_city.http.get("/openapi.json").json()

    def example(path: str) -> Any:
        return document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["example"]

    assert sqlite_city.http.post("/price", json=example("/price")).status_code == 200
    assert sqlite_city.http.post("/feedback", json=example("/feedback")).status_code == 200
    assert sqlite_city.http.post("/price/batch", json=example("/price/batch")).status_code == 200
    assert sqlite_city.http.post("/feedback/batch", json=example("/feedback/batch")).status_code == 200
    assert sqlite_city.http.post("/admin/pin", json=example("/admin/pin")).status_code == 200
    assert sqlite_city.http.post("/beliefs", json=example("/beliefs")).status_code == 200
    assert sqlite_city.http.get("/docs").status_code == 200


def test_a_request_id_is_echoed_and_an_invalid_one_replaced(sqlite_city: RunningCity) -> None:
    http = sqlite_city.http
    assert http.get("/version", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert len(http.get("/version", headers={"X-Request-ID": "x" * 300}).headers["x-request-id"]) == 16
    problem = http.post("/price", json={}, headers={"X-Request-ID": "abc-2"})
    assert problem.json()["request_id"] == "abc-2"


def test_unknown_paths_and_methods_are_problems_too(sqlite_city: RunningCity) -> None:
    missing, method = sqlite_city.http.get("/nothing"), sqlite_city.http.delete("/price")
    assert (missing.status_code, method.status_code) == (404, 405)
    assert missing.json()["type"] == "urn:pricemesh:problem:not-found"
    assert method.headers["allow"] == "POST"


def test_head_is_get_without_a_body(sqlite_city: RunningCity) -> None:
    answer = sqlite_city.http.head("/state")
    assert (answer.status_code, answer.content) == (200, b"")
    assert sqlite_city.http.head("/nothing").status_code == 404


def test_the_docs_load_nothing_from_another_host(sqlite_city: RunningCity) -> None:
    page = sqlite_city.http.get("/docs").text
    links = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(links) == 3
    assert all(link.startswith("/") for link in links)
    assert {sqlite_city.http.get(link).status_code for link in links} == {200}


def test_endless_headers_close_the_connection(sqlite_city: RunningCity) -> None:
    host, port = sqlite_city.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as caller:
        caller.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        byte_count = 0
        with suppress(ConnectionError):
            while byte_count < 10_000_000:
                caller.sendall(b"a" * 10_000)
                byte_count += 10_000
                time.sleep(0.001)
        assert byte_count < 10_000_000
    long = {"X-Long": "a" * 20_000}
    assert sqlite_city.http.get("/version", headers=long).status_code == 200


def test_metrics_count_requests_decisions_and_commits(sqlite_city: RunningCity) -> None:
    before = commits(sqlite_city)
    decision = sqlite_city.price()
    sqlite_city.feedback(decision["decision_id"], 0.5)
    sqlite_city.http.post("/price", json=CONTEXT | {"shared": {}})
    text = sqlite_city.http.get("/metrics").text
    arm = decision["arm"]
    assert f'pricemesh_decisions_total{{arm="{arm}",city="lisbon",price="{8 + arm}"}} 1.0' in text
    assert 'pricemesh_requests_total{route="/price",status="200"} 1.0' in text
    assert 'pricemesh_requests_total{route="/price",status="422"} 1.0' in text
    assert 'pricemesh_learner_version{city="lisbon"} 1.0' in text
    assert 'pricemesh_request_seconds_bucket{le="+Inf",route="/price"} 2.0' in text
    assert commits(sqlite_city) == before + 2


def commits(city: RunningCity) -> float:
    match = re.search(r"^pricemesh_commit_operations_count (.*)$", city.http.get("/metrics").text, re.M)
    assert match
    return float(match.group(1))


def test_a_fault_in_a_batch_names_its_request(sqlite_city: RunningCity) -> None:
    wrong = CONTEXT | {"shared": {"demand": 0.5, "rain": 7.0, "event": 1.0}}
    answer = sqlite_city.http.post("/price/batch", json={"requests": [CONTEXT, CONTEXT, wrong]})
    assert [fault["field"] for fault in answer.json()["errors"]] == ["requests.2.shared.rain"]


def test_a_caller_that_leaves_in_the_middle_changes_nothing(sqlite_city: RunningCity) -> None:
    host, port = sqlite_city.url.removeprefix("http://").split(":")
    body = json.dumps(CONTEXT | {"decision_id": "half"})
    with socket.create_connection((host, int(port))) as caller:
        head = f"POST /price HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body) + 5}\r\n\r\n"
        caller.sendall((head + body).encode())
    time.sleep(0.3)
    assert sqlite_city.http.get("/decisions/half").status_code == 404
