"""Retractions over HTTP: what is answered, shown and refused; command line and client."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pricemesh.city import retracting
from pricemesh.client import AsyncCity, City, CityError
from pricemesh.http.keys import new_key, write_keys
from tests.running import CONTEXT, RunningCity, settings_for, until

Start = Callable[..., RunningCity]
NO_COUNTS = {"unreadable": 0, "off_ladder": 0, "relearning": False}


def teach(city: RunningCity, *ids: str, reward: float = 1.0, headers: dict[str, str] | None = None) -> None:
    requests = [CONTEXT | {"decision_id": id_} for id_ in ids]
    city.http.post("/price/batch", json={"requests": requests}, headers=headers).raise_for_status()
    items = [{"decision_id": id_, "reward": reward} for id_ in ids]
    city.http.post("/feedback/batch", json={"items": items}, headers=headers).raise_for_status()


def retract(city: RunningCity, **body: Any) -> dict[str, Any]:
    answer = city.http.post("/admin/retract", json={"reason": "a broken till"} | body)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def test_a_retraction_is_answered_audited_and_shown(start: Start) -> None:
    city = start()
    teach(city, "d1", "d2", "d3")
    before = city.http.get("/decisions/d1").json()["feedback"]
    assert before["retracted"] is None
    dry = retract(city, decisions=["d1", "d2"], dry_run=True)
    counts = {"selected": 2, "already_retracted": 0, "without_feedback": 0}
    assert dry == {"retraction": None, **counts, "relearned": False}
    assert city.state()["retractions"] == []
    answer = retract(city, decisions=["d1", "d2"])
    record = answer.pop("retraction")
    assert answer == {**counts, "relearned": True}
    assert (record["id"], record["by"], record["reason"]) == (1, "operator", "a broken till")
    assert (record["selection"], record["feedback"]) == ({"decisions": ["d1", "d2"]}, 2)
    assert record["lifted_at"] is None
    note = {"retraction": 1, "at": record["at"], "by": "operator", "reason": "a broken till"}
    assert city.http.get("/decisions/d1").json()["feedback"] == before | {"retracted": note}
    page = city.http.get("/decisions").json()["decisions"]
    assert [row["feedback"]["retracted"] for row in page] == [None, note, note]
    state = city.state()
    assert state["lessons"] == {"learned": 1, "retracted": 2, **NO_COUNTS}
    assert state["retractions"] == [note | {"feedback": 2}]
    assert (state["version"], sum(arm["count"] for arm in state["arms"])) == (3, 1)
    assert 'pricemesh_lessons_retracted{city="lisbon"} 2.0' in city.http.get("/metrics").text
    assert city.http.get("/admin/retractions").json() == {"retractions": [record], "next_before": None}


def test_a_lifted_retraction_is_listed_and_counts_no_more(start: Start) -> None:
    city = start()
    teach(city, "d1", "d2")
    before = city.state()
    record = retract(city, decisions=["d1"])["retraction"]
    answer = city.http.post("/admin/retractions/1/lift", json={"reason": "it was right"})
    assert answer.status_code == 200
    lifted = answer.json()
    assert {name: value for name, value in lifted.items() if name != "retraction"} == {
        "restored": 1,
        "still_retracted": 0,
        "pruned": 0,
        "relearned": True,
    }
    again = lifted["retraction"]
    assert (again["lifted_by"], again["lift_reason"]) == ("operator", "it was right")
    assert again["lifted_at"] >= record["at"]
    assert city.http.get("/admin/retractions").json()["retractions"] == [again]
    assert city.http.get("/decisions/d1").json()["feedback"]["retracted"] is None
    assert city.state() == before
    assert start().state() == before, "also after a restart"


def test_retractions_come_in_pages(start: Start) -> None:
    city = start()
    teach(city, "d1", "d2", "d3")
    for id_ in ("d1", "d2", "d3"):
        retract(city, decisions=[id_])
    first = city.http.get("/admin/retractions?limit=2").json()
    assert ([each["id"] for each in first["retractions"]], first["next_before"]) == ([3, 2], 2)
    second = city.http.get("/admin/retractions?limit=2&before=2").json()
    assert ([each["id"] for each in second["retractions"]], second["next_before"]) == ([1], None)


def test_feedback_again_for_what_was_retracted_is_not_learned(start: Start) -> None:
    city = start()
    teach(city, "d1")
    retract(city, decisions=["d1"])
    same = city.feedback("d1", 1.0)
    assert same.status_code == 200
    assert same.json() == {"decision_id": "d1", "reward": 1.0, "learned": False, "version": 1}
    other = city.feedback("d1", 2.0)
    assert other.status_code == 409
    assert other.json()["detail"] == "decision 'd1' has the reward 1.0 already, which was retracted"
    items = [{"decision_id": "d1", "reward": 1.0}, {"decision_id": "d1", "reward": 2.0}]
    outcomes = city.http.post("/feedback/batch", json={"items": items}).json()["outcomes"]
    assert [(outcome["status"], outcome["learned"]) for outcome in outcomes] == [(200, False), (409, False)]
    city.http.post("/admin/retractions/1/lift", json={"reason": "right"}).raise_for_status()
    assert city.feedback("d1", 1.0).json()["learned"]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"reason": "x"}, "", "name exactly one of"),
        ({"reason": "x", "decisions": ["d1"], "key": "a"}, "", "name exactly one of"),
        ({"reason": "x", "since": 1.0, "import": "a"}, "", "name exactly one of"),
        ({"decisions": ["d1"]}, "reason", "is missing"),
        ({"reason": "", "decisions": ["d1"]}, "reason", ""),
        ({"reason": "x", "since": None}, "since", "number"),
        ({"reason": "x", "decisions": []}, "decisions", ""),
        ({"reason": "x", "decisions": ["d"] * 11}, "decisions", "at most 10 in one call, not 11"),
    ],
)
def test_a_request_that_selects_nothing_clear_is_refused(
    start: Start, body: dict[str, Any], field: str, words: str
) -> None:
    city = start(limits={"batch_size": 10})
    answer = city.http.post("/admin/retract", json=body)
    assert answer.status_code == 422
    (fault,) = answer.json()["errors"]
    assert fault["field"] == field
    assert words in fault["detail"]


def test_what_does_not_exist_is_named_and_nothing_changes(start: Start) -> None:
    city = start()
    teach(city, "d1")
    before = city.state()
    unknown = city.http.post("/admin/retract", json={"reason": "x", "decisions": ["d1", "d7", "d8"]})
    assert unknown.status_code == 404
    assert unknown.json()["detail"] == "not known, or pruned: decision 'd7', 'd8'; nothing was changed"
    nothing = city.http.post("/admin/retract", json={"reason": "x", "since": 5.0, "until": 4.0})
    assert nothing.status_code == 404
    assert nothing.json()["type"] == "urn:pricemesh:problem:nothing-to-retract"
    assert '{"since": 5.0, "until": 4.0}' in nothing.json()["detail"]
    assert city.http.post("/admin/retractions/3/lift", json={"reason": "x"}).status_code == 404
    assert city.state() == before


@pytest.fixture(params=[True, False], ids=["fast path", "asgi"])
def keyed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[RunningCity, dict[str, str]]]:
    keys = {name: new_key(scopes, name) for name, scopes in KEYS.items()}
    write_keys(tmp_path / "keys.toml", {key.id: key for _, key in keys.values()})
    city = RunningCity(
        settings_for(
            f"sqlite:///{tmp_path}/city.db",
            security={"api_keys_file": tmp_path / "keys.toml"},
            server={"fast_path": request.param},
        )
    )
    yield city, {name: presented for name, (presented, _) in keys.items()}
    city.stop()


KEYS = {"shop": "price,feedback", "till": "price,feedback", "boss": "admin"}


def test_what_one_key_sent_is_retracted_by_another_whose_id_is_stored(
    keyed: tuple[RunningCity, dict[str, str]],
) -> None:
    city, keys = keyed
    headers = {name: {"Authorization": f"Bearer {key}"} for name, key in keys.items()}
    ids = {name: key.split("_")[1] for name, key in keys.items()}
    teach(city, "s1", "s2", headers=headers["shop"])
    teach(city, "t1", headers=headers["till"])
    city.http.post("/price", json=CONTEXT | {"decision_id": "t2"}, headers=headers["till"])
    city.http.post("/feedback", json={"decision_id": "t2", "reward": 9.0}, headers=headers["till"])
    body = {"key": ids["till"], "reason": "stolen"}
    assert city.http.post("/admin/retract", json=body, headers=headers["shop"]).status_code == 403
    answer = city.http.post("/admin/retract", json=body, headers=headers["boss"])
    assert (answer.status_code, answer.json()["selected"]) == (200, 2)
    assert answer.json()["retraction"]["by"] == ids["boss"]
    for id_, name, is_retracted in (("s1", "shop", False), ("t1", "till", True), ("t2", "till", True)):
        record = city.http.get(f"/decisions/{id_}", headers=headers["boss"]).json()["feedback"]
        assert record["key"] == ids[name]
        assert (record["retracted"] is not None) == is_retracted


def test_the_client_retracts_lifts_and_lists(start: Start) -> None:
    city = start()
    teach(city, "d1", "d2", "d3")
    with City(city.url) as client:
        assert client.retract("a try", decisions=["d1"], dry_run=True).retraction is None
        result = client.retract("wrong", decisions=["d1", "d2"])
        assert (result.selected, result.relearned) == (2, True)
        with pytest.raises(CityError, match="404"):
            client.retract("wrong", key="nobody")
        assert client.lift_retraction(1, "right").restored == 2
        assert [each.lift_reason for each in client.retractions()] == ["right"]

    async def use() -> None:
        async with AsyncCity(city.url) as client:
            assert (await client.retract("all", since=0.0)).selected == 3
            assert [each.id for each in await client.retractions()] == [2, 1]
            assert (await client.lift_retraction(2, "none")).restored == 3

    asyncio.run(use())


def command(*arguments: str) -> tuple[int, str]:
    """Its exit code, and what it printed."""
    run = subprocess.run(
        [sys.executable, "-m", "pricemesh", "retract", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return run.returncode, run.stdout + run.stderr


def test_the_command_line_counts_retracts_and_lifts(start: Start) -> None:
    city = start()
    teach(city, "d1", "d2", "d3")
    url, reason = city.url, ("--reason", "a broken till")
    code, text = command(url, "--since", "2001-01-01T00:00Z", *reason, "--dry-run")
    assert (code, text) == (0, "3 feedback selected, 0 of them retracted already; nothing was changed\n")
    code, text = command(url, "--decision", "d1", "--decision", "d2", *reason)
    assert code == 0
    assert text.startswith("retraction 1: 2 feedback selected, 0 of them retracted already; ")
    assert city.state()["lessons"]["retracted"] == 2
    code, text = command(url, "--lift", "1", "--reason", "it was right")
    assert (code, text) == (
        0,
        "retraction 1 is lifted: 2 feedback count again; the learner has learned again\n",
    )
    assert city.state()["lessons"]["retracted"] == 0


def test_the_command_line_refuses_what_is_not_one_selection(start: Start) -> None:
    url, reason = start().url, ("--reason", "x")
    for arguments in ((), ("--decision", "d1", "--key", "a"), ("--lift", "1", "--import", "a")):
        code, text = command(url, *arguments, *reason)
        assert code == 2
        assert "exactly one of --decision, --import, --since/--until, --key and --lift" in text
    assert command(url, "--since", "tomorrow", *reason)[0] == 2
    assert (
        "404 Not Found: not known, or pruned: decision 'd9'" in command(url, "--decision", "d9", *reason)[1]
    )


def test_an_answer_before_the_learner_is_made_again_says_so(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retracting, "MAX_WAIT_SECONDS", 0.0)
    city = start()
    teach(city, "d1", "d2")
    answer = city.http.post("/admin/retract", json={"reason": "x", "decisions": ["d1"]})
    assert (answer.status_code, answer.json()["relearned"]) == (202, False)
    until(lambda: not city.state()["lessons"]["relearning"])
    assert city.state()["lessons"]["retracted"] == 1
    lifted = city.http.post("/admin/retractions/1/lift", json={"reason": "x"})
    assert (lifted.status_code, lifted.json()["relearned"]) == (202, False)
    until(lambda: city.state()["lessons"] == {"learned": 2, "retracted": 0, **NO_COUNTS})
