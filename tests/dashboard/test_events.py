"""`GET /events` over real HTTP: what frames hold, who may read them, and how a stream ends."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from pricemesh.dashboard import feed as feed_module
from pricemesh.errors import StorageUnavailable
from pricemesh.http.keys import Scope, new_key, write_keys
from tests.dashboard.cities import wait_until
from tests.running import CONTEXT, CityProcess, RunningCity, settings_for, start_mesh

Start = Callable[..., RunningCity]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[RunningCity] = []

    def start_city(**sections: Any) -> RunningCity:
        running.append(RunningCity(settings_for(f"sqlite:///{tmp_path}/{len(running)}.db", **sections)))
        return running[-1]

    yield start_city
    for city in running:
        city.stop()


def events(city: RunningCity, frames: int = 1) -> list[tuple[str, Any]]:
    """The events of a stream that ends after `frames` frames."""
    answer = city.http.get("/events", params={"frames": frames})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    return parse(answer.text)


def parse(text: str) -> list[tuple[str, Any]]:
    blocks = [
        dict(line.split(": ", 1) for line in block.split("\n")) for block in text.split("\n\n") if block
    ]
    return [(block["event"], json.loads(block["data"])) for block in blocks if "event" in block]


def without_ages(state: dict[str, Any]) -> dict[str, Any]:
    """A state without the fields that change with time alone."""
    peers = [{k: v for k, v in peer.items() if k != "age_seconds"} for peer in state["peers"]]
    return state | {"peers": peers}


def test_a_frame_holds_the_state_and_what_happened(start: Start) -> None:
    city = start(guardrails={"floor": 8.5})
    for _ in range(5):
        city.feedback(city.price()["decision_id"], 0.5)
    waiting = city.price(decision_id="waits")
    (_, history), (name, frame) = events(city)
    assert name == "frame"
    assert frame["state"] == city.http.get("/state").json()
    newest = frame["latest"][0]
    assert (newest["decision_id"], newest["price"], newest["reward"]) == ("waits", waiting["price"], None)
    assert frame["latest"][1]["reward"] == 0.5
    assert frame["truth"] == []

    def seconds() -> list[dict[str, Any]]:
        return list(events(city)[0][1]["seconds"])

    wait_until(lambda: sum(n for second in seconds() for _, n in second["decisions"]) == 6)
    assert sum(second["learned"] for second in seconds()) == 5
    assert sum(second["reward"] for second in seconds()) == pytest.approx(2.5)
    assert history["versions"].keys() <= {"lisbon"}


def test_a_frame_holds_the_peers_that_gossip_knows(tmp_path: Path) -> None:
    cities = start_mesh(tmp_path, ("lisbon", "porto"))
    for city in cities:
        city.feedback(city.price()["decision_id"], 0.5)
    for _ in range(2):
        for city in cities:
            city.tick()
    frame = events(cities[0])[-1][1]
    assert without_ages(frame["state"]) == without_ages(cities[0].http.get("/state").json())
    (peer,) = frame["state"]["peers"]
    assert peer["origin"] == "porto"
    assert peer["share"] == pytest.approx(0.5)  # the same context, once each
    for city in cities:
        city.stop()


def test_feedback_learned_before_a_restart_is_in_no_second_after_it(tmp_path: Path) -> None:
    settings = settings_for(f"sqlite:///{tmp_path}/city.db")
    for life in range(2):
        city = RunningCity(settings)
        if life == 0:
            city.feedback(city.price()["decision_id"], 0.5)
        else:
            wait_until(lambda: len(events(city)[0][1]["seconds"]) >= 1)  # noqa: B023
            assert sum(second["learned"] for second in events(city)[0][1]["seconds"]) == 0
        city.stop()


def test_frames_go_on_and_rates_follow(start: Start) -> None:
    city = start()
    with city.http.stream("GET", "/events") as answer:
        stream = ""
        batches = 0
        for text in answer.iter_text():
            stream += text
            frames = [content for name, content in parse(stream) if name == "frame"]
            if len(frames) > batches:
                batches = len(frames)
                city.http.post("/price/batch", json={"requests": [CONTEXT] * 10})
            if len(frames) >= 3:
                break
    assert frames[0]["rates"] is None
    assert frames[2]["rates"]["decisions"] == pytest.approx(
        20 / (frames[2]["at"] - frames[0]["at"]), rel=0.01
    )
    assert frames[2]["rates"]["feedback"] == 0
    assert frames[1]["at"] < frames[2]["at"]


def test_readers_are_limited_and_a_place_is_free_again_when_one_leaves(start: Start) -> None:
    city = start(limits={"event_readers": 2})
    with city.http.stream("GET", "/events"), city.http.stream("GET", "/events"):
        refusal = city.http.get("/events?frames=1")
        assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "1")
        assert refusal.headers["content-type"] == "application/problem+json"
        assert refusal.json()["type"] == "urn:pricemesh:problem:too-many-readers"
        assert "limits.event_readers" in refusal.json()["detail"]
        assert city.http.post("/price", json=CONTEXT).status_code == 200
    wait_until(lambda: city.http.get("/events?frames=1").status_code == 200)


def test_a_reader_that_does_not_read_is_disconnected_and_slows_nobody(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Frames are made large and frequent, so that the socket's buffers are soon full."""
    monkeypatch.setattr(feed_module, "PERIOD_SECONDS", 0.002)
    monkeypatch.setattr(feed_module, "MAX_SHARE_OF_TIME", 1.0)
    city = start(arms={"prices": [float(price) for price in range(1, 1000)]}, limits={"event_readers": 2})
    host, port = city.url.removeprefix("http://").split(":")
    with closing(socket.socket()) as lazy, city.http.stream("GET", "/events") as keen:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect((host, int(port)))
        lazy.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        deadline = time.monotonic() + 30
        frames = 0
        slowest = 0.0
        texts = keen.iter_text()
        for text in texts:
            frames += text.count("event: frame")
            started_at = time.monotonic()
            assert city.http.post("/price", json=CONTEXT).status_code == 200
            slowest = max(slowest, time.monotonic() - started_at)
            if "did not keep up" in caplog.text:
                break
            assert time.monotonic() < deadline, f"not disconnected after {frames} frames"
        assert slowest < 5.0
        assert next(texts)  # the other reader goes on
    wait_until(lambda: city.http.get("/events?frames=1").status_code == 200)  # its place is free again


def test_a_city_that_stops_ends_its_streams_properly(tmp_path: Path) -> None:
    city = CityProcess(tmp_path, f"sqlite:///{tmp_path}/city.db", server={"drain_seconds": 0.0})
    with httpx.Client(timeout=20) as http, http.stream("GET", f"{city.url}/events") as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        started_at = time.monotonic()
        city.ask_to_stop()
        for _ in lines:  # a stream without its final chunk would raise
            pass
        assert city.stop() == 0
        assert time.monotonic() - started_at < 8  # uvicorn closes open connections after ten


def test_a_database_that_cannot_be_read_is_a_fault_event_and_the_feed_goes_on(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = start()

    def broken() -> tuple[int, int]:
        raise StorageUnavailable("the database cannot be read: gone")

    with monkeypatch.context() as patched:
        patched.setattr(city.pricing.database.reader, "totals", broken)
        assert events(city)[-1] == (
            "fault",
            {"at": events(city)[-1][1]["at"], "detail": "the database cannot be read: gone"},
        )
    wait_until(lambda: events(city, 2)[-1][0] == "frame")


def test_head_is_answered_at_once_and_takes_no_place(start: Start) -> None:
    city = start(limits={"event_readers": 1})
    for _ in range(3):
        answer = city.http.head("/events")
        assert (answer.status_code, answer.content) == (200, b"")


def test_an_invalid_number_of_frames_is_refused_by_name(start: Start) -> None:
    city = start()
    for wrong in ("0", "-1", "many", "1000001"):
        refusal = city.http.get("/events", params={"frames": wrong})
        assert refusal.status_code == 422
        assert refusal.json()["errors"][0]["field"] == "frames"


def test_openapi_describes_the_feed(start: Start) -> None:
    described = start().http.get("/openapi.json").json()["paths"]["/events"]["get"]
    assert described["responses"]["200"]["content"] == {"text/event-stream": {"schema": {"type": "string"}}}
    assert set(described["responses"]) == {"200", "401", "403", "422", "429", "503"}
    for word in ("history", "frame", "fault", "state", "seconds", "rates"):
        assert f"`{word}`" in described["description"]
    assert described["parameters"][0]["name"] == "frames"


def test_with_keys_the_page_is_public_and_its_data_are_not(tmp_path: Path, start: Start) -> None:
    secrets, keys = {}, {}
    for scope_ in Scope:
        secrets[scope_.value], key = new_key(scope_.value)
        keys[key.id] = key
    write_keys(tmp_path / "keys.toml", keys)
    city = start(security={"api_keys_file": tmp_path / "keys.toml"}, lab={"demo": True})

    def status(method: str, path: str, scope: str | None, **more: Any) -> int:
        headers = {"Authorization": f"Bearer {secrets[scope]}"} if scope else {}
        return city.http.request(method, path, headers=headers, **more).status_code

    for path in ("/", "/mesh", "/page/city.js", "/page/page.css"):
        assert status("GET", path, None) == 200
    for method, path, scope, body in (
        ("GET", "/events?frames=1", "read", None),
        ("POST", "/beliefs", "read", CONTEXT),
        (
            "POST",
            "/lab/truth",
            "feedback",
            {"cities": [{"city": "a", "together": {"decisions": 1, "regret": 0.5}}]},
        ),
    ):
        assert status(method, path, None, json=body) == 401
        assert status(method, path, "price", json=body) == 403
        assert status(method, path, scope, json=body) == 200
